//! What is said to a store, and what it answers. One verb after the other, in the order of a task's life.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    OnFailed, Outcome, Overrides, Policy, Priority, Rate, SessionId, StateName, Task, TaskId, Timestamp,
    WorkerId,
};

use crate::error::Error;
use crate::gates::{BreakerSetting, SetBy};
use crate::lease::{Lease, LeaseRef};
use crate::node_commands::NumberedCommand;
use crate::outbox::OutboxFilter;
use crate::paths::PayloadPath;
use crate::plans::Unique;

// ---- sessions -----------------------------------------------------------------------------------------

/// A node that comes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// New at every start.
    pub id: SessionId,
    /// What people call the node.
    pub name: String,
    /// Its process, for display.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// How long its leases hold without a renewal.
    pub ttl: Duration,
    /// Its settings in a form that can be compared with another node's.
    pub settings: String,
}

/// Whether the node's leases still hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// They hold for another TTL, counted from when the renewal was sent.
    Held {
        /// Tasks that somebody asked to cancel.
        cancelled: Vec<TaskId>,
        /// Tasks that the node thought it had, and has not.
        lost: Vec<TaskId>,
        /// Leases of the session that the node did not name, those of the oldest tasks first, at most
        /// [`MAX_UNNAMED`](crate::MAX_UNNAMED). The claim that took one, or the report that ends it, may be under way; what stays unnamed
        /// without either was taken by a claim, or ended by a report, whose answer the node never got. The node hands it back.
        unnamed: Vec<LeaseRef>,
        /// All orders to the session that are kept, the oldest first.
        commands: Vec<NumberedCommand>,
    },
    /// The session is over, and never comes back. Every lease of it is lost.
    Ended,
}

/// Whether a write that speaks for a session or an attempt was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// It is on disk.
    Recorded,
    /// Somebody else speaks for it now. Nothing was written.
    Lost,
}

// ---- enqueue ------------------------------------------------------------------------------------------

/// A task to be enqueued. The caller makes the id, so that a call whose answer was lost can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its name.
    pub id: TaskId,
    /// The queue it goes to.
    pub queue: String,
    /// What sort of work it is.
    pub kind: String,
    /// What to work on: JSON text.
    pub payload: String,
    /// Its head start.
    pub priority: Priority,
    /// Not before this moment; `None`: at once.
    pub run_at: Option<Timestamp>,
    /// A key that no other task of the queue has at the same time.
    pub unique: Option<Unique>,
    /// Shares limits, and takes turns, with others of the same key; `None`: what its queue finds in the payload.
    pub limit_key: Option<String>,
    /// It waits until all of these have ended well.
    pub after: Vec<TaskId>,
    /// What happens when one of them does not.
    pub on_failed: OnFailed,
    /// What is said about its policy.
    pub overrides: Overrides,
    /// Too late to be useful after this.
    pub not_after: Option<Timestamp>,
    /// No attempt begins after this: the time for all of them together. A task that waits then has failed.
    pub deadline: Option<Timestamp>,
    /// The folder it works in.
    pub folder: Option<String>,
    /// What it takes from the rates of its queue and its key, such as the tokens that it will use; `None`: what its queue finds
    /// in the payload, else one.
    pub cost: Option<u32>,
}

impl NewTask {
    /// A task with nothing but what every task has.
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
            cost: None,
        }
    }

    /// Whether a task that has its id is the same work: the same kind, with the same payload, in the same queue. Enqueueing it again is
    /// then a repetition, and else a mistake.
    #[must_use]
    pub fn is_repeated_by(&self, task: &Task) -> bool {
        self.id == task.id
            && (&self.queue, &self.kind, &self.payload) == (&task.queue, &task.kind, &task.payload)
    }
}

/// What became of a task that was to be enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It is there now.
    Created(TaskId),
    /// A task with this id or this unique key was there already, and stays as it is.
    Existing(TaskId),
    /// This task waited and has the unique key. It takes over what the new one brings, but for what it waits for, and its
    /// attempts are counted anew.
    Replaced(TaskId),
    /// Another task has the unique key, and this one was not to be taken in then.
    Rejected {
        /// Which one.
        holder: TaskId,
    },
    /// There is no task of this id to wait for: it never was, or it was pruned.
    NoSuchTask(TaskId),
    /// The queue has as many tasks as it may have.
    QueueFull {
        /// How many that is.
        limit: u64,
    },
}

// ---- claim, start, finish -----------------------------------------------------------------------------

/// Which kinds of a queue are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All there are.
    Any,
    /// These. What no handler serves is never claimed.
    Only(Vec<String>),
}

