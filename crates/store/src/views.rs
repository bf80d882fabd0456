//! Query results of a store: tasks, lists, events and the survey.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ostler_core::{
    Attempt, BreakerState, Budget, Closed, ErrorClass, KeyHold, Overrides, PriorityOrder, Rate, SessionId,
    Spending, StateName, Step, Task, TaskId, Timestamp, Worker,
};

use crate::calls::QueueChange;
use crate::error::Error;
use crate::gates::{BreakerSetting, KeyRecord, SetBy};
use crate::node_commands::Reply;
use crate::outbox::Subscribers;
use crate::paths::PayloadPath;

/// A task with everything that belongs to it, except its events.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDetail {
    pub task: Task,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Its steps, in the order they were saved.
    pub steps: Vec<Step>,
    /// Its unfinished dependencies, the oldest first.
    pub after: Vec<TaskId>,
    /// The conversations that its attempts reported, in order, whether or not their starts were recorded.
    pub talks: Vec<TalkSession>,
    /// The token of its last lease before it began from scratch; 0: it never did. What was said until then is history.
    pub scratch_token: u64,
}

impl TaskDetail {
    /// The last conversation that an attempt before the lease with this token reported: the one to resume. None if the task began
    /// from scratch since.
    #[must_use]
    pub fn session_before(&self, token: u64) -> Option<&str> {
        let earlier =
            self.talks.iter().rev().find(|talk| talk.token > self.scratch_token && talk.token < token);
        earlier.map(|talk| talk.session.as_str())
    }
}

/// A conversation that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TalkSession {
    /// The token of the lease under which it was reported.
    pub token: u64,
    /// Its id.
    pub session: String,
}

/// Identifies one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskRef {
    Id(TaskId),
    /// By its unique key.
    Key {
        queue: String,
        key: String,
    },
}

/// Which tasks to list. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// In this state.
    pub state: Option<StateName>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// With this text in the payload, the unique key or the last failure's message; case-insensitive.
    pub text: Option<String>,
    /// With this value in the payload.
    pub field: Option<Field>,
    /// Whose last failure is of this class.
    pub class: Option<ErrorClass>,
    /// Whose last failure is at this time or later.
    pub failed_since: Option<Timestamp>,
    /// Whose last failure is before this time.
    pub failed_until: Option<Timestamp>,
    /// That ended at this time or later.
    pub ended_since: Option<Timestamp>,
    /// That ended before this time.
    pub ended_until: Option<Timestamp>,
    /// With this kind of lease.
    pub lease: LeaseFilter,
    pub order: ListOrder,
}

/// The order of a list: by the time of their end if the state is one that tasks end in, otherwise by arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// A value that the payload must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The field names from the outside in.
    pub path: Vec<String>,
    /// The expected value.
    pub value: serde_json::Value,
}

/// Which leases to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseFilter {
    /// With or without a lease.
    #[default]
    Any,
    /// Only tasks whose node is dead or overdue.
    Stale,
}

impl Field {
    /// Parses `payload.a.b=VALUE`. The value is JSON if it parses as JSON, and a string otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), with an example.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::invalid(format!(
                "\"{text}\" is not a filter: it looks like payload.tenant=acme or payload.size=3"
            ))
        };
        let (path, value) = text.split_once('=').ok_or_else(wrong)?;
        let path: Vec<String> =
            path.strip_prefix("payload.").ok_or_else(wrong)?.split('.').map(String::from).collect();
        if path.iter().any(String::is_empty) {
            return Err(wrong());
        }
        let value =
            serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
        Ok(Self { path, value })
    }

    fn matches(&self, payload: &str) -> bool {
        let Ok(payload) = serde_json::from_str::<serde_json::Value>(payload) else { return false };
        let found = self.path.iter().try_fold(&payload, |value, name| match value {
            serde_json::Value::Array(items) => name.parse::<usize>().ok().and_then(|at| items.get(at)),
            serde_json::Value::Object(fields) => fields.get(name),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => None,
        });
        found == Some(&self.value)
    }
}

impl Filter {
    /// Matches every task; the newest come first.
    pub const ALL: Self = Self {
        state: None,
        queue: None,
        kind: None,
        text: None,
        field: None,
        class: None,
        failed_since: None,
        failed_until: None,
        ended_since: None,
        ended_until: None,
        lease: LeaseFilter::Any,
        order: ListOrder::NewestFirst,
    };

