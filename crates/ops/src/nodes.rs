//! Commands to nodes: drain a node, take a drain back, resize a pool.

use std::collections::BTreeSet;

use ostler_core::{IdPart, SessionId};
use ostler_store::Store;
use ostler_store::node_commands::{CommandAnswer, NodeAnswer, NodeCommand, ResumeAnswer};
use ostler_store::views::{NodeRecord, Survey};
use ostler_wire::action::{NodeCommandView, NodeResumption, ResumedNodeView};

use crate::error::{Missing, OpsError, Refusal, Unsuccessful};
use crate::published;
use crate::reply::ask_node;

/// Asks a node, by id or name, to finish its running tasks and exit.
///
/// # Errors
/// When no such node is running, or several have the name.
pub async fn drain(store: &dyn Store, name: &str) -> Result<NodeCommandView, OpsError> {
    let node = find(&store.survey().await?.nodes, name)?;
    match store.command(node, NodeCommand::Drain).await? {
        CommandAnswer::Given { .. } => Ok(NodeCommandView::new(node, &NodeCommand::Drain)),
        CommandAnswer::NoSuchNode => Err(Missing::Node(name.to_owned()).into()),
    }
}

/// Takes the drain of a node, by id or name, back, and waits for its answer.
///
/// # Errors
/// When no such node is running, several have the name, its drain is final, or it does not reply in time.
pub async fn resume(store: &dyn Store, name: &str) -> Result<ResumedNodeView, OpsError> {
    let node = find(&store.survey().await?.nodes, name)?;
    let result = match ask_node(store, node, NodeCommand::Resume).await? {
        Some(NodeAnswer::Resume(ResumeAnswer::Resumed)) => NodeResumption::Resumed,
        Some(NodeAnswer::Resume(ResumeAnswer::NotDraining)) => NodeResumption::NotDraining,
        Some(NodeAnswer::Resume(ResumeAnswer::Stopping)) => {
            return Err(Unsuccessful::NodeStopping(node).into());
        }
        Some(NodeAnswer::Recycle(_)) | None => return Err(Missing::Node(name.to_owned()).into()),
    };
    Ok(ResumedNodeView::new(node, result))
}

fn find(nodes: &[NodeRecord], name: &str) -> Result<SessionId, OpsError> {
    let (id, part): (Option<SessionId>, Option<IdPart>) = (name.parse().ok(), name.parse().ok());
    // A name is meant as it is, even if it could be a part of an id.
    let part = part.filter(|_| !nodes.iter().any(|node| node.name == name));
    let is_meant = |node: &&NodeRecord| {
        Some(node.session) == id || node.name == name || part.is_some_and(|part| part.matches(node.session.0))
    };
    let found: Vec<SessionId> = nodes.iter().filter(is_meant).map(|node| node.session).collect();
    match found.as_slice() {
        [node] => Ok(*node),
        [] => Err(Missing::Node(name.to_owned()).into()),
        _ => Err(Refusal::SeveralNodes { name: name.to_owned(), nodes: found }.into()),
    }
}

/// The number of workers of a pool, until its nodes restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeRequest {
    pub pool: String,
    pub min: u32,
    pub max: u32,
}

impl ResizeRequest {
    /// Needs no store.
    ///
    /// # Errors
    /// When the minimum exceeds the maximum.
    pub fn check(&self) -> Result<(), OpsError> {
        let (min, max) = (self.min, self.max);
        if min > max { Err(Refusal::Size { min, max }.into()) } else { Ok(()) }
    }
}

/// Resizes a pool on all nodes that have it.
///
/// # Errors
/// When no running node has it.
pub async fn resize(store: &dyn Store, request: &ResizeRequest) -> Result<Vec<NodeCommandView>, OpsError> {
    request.check()?;
    let ResizeRequest { pool, min, max } = request;
    let command = NodeCommand::Resize { pool: pool.clone(), min: *min, max: *max };
    let mut told = Vec::new();
    for node in serving(&store.survey().await?, pool) {
        // A node that has exited since has no pool to resize.
        if let CommandAnswer::Given { .. } = store.command(node, command.clone()).await? {
            told.push(NodeCommandView::new(node, &command));
        }
    }
    if told.is_empty() { Err(Missing::Pool(pool.clone()).into()) } else { Ok(told) }
}

/// The nodes that have this pool. A node publishes the queues it has settings for when it joins, before it has any worker; a node
/// without settings is known by its workers.
fn serving(survey: &Survey, pool: &str) -> BTreeSet<SessionId> {
    let nodes = survey.nodes.iter().filter(|node| published::queues(node).contains(pool));
    let workers = survey.workers.iter().filter(|record| record.worker.pool == pool);
    nodes.map(|node| node.session).chain(workers.map(|record| record.session)).collect()
}
