//! Rules about nodes: none is up, overdue ones, different versions or settings.

use std::collections::{BTreeMap, BTreeSet};

use ostler_store::views::{Liveness, NodeRecord};
use serde_json::Value;

use super::{Finding, MAX_NAMED, about, jobs, names, tasks};
use crate::doctor::facts::StoreFacts;
use crate::published;

pub(super) fn findings(seen: &StoreFacts) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.survey.nodes.iter().filter_map(overdue).collect();
    let alive: Vec<&NodeRecord> =
        seen.survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive).collect();
    found.extend(none_up(seen, &alive));
    found.extend(versions(&alive));
    found.extend(settings(&alive));
    found
}

fn none_up(seen: &StoreFacts, alive: &[&NodeRecord]) -> Option<Finding> {
    let lanes = seen.survey.lanes.iter().filter(|lane| !jobs::needs_no_pool(&lane.queue));
    let waiting: u64 = lanes.map(|lane| lane.counts.queued).sum();
    (alive.is_empty() && waiting > 0).then(|| {
        let sentence = format!("{}, and no node is up to run them", tasks(waiting, "waits", "wait"));
        Finding::error("no-node", sentence, "Start one: ostler up --config ostler.toml")
    })
}

fn overdue(node: &NodeRecord) -> Option<Finding> {
    (node.liveness == Liveness::Overdue).then(|| {
        let (name, pid, ttl) = (&node.name, node.pid, about(node.ttl));
        let sentence = format!(
            "Node \"{name}\" (process {pid}) has not renewed its leases within {ttl}: it is dead, suspended, or hangs"
        );
        let go_on = if is_map(node) {
            "If it is gone, run the same \"ostler map\" command again"
        } else {
            "Another node takes over its tasks: ostler up"
        };
        let advice = format!(
            "Check its process: ps -o pid,stat,etime,args -p {pid}. State T means suspended: kill -CONT {pid}. {go_on}"
        );
        Finding::warning("node-overdue", sentence, advice)
    })
}

/// Whether the node is an `ostler map` process: it serves the queue of a job.
fn is_map(node: &NodeRecord) -> bool {
    published::queues(node).iter().any(|queue| jobs::of_queue(queue).is_some())
}

fn versions(alive: &[&NodeRecord]) -> Option<Finding> {
    let versions: BTreeSet<&str> = alive.iter().map(|node| node.version.as_str()).collect();
    (versions.len() > 1).then(|| {
        let sentence = format!("Running nodes have different versions: {}", names(versions.into_iter()));
        Finding::warning(
            "versions-differ",
            sentence,
            "Upgrade them one after the other: ostler drain NODE, then ostler up",
        )
    })
}

/// Two nodes with different values for the same setting. A setting that only one of them has is not a conflict: they may serve
/// different queues.
fn settings(alive: &[&NodeRecord]) -> Option<Finding> {
    let said: Vec<(&NodeRecord, BTreeMap<String, String>)> = alive
        .iter()
        .filter(|node| !node.settings.is_empty())
        .map(|node| (*node, leaves(&node.settings)))
        .collect();
    let (first, first_said) = said.first()?;
    let (other, differing) = said.iter().skip(1).find_map(|(node, values)| {
        let differs = |key: &&String| values.get(*key).is_some_and(|value| *value != first_said[*key]);
        let differing: Vec<&str> = first_said.keys().filter(differs).map(String::as_str).collect();
        (!differing.is_empty()).then_some((node, differing))
    })?;
    let which: Vec<&str> = differing.iter().copied().filter(|key| !key.is_empty()).take(MAX_NAMED).collect();
    let which = if which.is_empty() { String::new() } else { format!(": {}", which.join(", ")) };
    Some(Finding::warning(
        "settings-differ",
        format!("Nodes \"{}\" and \"{}\" are up with different settings{which}", first.name, other.name),
        "Give both the same config, and restart one of them: ostler drain NODE, then ostler up",
    ))
}

/// The values of settings by path. Settings that are not JSON are one value with an empty path.
fn leaves(settings: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    match serde_json::from_str(settings) {
        Ok(value) => collect(String::new(), &value, &mut found),
        Err(_) => {
            found.insert(String::new(), settings.to_owned());
        }
    }
    found
}

/// The recursion is bounded: the store limits settings, and the JSON parser limits their depth.
fn collect(path: String, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(path, value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            found.insert(path, value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_compared_value_by_value() {
        let one = leaves(r#"{"pools":{"a":{"timeout":5,"retry":{"attempts":4}}}}"#);
        assert_eq!(one.get("pools.a.retry.attempts").map(String::as_str), Some("4"));
        assert_eq!(leaves("not JSON").get("").map(String::as_str), Some("not JSON"));
    }
}