    /// Whether the task's own record matches; `lease` is not checked.
    #[must_use]
    pub fn matches(&self, task: &Task) -> bool {
        let equal = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        self.state.is_none_or(|state| state == task.state.name())
            && equal(&self.queue, &task.queue)
            && equal(&self.kind, &task.kind)
            && self.text.as_deref().is_none_or(|text| mentions(task, text))
            && self.field.as_ref().is_none_or(|field| field.matches(&task.payload))
            && self.matches_failure(task)
            && self.ended_since.is_none_or(|since| task.state.finished_at().is_some_and(|at| at >= since))
            && self.ended_until.is_none_or(|until| task.state.finished_at().is_some_and(|at| at < until))
    }

    /// Whether the list is ordered by the time of the end.
    #[must_use]
    pub fn is_by_end(&self) -> bool {
        self.state.is_some_and(StateName::is_terminal)
    }

    /// Refuses a cursor of a list in another order.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_cursor(&self, after: Option<Cursor>) -> Result<(), Error> {
        match after {
            Some(cursor) if cursor.ended_at.is_some() != self.is_by_end() => Err(Error::invalid(
                "this cursor is of a list with another state; repeat the filters of that list",
            )),
            _ => Ok(()),
        }
    }
}

impl Filter {
    /// A task that never failed has no class and no failure time, so a condition on either excludes it.
    fn matches_failure(&self, task: &Task) -> bool {
        let class = task.last_failure.as_ref().map(|failure| failure.class);
        self.class.is_none_or(|wanted| class == Some(wanted))
            && self.failed_since.is_none_or(|since| task.last_failure_at.is_some_and(|at| at >= since))
            && self.failed_until.is_none_or(|until| task.last_failure_at.is_some_and(|at| at < until))
    }
}

fn mentions(task: &Task, text: &str) -> bool {
    let wanted = text.to_lowercase();
    let has = |place: &str| place.to_lowercase().contains(&wanted);
    has(&task.payload)
        || task.unique_key.as_deref().is_some_and(has)
        || task.last_failure.as_ref().is_some_and(|failure| has(&failure.message))
}

/// Where a list continues: after this task. It stays valid while tasks are added and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the task ended, in a list by the time of the end.
    pub ended_at: Option<Timestamp>,
    /// The row of the task.
    pub row: i64,
}

impl Cursor {
    /// The position of a task in the list of a filter.
    #[must_use]
    pub fn of(filter: &Filter, task: &Task, row: i64) -> Self {
        Self { ended_at: task.state.finished_at().filter(|_| filter.is_by_end()), row }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended_at {
            Some(at) => write!(f, "{}-{}", at.millis(), self.row),
            None => write!(f, "{}", self.row),
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid(format!("\"{text}\" is not a cursor of a list"));
        let number = |text: &str| text.parse().ok().filter(|number: &i64| *number >= 0).ok_or_else(wrong);
        let (ended_at, row) = match text.split_once('-') {
            Some((at, row)) => (Some(Timestamp::from_millis(number(at)?)), number(row)?),
            None => (None, number(text)?),
        };
        Ok(Self { ended_at, row })
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The tasks. May be fewer than requested although more follow: a call scans a bounded number of rows.
    pub tasks: Vec<Task>,
    /// Where to continue; `None`: that was all.
    pub next: Option<Cursor>,
}

/// Tasks that were found by a part of their id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundIds {
    /// The highest first.
    pub ids: Vec<TaskId>,
    pub scan: IdScan,
}

/// How far a search for ids went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdScan {
    /// There are no others.
    Whole,
    /// There may be others: it ended at the limit, or at the [`MAX_ID_SCAN`](crate::MAX_ID_SCAN) highest ids.
    Cut,
}

/// The state of the system as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Lanes with their counts, ordered by name.
    pub lanes: Vec<LaneRecord>,
    /// Queues with their settings, ordered by name.
    pub queues: Vec<QueueRecord>,
    /// Limit keys whose tasks are throttled, by queue, the earliest to open first; at most
    /// [`MAX_KEYS_SHOWN`](crate::gates::MAX_KEYS_SHOWN).
    pub keys: Vec<KeyRecord>,
    /// Nodes whose session has not ended, in the order they joined.
    pub nodes: Vec<NodeRecord>,
    pub workers: Vec<WorkerRecord>,
}

