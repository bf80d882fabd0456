//! The limits of queues: what is set, and what holds tasks back.

use ostler_core::{BreakerPolicy, BreakerState, Closed, Rate, Timestamp, Trip, millis};
use serde::Serialize;

use crate::system::TaskCounts;
use crate::time::TimeView;

/// What tasks of a paused queue wait for.
pub const PAUSED: &str = "paused";
/// No moment that a clock ever shows: something lasts until somebody ends it.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// A queue: its limits, and how it stands.
#[derive(Clone, Debug, Serialize)]
pub struct QueueView {
    /// Its name.
    pub queue: String,
    /// Why it is paused; `null`: it is not.
    pub paused: Option<String>,
    /// Its tasks by state.
    pub tasks: TaskCounts,
    /// At most this many wait in it.
    pub queue_limit: Option<u64>,
    /// At most this many run at once, over all nodes.
    pub concurrency: Option<u32>,
    /// At most this many of one limit key run at once.
    pub key_concurrency: Option<u32>,
    /// Where payloads have the limit key of tasks that were submitted without one.
    pub key: Option<String>,
    /// Where payloads have the cost of tasks that were submitted without one.
    pub cost: Option<String>,
    /// So much begins in a time; all of them hold.
    pub rate: Vec<RateView>,
    /// So much of each limit key begins in a time.
    pub key_rate: Vec<RateView>,
    /// When work is stopped because it fails.
    pub breaker: Option<BreakerRule>,
    /// Where its breaker stands; `null`: it has none, or each of its keys has one.
    pub breaker_state: Option<BreakerStateView>,
    /// What holds back the queue as a whole.
    pub held: Option<ThrottleView>,
    /// Limit keys that are held back, the soonest over first; a bounded number of them.
    pub keys: Vec<KeyView>,
}

/// So much in every so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RateView {
    /// How much: tasks, or what they cost.
    pub amount: u64,
    /// In how long.
    pub per_ms: i64,
    /// How much may come at once after a quiet time.
    pub burst: u64,
}

impl From<&Rate> for RateView {
    fn from(rate: &Rate) -> Self {
        Self { amount: rate.amount, per_ms: millis(rate.per), burst: rate.burst }
    }
}

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BreakerRule {
    /// After so many failures in a row.
    pub failures: Option<u32>,
    /// When this part of what ended lately has failed.
    pub share: Option<f64>,
    /// How far back that looks.
    pub window_ms: Option<i64>,
    /// Fewer ends than this say nothing yet.
    pub at_least: Option<u32>,
    /// How long it stays open before one task may try.
    pub reset_ms: i64,
    /// `queue`: there is one; `key`: each limit key has one.
    pub per: &'static str,
}

impl BreakerRule {
    /// The rule of a breaker that each of these has.
    #[must_use]
    pub fn new(policy: &BreakerPolicy, per: &'static str) -> Self {
        let none = Self {
            failures: None,
            share: None,
            window_ms: None,
            at_least: None,
            reset_ms: millis(policy.reset),
            per,
        };
        match policy.trip {
            Trip::Consecutive(failures) => Self { failures: Some(failures), ..none },
            Trip::Rate { failures_percent, at_least, window } => Self {
                share: Some(f64::from(failures_percent) / 100.0),
                window_ms: Some(millis(window)),
                at_least: Some(at_least),
                ..none
            },
        }
    }
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerStateView {
    /// `closed`, `open`, or `half_open`: one task tries.
    pub state: &'static str,
    /// Until when, if it does not wait for somebody.
    pub until: Option<TimeView>,
}

impl From<BreakerState> for BreakerStateView {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Closed => Self { state: "closed", until: None },
            BreakerState::Open { until } => Self { state: "open", until: known(until) },
            BreakerState::HalfOpen { .. } => Self { state: "half_open", until: None },
        }
    }
}

/// A breaker: of a queue, or of one of its limit keys.
#[derive(Clone, Debug, Serialize)]
pub struct BreakerView {
    /// The queue.
    pub queue: String,
    /// The limit key; `null`: it is the queue's, or it is the rule for all its keys.
    pub key: Option<String>,
    /// `closed`, `open` or `half_open`; `null`: each key has its own.
    pub state: Option<&'static str>,
    /// Until when, if it does not wait for somebody.
    pub until: Option<TimeView>,
    /// When it opens by itself; `null`: only by hand.
    pub breaker: Option<BreakerRule>,
}

/// A limit key that is held back.
#[derive(Clone, Debug, Serialize)]
pub struct KeyView {
    /// The key.
    pub key: String,
    /// `rate_limited` or `breaker_open`.
    pub waits_for: &'static str,
    /// Until when, if it does not wait for somebody.
    pub until: Option<TimeView>,
    /// Somebody said "too many requests": nothing begins before this.
    pub held_until: Option<TimeView>,
    /// Where its breaker stands.
    pub breaker_state: Option<BreakerStateView>,
}

/// What holds tasks back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThrottleView {
    /// The queue.
    pub queue: String,
    /// The limit key; `null`: the whole queue is held back.
    pub key: Option<String>,
    /// `rate_limited`, `breaker_open`, `concurrency` or `paused`.
    pub waits_for: &'static str,
    /// Until when, if it does not wait for somebody.
    pub until: Option<TimeView>,
}

impl ThrottleView {
    /// What a gate that is shut holds back.
    #[must_use]
    pub fn new(queue: &str, key: Option<&str>, shut: Closed) -> Self {
        let until = shut.until.and_then(known);
        Self { queue: queue.to_owned(), key: key.map(str::to_owned), waits_for: shut.why.name(), until }
    }

    /// What a pause holds back.
    #[must_use]
    pub fn paused(queue: &str) -> Self {
        Self { queue: queue.to_owned(), key: None, waits_for: PAUSED, until: None }
    }
}

/// The moment, unless it never comes.
fn known(until: Timestamp) -> Option<TimeView> {
    (until < FOR_EVER).then(|| until.into())
}
