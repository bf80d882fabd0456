//! Rules about tasks: dead letters, quarantined tasks, and tasks held by dead nodes.

use std::collections::BTreeMap;

use ostler_core::visible;
use ostler_core::{FailReason, State, Task};

use super::{Finding, jobs, tasks, word};
use crate::doctor::facts::{Sample, StoreFacts};

/// The length of the message prefix by which failures are grouped.
const MAX_REASON_CHARS: usize = 80;

pub(super) fn findings(seen: &StoreFacts) -> Vec<Finding> {
    let (quarantined, failed): (Vec<&Task>, Vec<&Task>) = seen
        .failed
        .tasks
        .iter()
        .filter(|task| jobs::of_queue(&task.queue).is_none())
        .partition(|task| is_quarantined(task));
    let mut found = Vec::new();
    found.extend(dead_letters(&failed, &seen.failed));
    found.extend(quarantine(&quarantined, &seen.failed));
    found.extend(stale(&seen.stale));
    found
}

fn is_quarantined(task: &Task) -> bool {
    match task.state {
        State::Failed { reason: FailReason::Crashes | FailReason::NodeDeaths, .. } => true,
        State::Failed {
            reason: FailReason::Permanent | FailReason::Exhausted | FailReason::Deadline,
            ..
        }
        | State::Queued { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Cancelled { .. } => false,
    }
}

/// A count of tasks, marked as a minimum if only a part was examined.
pub(super) fn counted(tasks_seen: usize, sample: &Sample, one: &str, many: &str) -> String {
    let count = tasks(tasks_seen as u64, one, many);
    if sample.more { format!("At least {count}") } else { count }
}

/// The most frequent failure, and its count.
pub(super) fn most_often(failed: &[&Task]) -> Option<(String, usize)> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for task in failed {
        *reasons.entry(reason(task)).or_default() += 1;
    }
    reasons.into_iter().max_by_key(|(_, times)| *times)
}

/// How often the most frequent failure occurred, if there are others.
pub(super) fn often(failed: usize, times: usize) -> String {
    if times == failed { String::new() } else { format!("; most often ({times})") }
}

fn dead_letters(failed: &[&Task], sample: &Sample) -> Option<Finding> {
    let (reason, times) = most_often(failed)?;
    let sentence = format!(
        "{}{}: \"{}\"",
        counted(failed.len(), sample, "has failed for good", "have failed for good"),
        often(failed.len(), times),
        visible(&reason)
    );
    let advice = format!(
        "See ostler dead ls. When the cause is fixed: ostler dead replay --matching {}",
        word(&reason)
    );
    Some(Finding::warning("dead-letters", sentence, advice))
}

/// The beginning of the failure message. It is not marked as truncated, so that a search for it finds the task.
fn reason(task: &Task) -> String {
    let message = task.last_failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
    let line = message.lines().next().unwrap_or_default();
    line.chars().take(MAX_REASON_CHARS).collect()
}

fn quarantine(quarantined: &[&Task], sample: &Sample) -> Option<Finding> {
    let newest = quarantined.first()?;
    let sentence = format!(
        "{} in quarantine: each crashed its worker or its node too often. The newest is {} (queue \"{}\", kind \"{}\")",
        counted(quarantined.len(), sample, "is", "are"),
        newest.id,
        newest.queue,
        newest.kind
    );
    let id = newest.id;
    let advice = format!(
        "Find out what crashes the worker: ostler show {id}. When it is fixed: ostler dead replay {id}"
    );
    Some(Finding::warning("quarantined", sentence, advice))
}

/// Items of jobs are reported with their jobs.
fn stale(sample: &Sample) -> Option<Finding> {
    let stale: Vec<&Task> =
        sample.tasks.iter().filter(|task| jobs::of_queue(&task.queue).is_none()).collect();
    let first = stale.first()?;
    let sentence = format!(
        "{} held by a node that is dead or overdue, such as {}",
        counted(stale.len(), sample, "is still", "are still"),
        first.id
    );
    let advice = "A running node takes them over within seconds. If they stay, start one: ostler up. To list them: ostler ls --stale";
    Some(Finding::warning("lease-stale", sentence, advice))
}
