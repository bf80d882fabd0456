//! Requests and answers of the store's verbs, in the order of a task's life.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    AccountReading, Budget, Charging, KeyHold, OnFailed, Outcome, Overrides, Policy, Priority, PriorityOrder,
    Rate, SessionId, StateName, Task, TaskId, Timestamp, Traceparent, WorkerId,
};

use crate::error::Error;
use crate::gates::{BreakerSetting, SetBy};
use crate::lease::{Lease, LeaseRef};
use crate::node_commands::NumberedCommand;
use crate::outbox::Subscription;
use crate::paths::PayloadPath;
use crate::unique::Unique;

// ---- sessions -----------------------------------------------------------------------------------------

/// A node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// New at every start of a node.
    pub id: SessionId,
    /// The node's name, for display.
    pub name: String,
    /// The host name of its machine, for display.
    pub host: String,
    /// The process id, for display.
    pub pid: u32,
    pub version: String,
    /// How long its leases hold without a renewal.
    pub ttl: Duration,
    /// The node's settings, in a form that can be compared with another node's.
    pub settings: String,
}

/// Whether the node's leases still hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// They hold for another TTL, counted from when the renewal was sent.
    Held {
        /// Leased tasks with a requested cancellation.
        cancelled: Vec<TaskId>,
        /// Tasks that the node named, but does not hold.
        lost: Vec<TaskId>,
        /// Leases of the session that the node did not name, those of the oldest tasks first, at most
        /// [`MAX_UNNAMED`](crate::MAX_UNNAMED). The claim that took such a lease, or the report that ends it, may still be in flight. A
        /// lease that stays unnamed without either belongs to a claim or a report whose answer the node never got. The node hands it back.
        unnamed: Vec<LeaseRef>,
        /// All commands to the session that are kept, the oldest first.
        commands: Vec<NumberedCommand>,
    },
    /// The session has ended, for good. All its leases are lost.
    Ended,
}

/// Whether a write on behalf of a session or an attempt was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// Durable.
    Recorded,
    /// The session has ended, or the lease is lost. Nothing was written.
    Lost,
}

// ---- enqueue ------------------------------------------------------------------------------------------

/// A task to enqueue. The caller makes the id, so that a call whose answer was lost can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// The id, made by the caller.
    pub id: TaskId,
    /// The queue it belongs to.
    pub queue: String,
    /// The kind of work.
    pub kind: String,
    /// The input: JSON text.
    pub payload: String,
    /// The priority: a head start in the queue.
    pub priority: Priority,
    /// Not due before this time; `None`: at once.
    pub run_at: Option<Timestamp>,
    /// A key that no other task of the queue has at the same time.
    pub unique: Option<Unique>,
    /// Tasks with the same limit key share limits and take turns with other keys; `None`: the value at the queue's key path, if set.
    pub limit_key: Option<String>,
    /// Dependencies: it waits until all of these have completed.
    pub after: Vec<TaskId>,
    /// What happens when a dependency does not complete.
    pub on_failed: OnFailed,
    /// The policy values set on the task itself.
    pub overrides: Overrides,
    /// After this time the task is too late to be useful.
    pub not_after: Option<Timestamp>,
    /// No attempt starts after this time: the limit for all attempts together. A task that is still queued then fails.
    pub deadline: Option<Timestamp>,
    /// The working directory.
    pub folder: Option<String>,
    /// The trace that it belongs to, for the programs that run it.
    pub traceparent: Option<Traceparent>,
    /// The tokens it takes from the rate limits of its queue and its key, such as the LLM tokens it will use; `None`: the value at the
    /// queue's cost path, or one.
    pub cost: Option<u32>,
}

