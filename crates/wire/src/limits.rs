//! The limits of queues: settings, and what they throttle.

use ostler_core::{BreakerPolicy, BreakerState, Closed, EndKind, Rate, State, Task, Timestamp, Trip, millis};
use ostler_store::call_breakers::CallBreakerRecord;
use ostler_store::gates::KeyRecord;
use ostler_store::outbox::OutboxFilter;
use ostler_store::views::{Counts, QueueRecord, Survey};
use serde::{Deserialize, Serialize};

use crate::cost::BudgetView;
use crate::system::TaskCounts;
use crate::time::TimeView;
use crate::word::{self, Word};

/// The `waits_for` of tasks in a paused queue.
pub const PAUSED: &str = "paused";
/// A time that no clock reaches: it lasts until it is ended by hand.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// A queue: its limits and their state.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// `aging`: a point of priority is a minute's head start; `strict`: the highest first.
    #[serde(deserialize_with = "word::read")]
    pub priority: Word,
    /// Until when unique keys are held: `removed` or `end`.
    #[serde(deserialize_with = "word::read")]
    pub key_until: Word,
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
    /// Who gets outcomes of its attempts: callbacks, hooks.
    pub subscribers: Vec<SubscriberView>,
    /// The account whose limits it shares with other queues.
    pub account: Option<String>,
    /// What its tasks may spend, and have spent.
    pub budget: Option<BudgetView>,
    /// The pool that serves it and whose budget is charged, too, if it is not its own.
    pub pool: Option<String>,
}

/// A queue whose limits were changed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsSet {
    #[serde(flatten)]
    pub view: QueueView,
    /// A live node whose config has limits for the queue too: they replace these when a node starts with it.
    pub brought: Option<BroughtLimits>,
}

/// Limits of a queue in the config of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BroughtLimits {
    pub node: String,
    pub limits: Vec<String>,
}

impl QueueView {
    /// Builds the views of all queues.
    #[must_use]
    pub fn all(survey: &Survey) -> Vec<Self> {
        survey.queues.iter().map(|record| Self::new(survey, record)).collect()
    }

    #[must_use]
    pub fn new(survey: &Survey, record: &QueueRecord) -> Self {
        let settings = &record.settings;
        let lanes = survey.lanes.iter().filter(|lane| lane.queue == record.name);
        let tasks = lanes.map(|lane| lane.counts).fold(Counts::default(), Counts::plus);
        let keys = survey.keys.iter().filter(|key| key.queue == record.name);
        Self {
            queue: record.name.clone(),
            paused: settings.paused.clone(),
            tasks: tasks.into(),
            queue_limit: settings.limit,
            concurrency: settings.concurrency,
            key_concurrency: settings.key_concurrency,
            key: settings.key_path.as_ref().map(ToString::to_string),
            cost: settings.cost_path.as_ref().map(ToString::to_string),
            priority: settings.priority.name(),
            key_until: settings.key_hold.name().unwrap_or_default(),
            rate: settings.rate.iter().map(Into::into).collect(),
            key_rate: settings.key_rate.iter().map(Into::into).collect(),
            breaker: BreakerRule::of(record),
            breaker_state: record.breaker.map(Into::into),
            held: record.shut.map(|shut| ThrottleView::new(&record.name, None, shut)),
            keys: keys.map(KeyView::from).collect(),
            subscribers: settings.subscribers.iter().map(SubscriberView::from).collect(),
            account: settings.account.clone(),
            budget: settings
                .budget
                .map(|budget| BudgetView::new(&budget, &record.spending.clone().unwrap_or_default())),
            pool: settings.pool.clone(),
        }
    }
}

/// A subscriber of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubscriberView {
    pub name: String,
    /// The outcomes that are stored for it until it has handled them: `completed`, `failed`, `retry`.
    #[serde(deserialize_with = "word::read_list")]
    pub wants: Vec<Word>,
}

impl From<(&str, OutboxFilter)> for SubscriberView {
    fn from((name, wants): (&str, OutboxFilter)) -> Self {
        let wanted = EndKind::ALL.into_iter().filter(|what| wants.has(*what));
        Self { name: name.to_owned(), wants: wanted.map(EndKind::name).collect() }
    }
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    #[serde(deserialize_with = "word::read")]
    pub per: Word,
}

impl BreakerRule {
    /// When the breaker of a queue, or of each of its keys, opens automatically.
    #[must_use]
    pub fn of(record: &QueueRecord) -> Option<Self> {
        record.settings.breaker.map(|breaker| Self::new(&breaker.policy, breaker.scope.name()))
    }

    /// Builds the view of `policy`, with one breaker per `per`.
    fn new(policy: &BreakerPolicy, per: &'static str) -> Self {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BreakerStateView {
    /// `closed`, `open`, or `half_open`: one task is trying.
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
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

/// A breaker of a queue, of one of its limit keys, or around a call of handlers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BreakerView {
    /// `null` for a breaker around a call.
    pub queue: Option<String>,
    /// The limit key; `null` for the queue's breaker, or for the rule of all its keys.
    pub key: Option<String>,
    /// `closed`, `open` or `half_open`; `null` if each key has its own.
    #[serde(deserialize_with = "word::read_option")]
    pub state: Option<Word>,
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
    /// When it opens automatically; `null`: only by hand, or as the handler says.
    pub breaker: Option<BreakerRule>,
    /// The name of the breaker around a call.
    pub call: Option<String>,
}

impl From<CallBreakerRecord> for BreakerView {
    fn from(record: CallBreakerRecord) -> Self {
        let BreakerStateView { state, until } = record.state.into();
        Self { queue: None, key: None, state: Some(state), until, breaker: None, call: Some(record.name) }
    }
}

impl BreakerView {
    /// Builds the views of all breakers: of each queue its own, or the rule for its keys and the keys whose breakers are not closed.
    #[must_use]
    pub fn all(survey: &Survey) -> Vec<Self> {
        survey.queues.iter().flat_map(|record| Self::of_queue(survey, record)).collect()
    }

