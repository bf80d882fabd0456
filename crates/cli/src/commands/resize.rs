//! `ostler resize`: changes a pool's number of workers on all nodes, until they restart.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::SessionId;
use ostler_store::node_commands::{CommandAnswer, NodeCommand};
use ostler_store::views::Survey;
use ostler_wire::action;

use super::Console;
use crate::args::Resize;
use crate::exit::{Code, refused};
use crate::print::visible;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, resize: &Resize) -> anyhow::Result<Code> {
    let Resize { pool, min, max } = resize;
    if min > max {
        let sentence = format!("MIN ({min}) must not exceed MAX ({max})");
        return Err(refused(Code::BadInput, sentence));
    }
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let mut told = Vec::new();
    for node in serving(&store.survey().await?, pool) {
        let order = NodeCommand::Resize { pool: pool.clone(), min: *min, max: *max };
        // A node that has exited since has no pool to resize.
        if let CommandAnswer::Given { .. } = store.command(node, order).await? {
            told.push(action::NodeCommandView { node: node.to_string(), command: "resize" });
        }
    }
    if told.is_empty() {
        let sentence = format!("no running node has a pool \"{}\"; see: ostler nodes", visible(pool));
        return Err(refused(Code::NotFound, sentence));
    }
    console.out.answer(&told, |_| {
        let line = |one: &action::NodeCommandView| {
            format!("{}: {pool} will have {min} to {max} workers\n", one.node)
        };
        told.iter().map(line).collect()
    })?;
    Ok(Code::Done)
}

/// The nodes that have this pool. A node publishes the queues it has settings for when it joins, before it has any worker; a node
/// without settings is known by its workers.
fn serving(survey: &Survey, pool: &str) -> BTreeSet<SessionId> {
    let brings = |settings: &str| {
        let said = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(settings);
        said.is_ok_and(|queues| queues.contains_key(pool))
    };
    let nodes = survey.nodes.iter().filter(|node| brings(&node.settings)).map(|node| node.session);
    let workers = survey.workers.iter().filter(|record| record.worker.pool == pool);
    nodes.chain(workers.map(|record| record.session)).collect()
}