impl Kinds {
    /// Whether this one is among them.
    #[must_use]
    pub fn has(&self, kind: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(kinds) => kinds.iter().any(|known| known == kind),
        }
    }
}

/// A node asks for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who asks.
    pub session: SessionId,
    /// The queue to take from.
    pub queue: String,
    /// The kinds that it serves.
    pub kinds: Kinds,
    /// At most this many.
    pub limit: usize,
}

/// The answer to a claim.
#[derive(Debug, PartialEq)]
pub enum ClaimAnswer {
    /// What there is.
    Tasks {
        /// The tasks, lowest rank first; none when there are none. There may be fewer than asked for although more are
        /// ready: those that turn out to be too late are ended instead, and those that a gate refuses wait.
        tasks: Vec<Claimed>,
        /// When a gate may let more through: a hold is over, there are tokens again, a probe may go. In the past, or now:
        /// there is more to look at. `None`: whatever comes rings.
        next: Option<Timestamp>,
    },
    /// The session is over: it gets nothing any more.
    SessionEnded,
}

/// A task and the right to run it.
#[derive(Debug, PartialEq)]
pub struct Claimed {
    /// The right.
    pub lease: Lease,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// What to work on: JSON text.
    pub payload: String,
    /// The number of the attempt that would begin now.
    pub attempt: u32,
    /// Its head start.
    pub priority: Priority,
    /// Whether it must start durably, with nothing prefetched beside it.
    pub suspect: bool,
    /// How many nodes have died while they ran it.
    pub node_deaths: u32,
    /// The rules that hold for it.
    pub policy: Policy,
    /// The folder it works in.
    pub folder: Option<String>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Too late to be useful after this.
    pub not_after: Option<Timestamp>,
    /// No attempt begins after this.
    pub deadline: Option<Timestamp>,
}

/// An attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// By what right.
    pub lease: LeaseRef,
    /// Who runs it.
    pub worker: WorkerId,
}

/// Says that an attempt ran whose start was not written: both are one write then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Who ran it.
    pub worker: WorkerId,
    /// How long it took, by the node's own clock.
    pub took: Duration,
}

/// An attempt has ended.
#[derive(Debug, PartialEq)]
pub struct Report {
    /// By what right this is said.
    pub lease: Lease,
    /// The run, if its start was not written. Without it, a task that is only claimed never ran.
    pub ran: Option<Ran>,
    /// How it ended.
    pub outcome: Outcome,
    /// What came out, after a success: JSON text.
    pub output: Option<String>,
}

impl Report {
    /// Gives a task back unfinished.
    #[must_use]
    pub const fn hand_back(lease: Lease) -> Self {
        Self { lease, ran: None, outcome: Outcome::HandedBack, output: None }
    }
}

/// Whether a report was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It is on disk, and this is where the task stands now.
    Recorded(StateName),
    /// Somebody else speaks for the task now. Nothing was written.
    LeaseLost,
}

/// Reports that could not be written, given back with the reason, to be offered again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unwritten {
    /// Why.
    pub error: Error,
    /// All of them: none was written.
    pub reports: Vec<Report>,
}

// ---- maintenance --------------------------------------------------------------------------------------

/// What one batch of expiring did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Sessions that were found dead and ended.
    pub sessions: Vec<SessionId>,
    /// Tasks that were taken from dead sessions.
    pub tasks: usize,
    /// Whether there is more to do.
    pub more: bool,
}

/// What one batch of making ready did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeReady {
    /// Tasks whose time has come, and limit keys whose gates may let tasks in again.
    pub due: usize,
    /// Tasks that were ended because it was too late for them.
    pub expired: usize,
    /// Tasks that waited for ended ones, and were seen to.
    pub freed: usize,
    /// When there is something to do next. In the past: there is more to do.
    pub next: Option<Timestamp>,
}

/// What to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long completed and cancelled tasks are kept.
    pub completed: Duration,
    /// How long failed tasks are kept.
    pub failed: Duration,
    /// How many of each are kept at most.
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

/// What is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// What is older, or more, than is to be kept.
    Retention(Retention),
    /// These, if they have ended.
    Tasks(Vec<TaskId>),
}

/// What one batch of pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Tasks that are gone, with their attempts, steps and events.
    pub tasks: usize,
    /// Whether the batch was used up: there may be more to do.
    pub more: bool,
}

// ---- requests from outside ----------------------------------------------------------------------------

/// What became of a request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It is cancelled.
    Cancelled,
    /// It is marked: its worker will be told, and it ends when the worker or its node does.
    Requested,
    /// It had ended before.
    Ended(StateName),
    /// There is no such task.
    NotFound,
}

/// How to replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// What becomes of the saved steps.
    pub steps: StepsOnReplay,
    /// Another payload.
    pub payload: Option<String>,
}