/// The tasks of a lane by state. Tasks in terminal states are counted over the whole life of the store, including pruned
/// ones; so `submitted` is always the sum of the six.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting, for whatever reason.
    pub queued: u64,
    /// Claimed.
    pub claimed: u64,
    /// Running.
    pub running: u64,
    /// Completed, ever.
    pub completed: u64,
    /// Failed, ever, and not replayed.
    pub failed: u64,
    /// Cancelled, ever, and not replayed.
    pub cancelled: u64,
}

impl Counts {
    /// The count of one state.
    pub const fn of(&mut self, state: StateName) -> &mut u64 {
        match state {
            StateName::Queued => &mut self.queued,
            StateName::Claimed => &mut self.claimed,
            StateName::Running => &mut self.running,
            StateName::Completed => &mut self.completed,
            StateName::Failed => &mut self.failed,
            StateName::Cancelled => &mut self.cancelled,
        }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            claimed: self.claimed + other.claimed,
            running: self.running + other.running,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
        }
    }

    /// The tasks in terminal states.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.completed + self.failed + self.cancelled
    }

    /// The tasks that have not ended.
    #[must_use]
    pub const fn open(&self) -> u64 {
        self.queued + self.claimed + self.running
    }

    /// The sum: all tasks that were ever enqueued.
    #[must_use]
    pub const fn submitted(&self) -> u64 {
        self.open() + self.ended()
    }
}

/// Totals of a lane over the whole life of the store, in addition to [`Counts`]. These numbers only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTotals {
    /// Attempts that started.
    pub attempts: u64,
    /// Failed attempts after which the task was queued again.
    pub retried: u64,
    /// Replays of failed tasks.
    pub replayed_failed: u64,
    /// Replays of cancelled tasks.
    pub replayed_cancelled: u64,
}

impl LaneTotals {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            attempts: self.attempts + other.attempts,
            retried: self.retried + other.retried,
            replayed_failed: self.replayed_failed + other.replayed_failed,
            replayed_cancelled: self.replayed_cancelled + other.replayed_cancelled,
        }
    }

    /// Counts the replay of a task that was in this terminal state.
    pub const fn replay(&mut self, ended: StateName) {
        match ended {
            StateName::Failed => self.replayed_failed += 1,
            StateName::Cancelled => self.replayed_cancelled += 1,
            StateName::Queued | StateName::Claimed | StateName::Running | StateName::Completed => {}
        }
    }
}

/// A lane: a queue and a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneRecord {
    pub queue: String,
    pub kind: String,
    pub counts: Counts,
    pub tally: LaneTotals,
    /// Durations of the last runs in milliseconds, the oldest first; at most a hundred.
    pub recent_ms: Vec<u32>,
}

/// The settings of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Why it is paused; `None`: it is not.
    pub paused: Option<String>,
    /// The maximum number of waiting tasks.
    pub limit: Option<u64>,
    /// The maximum number of leased tasks, over all nodes.
    pub concurrency: Option<u32>,
    /// The maximum number of leased tasks per limit key, over all nodes.
    pub key_concurrency: Option<u32>,
    /// The path in payloads to the limit key.
    pub key_path: Option<PayloadPath>,
    /// The path in payloads to the cost.
    pub cost_path: Option<PayloadPath>,
    /// How long its tasks hold their unique keys, unless they say otherwise.
    pub key_hold: KeyHold,
    /// How priorities order its tasks.
    pub priority: PriorityOrder,
    /// The policy values of its tasks.
    pub overrides: Overrides,
    /// The policy values of the tasks of a kind, which override the queue's.
    pub kinds: BTreeMap<String, Overrides>,
    /// Which outcomes get outbox entries, and for which subscribers.
    pub subscribers: Subscribers,
    /// Rate limits over all nodes.
    pub rate: Vec<Rate>,
    /// Rate limits per limit key, over all nodes.
    pub key_rate: Vec<Rate>,
    /// When its breaker, or that of each limit key, opens.
    pub breaker: Option<BreakerSetting>,
    /// The account whose limits its tasks share with those of other queues.
    pub account: Option<String>,
    /// What its tasks may spend.
    pub budget: Option<Budget>,
    /// The pool that serves it, if it is not its own.
    pub pool: Option<String>,
    /// Who last set its limits.
    pub set_by: SetBy,
}

