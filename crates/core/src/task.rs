//! The records: a task, its attempts and its steps, as a store keeps and shows them.

use std::time::Duration;

use crate::decide::{Facts, LeasePhase};
use crate::id::{SessionId, TaskId, WorkerId};
use crate::outcome::{Ending, Failure};
use crate::policy::Overrides;
use crate::rank::{Priority, Rank};
use crate::state::State;
use crate::time::Timestamp;

/// One durable unit of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name, for ever.
    pub id: TaskId,
    /// The queue it is in.
    pub queue: String,
    /// What sort of work it is. Queue and kind together are its lane.
    pub kind: String,
    /// What to work on: JSON text.
    pub payload: String,
    /// What came out: JSON text, once it is completed.
    pub output: Option<String>,
    /// Its head start.
    pub priority: Priority,
    /// Its place in the queue.
    pub rank: Rank,
    /// Where it stands.
    pub state: State,
    /// No two tasks of a queue have the same.
    pub unique_key: Option<String>,
    /// Tasks of a queue with the same one share limits and take turns with the others.
    pub limit_key: Option<String>,
    /// What was said about its policy.
    pub overrides: Overrides,
    /// Too late to be useful after this.
    pub not_after: Option<Timestamp>,
    /// No attempt begins after this.
    pub deadline: Option<Timestamp>,
    /// The folder it works in.
    pub folder: Option<String>,
    /// What it takes from the rates of its queue and its key.
    pub cost: u32,
    /// How often it was claimed: the number that proves a lease.
    pub token: u64,
    /// Attempts that began.
    pub runs: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Workers that died under it.
    pub crashes: u32,
    /// Nodes that died while it ran.
    pub node_deaths: u32,
    /// Whether a lease on it was ever lost with a node: it starts durably, alone.
    pub suspect: bool,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When somebody asked to cancel it, while a node had it.
    pub cancel_requested_at: Option<Timestamp>,
    /// When it first failed.
    pub first_failure_at: Option<Timestamp>,
    /// When it last failed.
    pub last_failure_at: Option<Timestamp>,
    /// The last failure.
    pub last_failure: Option<Failure>,
}

impl Task {
    /// What the rules need to know, while a node holds the task.
    #[must_use]
    pub const fn facts(&self) -> Option<Facts> {
        let held = match self.state {
            State::Claimed { .. } => LeasePhase::Claimed,
            State::Running { .. } => LeasePhase::Running,
            State::Queued { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => {
                return None;
            }
        };
        Some(Facts {
            id: self.id,
            phase: held,
            failures: self.failures,
            crashes: self.crashes,
            node_deaths: self.node_deaths,
            cancel_requested: self.cancel_requested_at.is_some(),
            not_after: self.not_after,
            deadline: self.deadline,
        })
    }
}

/// One run of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from one.
    pub number: u32,
    /// The lease it ran under.
    pub token: u64,
    /// The node it ran in.
    pub session: SessionId,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// When it began.
    pub started_at: Timestamp,
    /// How it ended; `None` while it runs.
    pub end: Option<AttemptEnd>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// When.
    pub finished_at: Timestamp,
    /// In one word.
    pub ending: Ending,
    /// The failure, where it was one.
    pub failure: Option<Failure>,
}

impl Attempt {
    /// How long it took, once it has ended.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        self.end.as_ref().map(|end| end.finished_at.since(self.started_at))
    }
}

/// A named checkpoint inside a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name, once in a task.
    pub name: String,
    /// What it came to: JSON text.
    pub value: String,
    /// When it was saved.
    pub saved_at: Timestamp,
    /// The lease it was saved under.
    pub token: u64,
}
