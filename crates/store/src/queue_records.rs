//! The queues of a survey, from what a store reads of them.

use std::collections::HashMap;
use std::iter::once;

use ostler_core::{Closed, Gate, Timestamp};

use crate::accounts::AccountRecord;
use crate::views::{LaneRecord, QueueRecord, QueueSettings};

/// What a store reads of a queue.
#[derive(Clone, Debug)]
pub struct FoundQueue {
    pub name: String,
    pub high_water: u64,
    pub settings: QueueSettings,
    pub gate: Gate,
}

/// Builds the records, except what their tasks have spent.
#[must_use]
pub fn queue_records(
    found: Vec<FoundQueue>,
    lanes: &[LaneRecord],
    accounts: &[AccountRecord],
    now: Timestamp,
) -> Vec<QueueRecord> {
    let closed = closed_by_limits(&found, lanes, now);
    let shut = |queue: &FoundQueue| {
        let pool = queue.settings.serving_queue(&queue.name);
        let account = queue.settings.closed_account(accounts, now);
        account.or_else(|| once(&*queue.name).chain(pool).find_map(|name| closed.get(name).copied()))
    };
    let shut: Vec<Option<Closed>> = found.iter().map(shut).collect();
    let record = |(FoundQueue { name, high_water, settings, gate }, shut)| {
        let has_breaker = settings.queue_rules().breaker.is_some() || gate.breaker.is_some();
        QueueRecord {
            name,
            high_water,
            settings,
            held_until: gate.held_until.filter(|until| *until > now),
            breaker: has_breaker.then(|| gate.breaker_state()),
            shut,
            spending: None,
        }
    };
    found.into_iter().zip(shut).map(record).collect()
}

/// Why queues let nothing start, by their own limits. The leased tasks of a queue count for the queue of its pool, too.
fn closed_by_limits(found: &[FoundQueue], lanes: &[LaneRecord], now: Timestamp) -> HashMap<String, Closed> {
    let pool = |queue: &FoundQueue| {
        let pool = queue.settings.serving_queue(&queue.name)?;
        Some((queue.name.clone(), pool.to_owned()))
    };
    let pools: HashMap<String, String> = found.iter().filter_map(pool).collect();
    let mut leased: HashMap<&str, u64> = HashMap::new();
    for lane in lanes {
        let pool = pools.get(&lane.queue).map(String::as_str);
        for queue in once(&*lane.queue).chain(pool) {
            *leased.entry(queue).or_default() += lane.counts.claimed + lane.counts.running;
        }
    }
    let closed = |queue: &FoundQueue| {
        let leased = leased.get(&*queue.name).copied().unwrap_or(0);
        Some((queue.name.clone(), queue.settings.shut(&queue.gate, leased, now)?))
    };
    found.iter().filter_map(closed).collect()
}