impl QueueSettings {
    /// Applies one change.
    pub fn apply(&mut self, change: QueueChange) {
        match change {
            QueueChange::Pause(reason) => self.paused = Some(reason),
            QueueChange::Resume => self.paused = None,
            QueueChange::Limit(limit) => self.limit = limit,
            QueueChange::Concurrency(cap) => self.concurrency = cap,
            QueueChange::KeyConcurrency(cap) => self.key_concurrency = cap,
            QueueChange::KeyPath(path) => self.key_path = path,
            QueueChange::CostPath(path) => self.cost_path = path,
            QueueChange::KeyHold(hold) => self.key_hold = hold,
            QueueChange::Priority(order) => self.priority = order,
            QueueChange::Overrides(overrides) => self.overrides = overrides,
            QueueChange::KindOverrides(kind, overrides) if overrides.is_none() => {
                self.kinds.remove(&kind);
            }
            QueueChange::KindOverrides(kind, overrides) => {
                self.kinds.insert(kind, overrides);
            }
            QueueChange::Subscribe(subscription) => self.subscribers.set(subscription),
            QueueChange::AlsoSubscribe(subscription) => self.subscribers.add(subscription),
            QueueChange::Unsubscribe(name) => self.subscribers.remove(&name),
            QueueChange::Rate(rates) => self.rate = rates,
            QueueChange::KeyRate(rates) => self.key_rate = rates,
            QueueChange::Breaker(breaker) => self.breaker = breaker,
            QueueChange::Account(account) => self.account = account,
            QueueChange::Budget(budget) => self.budget = budget,
            QueueChange::ServedBy(pool) => self.pool = pool,
            QueueChange::SetBy(by) => self.set_by = by,
            // These change the state of gates, not the settings.
            QueueChange::OpenBreaker(_)
            | QueueChange::ResetBreaker
            | QueueChange::OpenKeyBreaker { .. }
            | QueueChange::ResetKeyBreaker(_)
            | QueueChange::EndHold
            | QueueChange::EndKeyHold(_) => {}
        }
    }

    /// The policy values of this kind, completed by those of the queue. The task's own override them.
    #[must_use]
    pub fn of_kind(&self, kind: &str) -> Overrides {
        self.kinds.get(kind).map_or(self.overrides, |own| own.or(&self.overrides))
    }
}

/// A queue, as a survey shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    pub name: String,
    /// The most of its tasks that ever waited at once, of any kinds.
    pub high_water: u64,
    pub settings: QueueSettings,
    /// An attempt reported "too many requests": nothing starts before this time, which lies in the future.
    pub held_until: Option<Timestamp>,
    /// The state of its breaker; `None`: it has none, or each of its keys has one.
    pub breaker: Option<BreakerState>,
    /// Why nothing may start now, and until when; `None`: tasks may start, as far as the queue as a whole is concerned. A pause
    /// is not reported here.
    pub shut: Option<Closed>,
    /// What its tasks have spent, if it has a budget.
    pub spending: Option<Spending>,
}

/// A node, as a survey shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    pub session: SessionId,
    /// For display.
    pub name: String,
    /// The host name of its machine, for display; `None`: a version that does not say it.
    pub host: Option<String>,
    /// The process id, for display.
    pub pid: u32,
    pub version: String,
    /// How long its leases hold without a renewal.
    pub ttl: Duration,
    pub settings: String,
    pub joined_at: Timestamp,
    /// Whether it is known to be alive.
    pub liveness: Liveness,
    /// Its replies to node commands, the oldest first.
    pub replies: Vec<Reply>,
}

/// Whether a node is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It has renewed in time.
    Alive,
    /// It is dead or overdue; its tasks are about to be taken from it.
    Overdue,
}

/// A worker and the node that reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    pub session: SessionId,
    pub worker: Worker,
    /// Attempts that it has durably begun, and that have not ended.
    pub tasks: u64,
    /// When it was reported.
    pub last_seen: Timestamp,
}

/// The last record of a worker that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneWorker {
    pub session: SessionId,
    /// The name of its node.
    pub node: String,
    /// As it was last reported. It runs no task.
    pub worker: Worker,
    pub end: WorkerEnd,
    pub gone_at: Timestamp,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// Its node closed it, or found it dead.
    Closed,
    /// Its node died, or stopped without a word.
    NodeDied,
}

impl WorkerEnd {
    /// Every way; a store persists the index in this list.
    pub const ALL: [Self; 2] = [Self::Closed, Self::NodeDied];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::NodeDied => "node_died",
        }
    }
}
