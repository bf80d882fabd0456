//! The settings that a node publishes with its session: a JSON object with an entry for each queue that the node serves.

use std::collections::{BTreeMap, BTreeSet};

use ostler_store::gates::LIMIT_SETTINGS;
use ostler_store::views::NodeRecord;
use serde_json::Value;

fn read(node: &NodeRecord) -> BTreeMap<String, Value> {
    serde_json::from_str(&node.settings).unwrap_or_default()
}

/// The queues for which a node has settings: it has a pool for each, even while none of its workers is up.
pub(crate) fn queues(node: &NodeRecord) -> BTreeSet<String> {
    read(node).into_keys().collect()
}

/// The limits of a queue that a node has brought.
pub(crate) fn limits(node: &NodeRecord, queue: &str) -> Vec<String> {
    let settings = read(node);
    let has = |limit: &&str| settings.get(queue).is_some_and(|brought| brought.get(limit).is_some());
    LIMIT_SETTINGS.into_iter().filter(has).map(str::to_owned).collect()
}
