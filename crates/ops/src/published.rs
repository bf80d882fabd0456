//! The settings that a node publishes with its session: a JSON object with an entry for each queue that the node serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ostler_core::Timestamp;
use ostler_store::gates::LIMIT_SETTINGS;
use ostler_store::node_settings::OF_THE_NODE;
use ostler_store::views::{Liveness, NodeRecord, Survey};
use serde_json::Value;

/// A node that started more recently than this may not have reported its workers yet.
const JUST_UP: Duration = Duration::from_secs(10);

fn read(node: &NodeRecord) -> BTreeMap<String, Value> {
    serde_json::from_str(&node.settings).unwrap_or_default()
}

/// The queues for which a node has settings: it has a pool for each, even while none of its workers is up.
pub(crate) fn queues(node: &NodeRecord) -> BTreeSet<String> {
    read(node).into_keys().filter(|queue| queue != OF_THE_NODE).collect()
}

/// What is known of the queues that nodes serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServedQueues {
    /// No node is up.
    NoNode,
    /// A node has just started, and has not said yet what it serves.
    Unknown,
    Known(BTreeSet<String>),
}

impl ServedQueues {
    pub(crate) fn of(survey: &Survey, now: Timestamp) -> Self {
        let alive = || survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive);
        if alive().next().is_none() {
            return Self::NoNode;
        }
        let workers = |node: &NodeRecord| {
            let own = survey.workers.iter().filter(|record| record.session == node.session);
            own.map(|record| record.worker.pool.clone()).collect::<BTreeSet<String>>()
        };
        let mut known = BTreeSet::new();
        for node in alive() {
            let mut served = queues(node);
            served.extend(workers(node));
            if served.is_empty() && now.since(node.joined_at) < JUST_UP {
                return Self::Unknown;
            }
            known.extend(served);
        }
        Self::Known(known)
    }
}

/// The limits of a queue that a node has brought.
pub(crate) fn limits(node: &NodeRecord, queue: &str) -> Vec<String> {
    let settings = read(node);
    let has = |limit: &&str| settings.get(queue).is_some_and(|brought| brought.get(limit).is_some());
    LIMIT_SETTINGS.into_iter().filter(has).map(str::to_owned).collect()
}
