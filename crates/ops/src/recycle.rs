//! Recycling: replaces idle workers. The node decides and replies; a worker that has become busy stays.

use ostler_core::{IdPart, SessionId, WorkerId, WorkerState};
use ostler_store::Store;
use ostler_store::node_commands::{NodeAnswer, NodeCommand, RecycleAnswer, WorkerChoice};
use ostler_store::views::{Survey, WorkerRecord};
use ostler_wire::action::RecycledView;

use crate::error::{Missing, OpsError, Refusal, Unsuccessful};
use crate::reply::ask_node;

/// Which workers to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkersToRecycle {
    /// This one, by id, name or pid; or all idle ones of the pool of this name, if no worker has it.
    Worker(String),
    /// Any one idle worker of this pool.
    Any(String),
    /// All idle workers of this pool.
    All(String),
}

/// Asks the nodes to replace workers, and waits for their replies.
///
/// # Errors
/// When there is no such worker or pool, the worker is busy, no worker is idle, or a node does not reply in time.
pub async fn recycle(store: &dyn Store, request: &WorkersToRecycle) -> Result<RecycledView, OpsError> {
    let survey = store.survey().await?;
    match request {
        WorkersToRecycle::Worker(name) => match one(store, &survey, name).await {
            Err(OpsError::Missing(Missing::Worker(_))) if serving(&survey, name).is_ok() => {
                all(store, &survey, name).await
            }
            done => done,
        },
        WorkersToRecycle::Any(pool) => any(store, &survey, pool).await,
        WorkersToRecycle::All(pool) => all(store, &survey, pool).await,
    }
}

async fn one(store: &dyn Store, survey: &Survey, named: &str) -> Result<RecycledView, OpsError> {
    let record = find(&survey.workers, named)?;
    let (id, pool) = (record.worker.id, &record.worker.pool);
    match ask(store, record.session, pool, WorkerChoice::One(id)).await? {
        Some(answer) if !answer.recycled.is_empty() => Ok(RecycledView::new(&[answer])),
        Some(answer) if !answer.busy.is_empty() => Err(Unsuccessful::WorkerBusy(id).into()),
        Some(_) | None => Err(Missing::Worker(named.to_owned()).into()),
    }
}

/// Asks the nodes that have such a pool, until one has an idle worker.
async fn any(store: &dyn Store, survey: &Survey, pool: &str) -> Result<RecycledView, OpsError> {
    for node in serving(survey, pool)? {
        let answer = ask(store, node, pool, WorkerChoice::Any).await?;
        if let Some(answer) = answer.filter(|answer| !answer.recycled.is_empty()) {
            return Ok(RecycledView::new(&[RecycleAnswer { busy: Vec::new(), ..answer }]));
        }
    }
    Err(Unsuccessful::NoneIdle(pool.to_owned()).into())
}

async fn all(store: &dyn Store, survey: &Survey, pool: &str) -> Result<RecycledView, OpsError> {
    let mut answers = Vec::new();
    for node in serving(survey, pool)? {
        answers.extend(ask(store, node, pool, WorkerChoice::All).await?);
    }
    Ok(RecycledView::new(&answers))
}

/// The node's answer; `None` if the node has exited since.
async fn ask(
    store: &dyn Store,
    node: SessionId,
    pool: &str,
    who: WorkerChoice,
) -> Result<Option<RecycleAnswer>, OpsError> {
    let command = NodeCommand::Recycle { pool: pool.to_owned(), who };
    Ok(match ask_node(store, node, command).await? {
        Some(NodeAnswer::Recycle(answer)) => Some(answer),
        Some(NodeAnswer::Resume(_)) | None => None,
    })
}

fn find<'a>(workers: &'a [WorkerRecord], named: &str) -> Result<&'a WorkerRecord, OpsError> {
    // The worker itself writes its id with this prefix.
    let bare = named.strip_prefix("w-").unwrap_or(named);
    let id: Option<WorkerId> = bare.parse().ok();
    let pid: Option<u32> = named.parse().ok();
    let is_meant = |record: &&WorkerRecord| {
        let worker = &record.worker;
        Some(worker.id) == id || worker.name == named || (pid.is_some() && worker.pid == pid)
    };
    let mut found: Vec<&WorkerRecord> = workers.iter().filter(is_meant).collect();
    if let (true, Ok(part)) = (found.is_empty(), bare.parse::<IdPart>()) {
        found = workers.iter().filter(|record| part.matches(record.worker.id.0)).collect();
    }
    match found.as_slice() {
        [record] => Ok(record),
        [] => Err(Missing::Worker(named.to_owned()).into()),
        several => {
            let workers = several.iter().map(|record| record.worker.id).collect();
            Err(Refusal::SeveralWorkers { named: named.to_owned(), workers }.into())
        }
    }
}

/// The nodes with workers of this pool, those with an idle one first.
fn serving(survey: &Survey, pool: &str) -> Result<Vec<SessionId>, OpsError> {
    let mut nodes: Vec<(bool, SessionId)> = Vec::new();
    for record in survey.workers.iter().filter(|record| record.worker.pool == pool) {
        let is_idle = record.worker.state == WorkerState::Idle;
        match nodes.iter_mut().find(|(_, node)| *node == record.session) {
            Some((has_idle, _)) => *has_idle |= is_idle,
            None => nodes.push((is_idle, record.session)),
        }
    }
    if nodes.is_empty() {
        return Err(Missing::WorkersOf(pool.to_owned()).into());
    }
    nodes.sort_by_key(|(has_idle, _)| !has_idle);
    Ok(nodes.into_iter().map(|(_, node)| node).collect())
}
