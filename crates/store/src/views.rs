//! Query results of a store: tasks, lists, events and the survey.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::{
    Attempt, BreakerState, Budget, Closed, KeyHold, Overrides, PriorityOrder, Rate, SessionId, Spending,
    StateName, Step, Task, TaskId, Timestamp, Worker,
};

use crate::calls::QueueChange;
pub use crate::filter::{Cursor, Field, Filter, ItemFilter, LeaseFilter, ListOrder};
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