impl NewTask {
    /// A task with only the required fields.
    #[must_use]
    pub fn new(
        id: TaskId,
        queue: impl Into<String>,
        kind: impl Into<String>,
        payload: impl Into<String>,
    ) -> Self {
        Self {
            id,
            queue: queue.into(),
            kind: kind.into(),
            payload: payload.into(),
            priority: Priority::NORMAL,
            run_at: None,
            unique: None,
            limit_key: None,
            after: Vec::new(),
            on_failed: OnFailed::default(),
            overrides: Overrides::NONE,
            not_after: None,
            deadline: None,
            folder: None,
            traceparent: None,
            cost: None,
        }
    }

    /// Whether a task with the same id is the same work: the same kind and payload in the same queue. Enqueueing it again is
    /// then a repetition, and otherwise a mistake.
    #[must_use]
    pub fn is_repeated_by(&self, task: &Task) -> bool {
        self.id == task.id
            && (&self.queue, &self.kind, &self.payload) == (&task.queue, &task.kind, &task.payload)
    }
}

/// The answer for one enqueued task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    Created(TaskId),
    /// A task with this id or this unique key exists, and is unchanged.
    Existing(TaskId),
    /// This queued task has the unique key. It takes over everything of the new one except its dependencies, and its
    /// attempts are counted from zero.
    Replaced(TaskId),
    /// Another task has the unique key, and [`OnConflict::Reject`](ostler_core::OnConflict::Reject) was set.
    Rejected {
        /// The task that has the key.
        holder: TaskId,
    },
    /// There is no dependency with this id: it never existed, or was pruned.
    NoSuchTask(TaskId),
    /// The queue has reached its limit.
    QueueFull {
        /// The limit of waiting tasks.
        limit: u64,
    },
}

// ---- claim, start, finish -----------------------------------------------------------------------------

/// The kinds of a queue that a claim asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kinds {
    Any,
    /// These. Kinds that no handler serves are never claimed.
    Only(Vec<String>),
}

impl Kinds {
    #[must_use]
    pub fn has(&self, kind: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(kinds) => kinds.iter().any(|known| known == kind),
        }
    }
}

/// A node's request for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub session: SessionId,
    pub queue: String,
    /// The kinds that the node serves.
    pub kinds: Kinds,
    /// The maximum number of tasks.
    pub limit: usize,
}

/// The answer to a claim.
#[derive(Debug, PartialEq)]
pub enum ClaimAnswer {
    /// The session is live.
    Tasks {
        /// The tasks, lowest rank first; may be empty. There may be fewer than requested although more are
        /// ready: tasks that are too late are ended instead, and tasks that a gate refuses wait.
        tasks: Vec<Claimed>,
        /// When a gate may let more through: a hold ends, tokens are available again, a probe may pass. Now or in the past:
        /// there are more tasks to scan. `None`: a wakeup follows any change.
        next: Option<Timestamp>,
    },
    /// The session has ended: it gets no more tasks.
    SessionEnded,
}

/// A claimed task and its lease.
#[derive(Debug, PartialEq)]
pub struct Claimed {
    pub lease: Lease,
    pub queue: Arc<str>,
    pub kind: Arc<str>,
    /// The input: JSON text.
    pub payload: String,
    /// The number of the attempt that would start now.
    pub attempt: u32,
    /// Failed attempts so far.
    pub failures: u32,
    pub priority: Priority,
    /// Whether it must start durably, with nothing prefetched alongside it.
    pub suspect: bool,
    /// How many nodes have died while running it.
    pub node_deaths: u32,
    /// The resolved policy.
    pub policy: Policy,
    /// The working directory.
    pub folder: Option<String>,
    /// The trace that it belongs to.
    pub traceparent: Option<Traceparent>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// After this time the task is too late to be useful.
    pub not_after: Option<Timestamp>,
    /// No attempt starts after this time.
    pub deadline: Option<Timestamp>,
    /// Whether a budget is charged for it.
    pub charging: Charging,
}

/// The start of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub lease: LeaseRef,
    /// The worker that runs it.
    pub worker: WorkerId,
}

