//! Rules about throttled queues and keys, other than pauses: open breakers, and "too many requests".

use ostler_core::{BreakerState, Timestamp};
use ostler_store::gates::KeyRecord;
use ostler_store::views::QueueRecord;

use super::{Finding, about, names, word};
use crate::doctor::facts::StoreFacts;

/// A time that no clock reaches: it lasts until it is ended by hand.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

pub(super) fn findings(seen: &StoreFacts, now: Timestamp) -> Vec<Finding> {
    let queues = &seen.survey.queues;
    let mut found: Vec<Finding> = queues.iter().filter_map(|queue| breaker(queue, now)).collect();
    found.extend(queues.iter().filter_map(|queue| held(queue, now)));
    for queue in queues {
        let keys = || seen.survey.keys.iter().filter(|key| key.queue == queue.name);
        found.extend(open_keys(queue, &keys().filter(|key| is_open(key.breaker)).collect::<Vec<_>>()));
        found.extend(held_keys(queue, &keys().filter(|key| key.held_until.is_some()).collect::<Vec<_>>()));
    }
    found
}

fn is_open(breaker: Option<BreakerState>) -> bool {
    !matches!(breaker, None | Some(BreakerState::Closed))
}

fn breaker(queue: &QueueRecord, now: Timestamp) -> Option<Finding> {
    let (name, one) = (&queue.name, word(&queue.name));
    let how = match queue.breaker? {
        BreakerState::Closed => return None,
        BreakerState::Open { until: FOR_EVER } => "is open until it is reset".to_owned(),
        BreakerState::Open { until } if until > now => {
            format!("is open for another {}", about(until.since(now)))
        }
        BreakerState::Open { .. } => {
            "is open, and the next task tests whether work succeeds again".to_owned()
        }
        BreakerState::HalfOpen { .. } => {
            "is half-open: one task tests whether work succeeds again".to_owned()
        }
    };
    let sentence = format!("The breaker of queue \"{name}\" {how}; its other tasks wait");
    let advice = format!(
        "To see failures: ostler ls --queue {one}. When the cause is fixed: ostler breaker reset {one}"
    );
    Some(Finding::warning("breaker-open", sentence, advice))
}

fn held(queue: &QueueRecord, now: Timestamp) -> Option<Finding> {
    let until = queue.held_until?;
    let sentence = format!(
        "Queue \"{}\" is on hold for another {}: one of its tasks got \"too many requests\"",
        queue.name,
        about(until.since(now))
    );
    let advice = format!("It resumes by itself. To resume now: ostler queue release {}", word(&queue.name));
    Some(Finding::info("queue-held", sentence, advice))
}

fn open_keys(queue: &QueueRecord, keys: &[&KeyRecord]) -> Option<Finding> {
    let first = keys.first()?;
    let sentence = format!(
        "The breakers of these limit keys of queue \"{}\" are open: {}",
        queue.name,
        names(keys.iter().map(|key| key.key.as_str()))
    );
    let (queue, key) = (word(&queue.name), word(&first.key));
    let advice = format!(
        "To see failures: ostler ls --queue {queue}. When the cause is fixed: ostler breaker reset {queue} --key {key}"
    );
    Some(Finding::warning("key-breaker-open", sentence, advice))
}

fn held_keys(queue: &QueueRecord, keys: &[&KeyRecord]) -> Option<Finding> {
    let first = keys.first()?;
    let sentence = format!(
        "These limit keys of queue \"{}\" are on hold, because their tasks got \"too many requests\": {}",
        queue.name,
        names(keys.iter().map(|key| key.key.as_str()))
    );
    let advice = format!(
        "They resume by themselves. To resume now: ostler queue release {} --key {}",
        word(&queue.name),
        word(&first.key)
    );
    Some(Finding::info("keys-held", sentence, advice))
}