/// What becomes of the saved steps of a replayed task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepsOnReplay {
    /// They stay: finished steps are not repeated.
    #[default]
    Keep,
    /// They go: from scratch.
    Drop,
}

/// What became of a request to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAnswer {
    /// It is queued again.
    Requeued,
    /// It waited for a moment, and does not any more.
    Hastened,
    /// Its state does not allow it.
    Refused(StateName),
    /// There is no such task.
    NotFound,
}

/// A change to the settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueChange {
    /// Nothing of it is claimed until it is resumed.
    Pause(String),
    /// It is served again.
    Resume,
    /// At most this many tasks wait in it; `None`: any number.
    Limit(Option<u64>),
    /// At most this many tasks of it run at once, over all nodes; `None`: any number.
    Concurrency(Option<u32>),
    /// At most this many tasks of one limit key run at once, over all nodes; `None`: any number.
    KeyConcurrency(Option<u32>),
    /// Where the payload has the limit key of a task that comes without one; `None`: nowhere. Tasks that are there keep theirs.
    KeyPath(Option<PayloadPath>),
    /// Where the payload has the cost of a task that comes without one; `None`: nowhere. Tasks that are there keep theirs.
    CostPath(Option<PayloadPath>),
    /// What is said about the policy of its tasks.
    Overrides(Overrides),
    /// What is said about the policy of its tasks of this kind; with nothing said, the queue's holds again.
    KindOverrides(String, Overrides),
    /// Which ends of its attempts are kept to be told, from now on.
    Outbox(OutboxFilter),
    /// These ends are kept to be told too, from now on, beside those that are told already.
    AlsoOutbox(OutboxFilter),
    /// So much of it begins in a time, over all nodes; all windows hold. None: any amount.
    Rate(Vec<Rate>),
    /// So much of each limit key begins in a time, over all nodes; all windows hold. None: any amount.
    KeyRate(Vec<Rate>),
    /// When its breaker, or that of each limit key, opens; `None`: only by hand. Another scope begins with closed ones.
    Breaker(Option<BreakerSetting>),
    /// Who sets the limits that this call changes.
    SetBy(SetBy),
    /// Opens its breaker by hand: nothing of it begins before this moment, or before a reset.
    OpenBreaker(Option<Timestamp>),
    /// Closes its breaker, and forgets what it has counted.
    ResetBreaker,
    /// Opens the breaker of one limit key by hand.
    OpenKeyBreaker {
        /// The key.
        key: String,
        /// Until this moment, or until a reset.
        until: Option<Timestamp>,
    },
    /// Closes the breaker of one limit key.
    ResetKeyBreaker(String),
    /// Ends a hold: whoever said "too many requests" may be asked again.
    EndHold,
    /// Ends the hold of one limit key.
    EndKeyHold(String),
}

// ---- events and steps ---------------------------------------------------------------------------------

/// What sort of fact an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A line, or a chunk of lines, that the work wrote.
    Log,
    /// Something said to or by an LLM.
    Message,
    /// A tool that an agent used.
    ToolCall,
    /// How far it is.
    Progress,
    /// A step that failed without failing the task, and other warnings.
    Warning,
    /// A file that an attempt left: JSON with its `path` in the task's folder, `size` and `sha256`.
    File,
    /// A piece of what a command that did not succeed wrote to its standard output: JSON, a string or the list of its bytes.
    /// The pieces of an attempt stand one after the other.
    Stdout,
}

impl EventKind {
    /// Every sort; a store keeps the place in this list.
    pub const ALL: [Self; 7] =
        [Self::Log, Self::Message, Self::ToolCall, Self::Progress, Self::Warning, Self::File, Self::Stdout];

    /// Its place in the list.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Log => 0,
            Self::Message => 1,
            Self::ToolCall => 2,
            Self::Progress => 3,
            Self::Warning => 4,
            Self::File => 5,
            Self::Stdout => 6,
        }
    }
}

/// A fact to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// What sort of fact.
    pub kind: EventKind,
    /// The fact: text, or JSON text.
    pub data: String,
}

/// Whether events were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// They are on disk; the last one has this number.
    Recorded {
        /// Counted from one, for each task.
        last: u64,
    },
    /// Somebody else speaks for the task now. Nothing was written.
    LeaseLost,
}

/// A step to be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    /// Its name.
    pub name: String,
    /// What it came to: JSON text.
    pub value: String,
}

/// Whether a step was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is on disk.
    Recorded,
    /// The task has a step of this name. It stays as it was.
    AlreadySaved,
    /// The task has as many steps as it may have.
    TooMany,
    /// Somebody else speaks for the task now. Nothing was written.
    LeaseLost,
}