/// An attempt whose start was not written: start and outcome are then one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The worker that ran it.
    pub worker: WorkerId,
    /// How long it took, by the node's own clock.
    pub took: Duration,
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq)]
pub struct Report {
    pub lease: Lease,
    /// Set if the start was not written. Without it, a task that is only claimed never ran.
    pub ran: Option<Ran>,
    pub outcome: Outcome,
    /// The output after a success: JSON text.
    pub output: Option<String>,
    /// How much of its allowance the account of the queue has used, if the attempt knows it.
    pub reading: Option<AccountReading>,
}

impl Report {
    /// Hands a task back unfinished.
    #[must_use]
    pub const fn hand_back(lease: Lease) -> Self {
        Self { lease, ran: None, outcome: Outcome::HandedBack, output: None, reading: None }
    }

    /// Hands tasks back unfinished.
    #[must_use]
    pub fn hand_backs(leases: Vec<Lease>) -> Vec<Self> {
        leases.into_iter().map(Self::hand_back).collect()
    }
}

/// Whether a report was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Durable; this is the task's new state.
    Recorded(StateName),
    /// The lease is lost. Nothing was written.
    LeaseLost,
}

/// Reports that could not be written, returned with the error so that the caller can retry.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unwritten {
    pub error: Error,
    /// All of them: none was written.
    pub reports: Vec<Report>,
}

// ---- maintenance --------------------------------------------------------------------------------------

/// The result of one `expire` batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Sessions that were found dead or overdue, and ended.
    pub sessions: Vec<SessionId>,
    /// Tasks taken from ended sessions.
    pub tasks: usize,
    /// Whether there is more to do.
    pub more: bool,
}

/// The result of one `make_ready` batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeReady {
    /// Tasks that became due, and limit keys whose gates may admit tasks again.
    pub due: usize,
    /// Tasks that were ended because they are too late.
    pub expired: usize,
    /// Dependents of ended tasks that were processed.
    pub freed: usize,
    /// When there is something to do next. In the past: there is more to do.
    pub next: Option<Timestamp>,
}

/// The retention policy of one `prune` call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long completed and cancelled tasks are kept.
    pub completed: Duration,
    /// How long failed tasks are kept.
    pub failed: Duration,
    /// The maximum number kept of each.
    pub most: u64,
    /// How many rows this call may remove.
    pub batch: usize,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { completed: 7 * DAY, failed: 30 * DAY, most: 1_000_000, batch: 500 }
    }
}

/// What to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Everything older, or more, than the retention policy keeps.
    Retention(Retention),
    /// These tasks, if they are in a terminal state.
    Tasks(Vec<TaskId>),
    /// Rows without a task, which only edits by hand leave: a batch of those that are older.
    Orphans { older: Duration, batch: usize },
}

/// The result of one `prune` batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Tasks removed, with their attempts, steps and events.
    pub tasks: usize,
    /// Rows removed that belonged to no task.
    pub orphans: usize,
    /// Whether the batch was used up: there may be more to do.
    pub more: bool,
}

// ---- requests from outside ----------------------------------------------------------------------------

/// The answer to a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// Cancelled.
    Cancelled,
    /// Marked: its worker gets a stop signal, and the task is cancelled when its worker stops or its node dies.
    Requested,
    /// The task was already in this terminal state.
    Ended(StateName),
    /// There is no such task.
    NotFound,
}

/// Options of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// What happens to the saved steps, and to the conversation.
    pub steps: StepsOnReplay,
    /// A new payload; `None`: unchanged.
    pub payload: Option<String>,
}

/// What happens to the saved steps and the conversation of a replayed task. What it has cost counts on in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepsOnReplay {
    /// Keep them: finished steps do not run again, and the next attempt may resume the conversation.
    #[default]
    Keep,
    /// Start from scratch: the steps are deleted, and the next attempt finds no conversation to resume.
    Drop,
}

/// The answer to a replay request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAnswer {
    /// Queued again.
    Requeued,
    /// It was waiting for a time, and is due now.
    Hastened,
    /// Its state does not allow it.
    Refused(StateName),
    /// It held its unique key until its end, and another task holds the key now.
    KeyTaken { holder: TaskId },
    /// There is no such task.
    NotFound,
}

