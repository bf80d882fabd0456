//! The limits of queues: settings, and what they throttle.

use ostler_core::{BreakerPolicy, BreakerState, Closed, Rate, Timestamp, Trip, millis};
use serde::Serialize;

use crate::system::TaskCounts;
use crate::time::TimeView;

/// The `waits_for` of tasks in a paused queue.
pub const PAUSED: &str = "paused";
/// A time that no clock reaches: it lasts until it is ended by hand.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// A queue: its limits and their state.
#[derive(Clone, Debug, Serialize)]
pub struct QueueView {
    pub queue: String,
    /// The reason for the pause; `null` if the queue is not paused.
    pub paused: Option<String>,
    pub tasks: TaskCounts,
    /// The maximum number of waiting tasks.
    pub queue_limit: Option<u64>,
    /// The maximum number of running tasks, over all nodes.
    pub concurrency: Option<u32>,
    /// The maximum number of running tasks of one limit key.
    pub key_concurrency: Option<u32>,
    /// The payload path of the limit key, for tasks submitted without one.
    pub key: Option<String>,
    /// The payload path of the cost, for tasks submitted without one.
    pub cost: Option<String>,
    /// Rate limits of the queue; all of them apply.
    pub rate: Vec<RateView>,
    /// Rate limits of each limit key.
    pub key_rate: Vec<RateView>,
    /// The circuit breaker's settings.
    pub breaker: Option<BreakerRule>,
    /// The state of the breaker; `null` if there is none, or one for each key.
    pub breaker_state: Option<BreakerStateView>,
    /// What throttles the whole queue.
    pub held: Option<ThrottleView>,
    /// Throttled limit keys, those that end soonest first; a bounded number of them.
    pub keys: Vec<KeyView>,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RateView {
    /// The number of tasks, or their total cost.
    pub amount: u64,
    /// The window.
    pub per_ms: i64,
    /// How much may start at once after a quiet time.
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
    /// The number of failures in a row that opens it.
    pub failures: Option<u32>,
    /// The share of failures within the window that opens it.
    pub share: Option<f64>,
    pub window_ms: Option<i64>,
    /// The minimum number of finished attempts within the window.
    pub at_least: Option<u32>,
    /// How long it stays open before one task may try.
    pub reset_ms: i64,
    /// `queue`: one breaker for the queue; `key`: one for each limit key.
    pub per: &'static str,
}

impl BreakerRule {
    /// Builds the view of `policy`, with one breaker per `per`.
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

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerStateView {
    /// `closed`, `open`, or `half_open`: one task is trying.
    pub state: &'static str,
    /// `null` if it must be ended by hand.
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

/// A breaker of a queue, or of one of its limit keys.
#[derive(Clone, Debug, Serialize)]
pub struct BreakerView {
    pub queue: String,
    /// The limit key; `null` for the queue's breaker, or for the rule of all its keys.
    pub key: Option<String>,
    /// `closed`, `open` or `half_open`; `null` if each key has its own.
    pub state: Option<&'static str>,
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
    /// When it opens automatically; `null`: only by hand.
    pub breaker: Option<BreakerRule>,
}

/// A throttled limit key.
#[derive(Clone, Debug, Serialize)]
pub struct KeyView {
    pub key: String,
    /// `rate_limited` or `breaker_open`.
    pub waits_for: &'static str,
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
    /// Nothing starts before this time, because a service answered "too many requests".
    pub held_until: Option<TimeView>,
    pub breaker_state: Option<BreakerStateView>,
}

/// A throttled queue or limit key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThrottleView {
    pub queue: String,
    /// The limit key; `null` if the whole queue is throttled.
    pub key: Option<String>,
    /// `rate_limited`, `breaker_open`, `concurrency` or `paused`.
    pub waits_for: &'static str,
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
}

impl ThrottleView {
    /// Builds the view of a closed gate.
    #[must_use]
    pub fn new(queue: &str, key: Option<&str>, shut: Closed) -> Self {
        let until = shut.until.and_then(known);
        Self { queue: queue.to_owned(), key: key.map(str::to_owned), waits_for: shut.why.name(), until }
    }

    /// Builds the view of a pause.
    #[must_use]
    pub fn paused(queue: &str) -> Self {
        Self { queue: queue.to_owned(), key: None, waits_for: PAUSED, until: None }
    }
}

/// The time, unless it is never reached.
fn known(until: Timestamp) -> Option<TimeView> {
    (until < FOR_EVER).then(|| until.into())
}