    fn of_queue(survey: &Survey, record: &QueueRecord) -> Vec<Self> {
        let has_one = record.breaker.is_some() || record.settings.breaker.is_some();
        let own = has_one.then(|| Self::build(record, None, record.breaker.map(Into::into)));
        let keys = survey.keys.iter().filter(|key| key.queue == record.name);
        let keys =
            keys.filter_map(|key| Some(Self::build(record, Some(&key.key), Some(key.breaker?.into()))));
        own.into_iter().chain(keys).collect()
    }

    /// Builds the view of the breaker of a queue, or of one of its keys. A breaker without stored state is closed.
    #[must_use]
    pub fn new(survey: &Survey, record: &QueueRecord, key: Option<&str>) -> Self {
        let stored = match key {
            None => record.breaker,
            Some(key) => {
                let found = survey.keys.iter().find(|known| known.queue == record.name && known.key == key);
                found.and_then(|found| found.breaker)
            }
        };
        Self::build(record, key, Some(stored.unwrap_or(BreakerState::Closed).into()))
    }

    fn build(record: &QueueRecord, key: Option<&str>, state: Option<BreakerStateView>) -> Self {
        Self {
            queue: Some(record.name.clone()),
            key: key.map(str::to_owned),
            state: state.map(|state| state.state),
            until: state.and_then(|state| state.until),
            breaker: BreakerRule::of(record),
            call: None,
        }
    }
}

/// A throttled limit key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyView {
    pub key: String,
    /// `rate_limited` or `breaker_open`.
    #[serde(deserialize_with = "word::read")]
    pub waits_for: Word,
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
    /// Nothing starts before this time, because a service answered "too many requests".
    pub held_until: Option<TimeView>,
    pub breaker_state: Option<BreakerStateView>,
}

impl From<&KeyRecord> for KeyView {
    fn from(record: &KeyRecord) -> Self {
        let held = ThrottleView::new(&record.queue, Some(&record.key), record.shut);
        Self {
            key: record.key.clone(),
            waits_for: held.waits_for,
            until: held.until,
            held_until: record.held_until.map(Into::into),
            breaker_state: record.breaker.map(Into::into),
        }
    }
}

/// A throttled queue or limit key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThrottleView {
    pub queue: String,
    /// The limit key; `null` if the whole queue is throttled.
    pub key: Option<String>,
    /// `rate_limited`, `usage_limit`, `breaker_open`, `concurrency`, `budget` or `paused`.
    #[serde(deserialize_with = "word::read")]
    pub waits_for: Word,
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
}

impl ThrottleView {
    /// Builds the views of all throttled queues and limit keys, or of those of one queue, including pauses.
    #[must_use]
    pub fn all(survey: &Survey, only: Option<&str>) -> Vec<Self> {
        let wanted = |queue: &str| only.is_none_or(|only| only == queue);
        // The limits of a pool close the queues of its jobs too, also of those that are over.
        let is_over = |record: &QueueRecord| {
            let mut lanes = survey.lanes.iter().filter(|lane| lane.queue == record.name);
            record.settings.pool.is_some() && lanes.all(|lane| lane.counts.queued == 0)
        };
        let wanted_queues = survey.queues.iter().filter(|record| wanted(&record.name) && !is_over(record));
        let queues = wanted_queues.flat_map(|record| {
            let paused = record.settings.paused.is_some().then(|| Self::paused(&record.name));
            paused.into_iter().chain(record.shut.map(|shut| Self::new(&record.name, None, shut)))
        });
        let keys = survey.keys.iter().filter(|key| wanted(&key.queue));
        queues.chain(keys.map(|key| Self::new(&key.queue, Some(&key.key), key.shut))).collect()
    }

    /// Builds the view of what throttles a task that would otherwise run.
    #[must_use]
    pub fn of_task(survey: &Survey, task: &Task) -> Option<Self> {
        match task.state {
            State::Queued { .. } => {}
            State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return None,
        }
        let all = Self::all(survey, Some(&task.queue));
        // The key's throttle is more specific than the queue's.
        let of_key = all.iter().find(|held| held.key.is_some() && held.key == task.limit_key);
        of_key.or_else(|| all.iter().find(|held| held.key.is_none())).cloned()
    }

    /// Builds the view of a closed gate.
    fn new(queue: &str, key: Option<&str>, shut: Closed) -> Self {
        let until = shut.until.and_then(known);
        Self { queue: queue.to_owned(), key: key.map(str::to_owned), waits_for: shut.why.name(), until }
    }

    fn paused(queue: &str) -> Self {
        Self { queue: queue.to_owned(), key: None, waits_for: PAUSED, until: None }
    }
}

/// The time, unless it is never reached.
fn known(until: Timestamp) -> Option<TimeView> {
    (until < FOR_EVER).then(|| until.into())
}
