//! `ostler nodes`: lists running nodes with their pools.

use std::collections::BTreeMap;

use ostler_core::WorkerState;
use ostler_store::views::{Liveness, NodeRecord, Survey};
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::json::Json;
use ostler_wire::system::{NodeView, PoolView, WorkerCountsView};

use super::Console;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    let views: Vec<NodeView> = survey.nodes.iter().map(|node| view(node, &survey)).collect();
    console.out.answer(&views, |looks| print::nodes(&survey.nodes, &views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

fn view(node: &NodeRecord, survey: &Survey) -> NodeView {
    let mut pools: BTreeMap<&str, WorkerCountsView> = BTreeMap::new();
    for record in survey.workers.iter().filter(|record| record.session == node.session) {
        let counts = pools.entry(&record.worker.pool).or_default();
        counts.total += 1;
        match record.worker.state {
            WorkerState::Idle => counts.idle += 1,
            WorkerState::Busy | WorkerState::Draining => counts.busy += 1,
            WorkerState::Starting | WorkerState::Killed | WorkerState::Unresponsive => {}
        }
    }
    NodeView {
        id: node.session.to_string(),
        name: node.name.clone(),
        pid: node.pid,
        version: node.version.clone(),
        state: match node.liveness {
            Liveness::Alive => "alive",
            Liveness::Overdue => "overdue",
        },
        joined_at: node.joined_at.into(),
        pools: pools.into_iter().map(|(name, workers)| PoolView { name: name.to_owned(), workers }).collect(),
        settings: (!node.settings.is_empty()).then(|| Json::from_text(&node.settings)),
    }
}
