//! Rules about queues: paused, full, unserved, or waiting although workers are idle.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_core::visible;
use ostler_core::{BreakerState, Readiness, State, Task, Timestamp, WorkerState};
use ostler_store::gates::WORKERS_FAIL;
use ostler_store::views::{Liveness, QueueRecord};

use super::{Finding, about, jobs, tasks, word};
use crate::doctor::facts::{Sample, StoreFacts};
use crate::jobs::pilot::PAUSED as PILOT_WAITS;
use crate::published::ServedQueues;

/// A ready task that waits longer than this beside an idle worker is not being claimed.
const LONG_WAIT: Duration = Duration::from_secs(300);
/// The fill level in percent from which a queue is nearly full.
const NEARLY_FULL_PERCENT: u64 = 90;

pub(super) fn findings(seen: &StoreFacts, now: Timestamp) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.survey.queues.iter().filter_map(|queue| paused(seen, queue)).collect();
    found.extend(seen.survey.queues.iter().filter_map(|queue| limit(seen, queue)));
    found.extend(unserved(seen, now));
    found.extend(seen.waiting.iter().filter_map(|sample| waits_beside_idle_workers(seen, sample, now)));
    found
}

fn waiting_in(seen: &StoreFacts, queue: &str) -> u64 {
    seen.survey.lanes.iter().filter(|lane| lane.queue == queue).map(|lane| lane.counts.queued).sum()
}

fn is_paused(seen: &StoreFacts, queue: &str) -> bool {
    seen.survey.queues.iter().any(|record| record.name == queue && record.settings.paused.is_some())
}

/// Whether its tasks may have to wait, regardless of the number of workers.
fn is_held_back(seen: &StoreFacts, queue: &str) -> bool {
    let open = |breaker: Option<BreakerState>| !matches!(breaker, None | Some(BreakerState::Closed));
    let gated = |record: &QueueRecord| {
        record.shut.is_some() || open(record.breaker) || !record.settings.rate.is_empty()
    };
    is_paused(seen, queue) || seen.survey.queues.iter().any(|record| record.name == queue && gated(record))
}

fn paused(seen: &StoreFacts, queue: &QueueRecord) -> Option<Finding> {
    let reason = queue.settings.paused.as_ref()?;
    let waiting = tasks(waiting_in(seen, &queue.name), "waits in it", "wait in it");
    if let Some(cause) = reason.strip_prefix(WORKERS_FAIL) {
        let sentence = format!(
            "The workers of pool \"{}\" fail to start: {}. Its queue is paused, and {waiting}",
            queue.name,
            cause.trim_start_matches(':').trim()
        );
        let advice = format!("Fix that, then start them again: ostler resume {}", word(&queue.name));
        return Some(Finding::error("workers-failing", sentence, advice));
    }
    let why =
        if reason.is_empty() { "without a reason".to_owned() } else { format!("\"{}\"", visible(reason)) };
    if let Some(job) = jobs::of_queue(&queue.name) {
        let sentence = format!("Job {job} is paused: {why}; {waiting}");
        let advice = if reason == PILOT_WAITS {
            format!(
                "To run the other items: ostler job approve {job}; to give them up: ostler job reject {job}"
            )
        } else {
            format!("To resume it: ostler job resume {job}")
        };
        return Some(Finding::warning("queue-paused", sentence, advice));
    }
    let sentence = format!("Queue \"{}\" is paused: {why}; {waiting}", queue.name);
    Some(Finding::warning(
        "queue-paused",
        sentence,
        format!("To resume it: ostler resume {}", word(&queue.name)),
    ))
}

fn limit(seen: &StoreFacts, queue: &QueueRecord) -> Option<Finding> {
    let limit = queue.settings.limit?;
    let waiting = waiting_in(seen, &queue.name);
    let advice = "Add workers (max_workers of its pool), or raise its queue_limit in the config";
    if waiting >= limit {
        let sentence = format!(
            "Queue \"{}\" is full: {waiting} tasks are waiting, its limit is {limit}, and new ones are refused",
            queue.name
        );
        return Some(Finding::error("queue-full", sentence, advice));
    }
    (waiting.saturating_mul(100) >= limit.saturating_mul(NEARLY_FULL_PERCENT)).then(|| {
        let sentence = format!(
            "Queue \"{}\" is nearly full: {waiting} tasks are waiting, and its limit is {limit}",
            queue.name
        );
        Finding::warning("queue-nearly-full", sentence, advice)
    })
}

/// The queues that nodes serve; `None` if no node is up, or one has just started and not reported yet.
pub(super) fn served(seen: &StoreFacts, now: Timestamp) -> Option<BTreeSet<String>> {
    match ServedQueues::of(&seen.survey, now) {
        ServedQueues::Known(queues) => Some(queues),
        ServedQueues::NoNode | ServedQueues::Unknown => None,
    }
}

/// Queues with tasks that no running node serves. Without any node, that is reported once and not for each queue.
fn unserved(seen: &StoreFacts, now: Timestamp) -> Vec<Finding> {
    let Some(served) = served(seen, now) else { return Vec::new() };
    let lanes = seen
        .survey
        .lanes
        .iter()
        .filter(|lane| lane.counts.queued > 0 && !served.contains(&lane.queue))
        .filter(|lane| !jobs::needs_no_pool(&lane.queue));
    let found = lanes.map(|lane| {
        let (queue, kind) = (&lane.queue, &lane.kind);
        let waiting = tasks(lane.counts.queued, "waits", "wait");
        let sentence = format!("No running node serves queue \"{queue}\", where {waiting} (kind \"{kind}\")");
        let advice = format!(
            "Start a node with a pool for it, [pool.{}], or cancel the tasks: ostler cancel --queue {}",
            word(queue),
            word(queue)
        );
        Finding::error("queue-unserved", sentence, advice)
    });
    found.collect()
}

/// The waiting tasks of one lane, if a worker of the queue is idle.
fn waits_beside_idle_workers(seen: &StoreFacts, sample: &Sample, now: Timestamp) -> Option<Finding> {
    let ready_since = |task: &Task| match task.state {
        State::Queued { readiness: Readiness::Ready, run_at, .. } => Some(run_at.max(task.created_at)),
        State::Queued { readiness: Readiness::Waiting | Readiness::Parked, .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    let ready = sample.tasks.iter().filter_map(|task| Some((ready_since(task)?, task)));
    let (since, oldest) = ready.min_by_key(|(since, _)| *since)?;
    let waits = now.since(since);
    let idle = idle_workers(seen, &oldest.queue);
    if waits < LONG_WAIT || idle == 0 || is_held_back(seen, &oldest.queue) {
        return None;
    }
    let (queue, kind, waits) = (&oldest.queue, &oldest.kind, about(waits));
    let workers = if idle == 1 { "1 worker is".to_owned() } else { format!("{idle} workers are") };
    let sentence = format!(
        "Task {} of kind \"{kind}\" has been ready in queue \"{queue}\" for {waits}, although {workers} idle",
        oldest.id
    );
    let advice = format!(
        "Is there a handler for the kind \"{kind}\"? A kind without a handler is never claimed. If there is one, restart the node: \
         ostler drain NODE, then ostler up"
    );
    Some(Finding::error("kind-unserved", sentence, advice))
}

fn idle_workers(seen: &StoreFacts, queue: &str) -> usize {
    let alive = |session| {
        seen.survey.nodes.iter().any(|node| node.session == session && node.liveness == Liveness::Alive)
    };
    let workers =
        seen.survey.workers.iter().filter(|record| record.worker.pool == queue && alive(record.session));
    workers.filter(|record| record.worker.state == WorkerState::Idle).count()
}
