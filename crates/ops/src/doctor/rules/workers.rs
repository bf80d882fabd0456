//! Rules about workers: unresponsive ones that do not stop after their timeout.

use std::collections::BTreeMap;

use ostler_core::WorkerState;
use ostler_store::views::Liveness;

use super::{Finding, word};
use crate::doctor::facts::StoreFacts;

/// Handlers that block their thread past the timeout, reported once for each pool of a node.
pub(super) fn findings(seen: &StoreFacts) -> Vec<Finding> {
    let mut deaf: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for record in seen.survey.workers.iter().filter(|record| record.worker.state == WorkerState::Unresponsive)
    {
        let node = seen.survey.nodes.iter().find(|node| node.session == record.session);
        if let Some(node) = node.filter(|node| node.liveness == Liveness::Alive) {
            let task = record.worker.task.map(|(task, _)| task.to_string());
            deaf.entry((&node.name, &record.worker.pool)).or_default().extend(task);
        }
    }
    deaf.into_iter().map(|((node, pool), tasks)| finding(node, pool, &tasks)).collect()
}

fn finding(node: &str, pool: &str, tasks: &[String]) -> Finding {
    let count = match tasks.len() {
        1 => "1 worker has".to_owned(),
        many => format!("{many} workers have"),
    };
    let sentence = format!(
        "In pool \"{pool}\" of node \"{node}\" {count} not stopped after the timeout of the attempt: each blocks a thread"
    );
    let example =
        tasks.first().map(|task| format!(", such as ostler show {}", word(task))).unwrap_or_default();
    let advice = format!(
        "They have been replaced. Check what their handlers wait for{example}: blocking code belongs on a thread of its own \
         (spawn_blocking, or handle_local). To free the threads, restart the program"
    );
    Finding::warning("workers-unresponsive", sentence, advice)
}