/// The answer to an amendment of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amended {
    /// Applied; it also counts for the outcome of a running attempt.
    Done,
    /// The task was already in this terminal state, and is unchanged.
    Ended(StateName),
    /// There is no such task.
    NotFound,
}

/// A change to the settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueChange {
    /// Pauses the queue with this reason: nothing is claimed until it is resumed.
    Pause(String),
    /// Resumes the queue.
    Resume,
    /// The maximum number of waiting tasks; `None`: no limit.
    Limit(Option<u64>),
    /// The maximum number of leased tasks, over all nodes; `None`: no limit.
    Concurrency(Option<u32>),
    /// The maximum number of leased tasks per limit key, over all nodes; `None`: no limit.
    KeyConcurrency(Option<u32>),
    /// The path in the payload to the limit key of a task enqueued without one; `None`: no path. Existing tasks keep theirs.
    KeyPath(Option<PayloadPath>),
    /// The path in the payload to the cost of a task enqueued without one; `None`: no path. Existing tasks keep theirs.
    CostPath(Option<PayloadPath>),
    /// How long tasks that do not say it themselves hold their unique keys. Existing tasks keep their hold.
    KeyHold(KeyHold),
    /// How priorities order the tasks that are enqueued from now on. Existing tasks keep their places.
    Priority(PriorityOrder),
    /// The policy values of its tasks.
    Overrides(Overrides),
    /// The policy values of its tasks of this kind; when empty, those of the queue apply again.
    KindOverrides(String, Overrides),
    /// Which outcomes this subscriber gets outbox entries for from now on.
    Subscribe(Subscription),
    /// Adds to the outcomes that this subscriber gets outbox entries for from now on.
    AlsoSubscribe(Subscription),
    /// Removes this subscriber, with its entries.
    Unsubscribe(String),
    /// Rate limits over all nodes; all windows apply. Empty: no limit.
    Rate(Vec<Rate>),
    /// Rate limits per limit key over all nodes; all windows apply. Empty: no limit.
    KeyRate(Vec<Rate>),
    /// When its breaker, or that of each limit key, opens; `None`: only manually. A change of scope starts with closed breakers.
    Breaker(Option<BreakerSetting>),
    /// The account whose limits its tasks share with those of other queues; `None`: none.
    Account(Option<String>),
    /// What its tasks may spend; `None`: no budget, and what was spent is forgotten.
    Budget(Option<Budget>),
    /// The pool that serves it, if it is not its own: its tasks are charged to the budget of that pool's queue, too.
    ServedBy(Option<String>),
    /// Who sets the limits that this call changes.
    SetBy(SetBy),
    /// Opens its breaker manually: nothing starts before this time, or before a reset.
    OpenBreaker(Option<Timestamp>),
    /// Closes its breaker and clears its counters.
    ResetBreaker,
    /// Opens the breaker of one limit key manually.
    OpenKeyBreaker {
        key: String,
        /// Until this time, or until a reset.
        until: Option<Timestamp>,
    },
    /// Closes the breaker of one limit key.
    ResetKeyBreaker(String),
    /// Ends the throttling after "too many requests".
    EndHold,
    /// Ends the throttling of one limit key.
    EndKeyHold(String),
}

// ---- events and steps ---------------------------------------------------------------------------------

/// Whether events were accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Durable.
    Recorded {
        /// The number of the last one, counted from one for each task.
        last: u64,
    },
    /// The lease is lost. Nothing was written.
    LeaseLost,
}

/// A step to save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    pub name: String,
    /// JSON text.
    pub value: String,
}

/// Whether a step was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Durable.
    Recorded,
    /// The task has a step of this name, which is unchanged.
    AlreadySaved,
    /// The task has reached the maximum number of steps.
    TooMany,
    /// The lease is lost. Nothing was written.
    LeaseLost,
}
