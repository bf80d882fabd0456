//! Task records: a task, its attempts and its steps, as a store persists and shows them.

use std::time::Duration;

use crate::decide::{Facts, LeasePhase};
use crate::id::{SessionId, TaskId, WorkerId};
use crate::outcome::{Ending, Failure};
use crate::policy::Overrides;
use crate::rank::{Priority, Rank};
use crate::state::State;
use crate::time::Timestamp;
use crate::traceparent::Traceparent;
use crate::usage::{Cost, Usage};

/// One durable unit of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Never reused.
    pub id: TaskId,
    /// The queue it belongs to.
    pub queue: String,
    /// The kind of work. Queue and kind together are its lane.
    pub kind: String,
    /// The input: JSON text.
    pub payload: String,
    /// The result: JSON text, once the task has completed.
    pub output: Option<String>,
    /// The priority: a head start in the queue.
    pub priority: Priority,
    /// The position in the queue.
    pub rank: Rank,
    /// The current state.
    pub state: State,
    /// Unique within a queue.
    pub unique_key: Option<String>,
    /// Tasks of a queue with the same limit key share limits and take turns with other keys.
    pub limit_key: Option<String>,
    /// The policy values set on the task itself.
    pub overrides: Overrides,
    /// After this time the task is too late to be useful.
    pub not_after: Option<Timestamp>,
    /// No attempt starts after this time.
    pub deadline: Option<Timestamp>,
    /// The working directory.
    pub folder: Option<String>,
    /// The trace that it belongs to.
    pub traceparent: Option<Traceparent>,
    /// The tokens it takes from the rate limits of its queue and its key.
    pub cost: u32,
    /// The number of claims so far: the fencing token of a lease.
    pub token: u64,
    /// Attempts that started.
    pub runs: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Workers that died while running it.
    pub crashes: u32,
    /// Nodes that died while it was running.
    pub node_deaths: u32,
    /// Whether a lease on it was ever lost with a node: it then starts durably, alone.
    pub suspect: bool,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When a cancellation was requested while a node held the lease.
    pub cancel_requested_at: Option<Timestamp>,
    /// When it first failed.
    pub first_failure_at: Option<Timestamp>,
    /// When it last failed.
    pub last_failure_at: Option<Timestamp>,
    /// The last failure.
    pub last_failure: Option<Failure>,
}

impl Task {
    /// The input of [`decide`](crate::decide()), while a node holds the lease.
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

/// One attempt to run a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from one.
    pub number: u32,
    /// The token of its lease.
    pub token: u64,
    /// The session of the node that ran it.
    pub session: SessionId,
    pub worker: WorkerId,
    pub started_at: Timestamp,
    /// `None` while the attempt is running.
    pub end: Option<AttemptEnd>,
    pub conversation: Conversation,
}

/// What an attempt asked of a model, and what that cost. Empty for other work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The id by which it can be resumed: the last one that was reported.
    pub session: Option<String>,
    /// The last prompt that was reported.
    pub prompt: Option<PromptRef>,
    /// What was spent, by model, in the order of first use.
    pub usage: Vec<Usage>,
}

impl Conversation {
    /// The sum of all costs; `None` if none is known.
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        let mut known = self.usage.iter().filter_map(|usage| usage.cost).peekable();
        known.peek().is_some().then(|| known.sum())
    }
}

/// A rendered prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptRef {
    /// The number of its event.
    pub event: u64,
    /// The size of the whole text in bytes.
    pub bytes: u64,
    /// The text, up to [`PROMPT_SHOWN`] bytes. The event has all of it.
    pub text: String,
}

/// The kind of a task that is a prompt for a pool of agents.
pub const RUN_KIND: &str = "run";
/// Bytes of a prompt that come with its attempt.
pub const PROMPT_SHOWN: usize = 64 * 1024;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    pub finished_at: Timestamp,
    pub ending: Ending,
    /// The failure, if it was one.
    pub failure: Option<Failure>,
}

impl Attempt {
    /// Whether it may have spent more than is known: a part was estimated, or its node died before it could report.
    #[must_use]
    pub fn has_estimated_cost(&self) -> bool {
        let usage = &self.conversation.usage;
        let died = self.end.as_ref().is_some_and(|end| end.ending == Ending::NodeDied);
        usage.iter().any(|usage| usage.source.is_estimated()) || (died && !usage.is_empty())
    }

    /// The duration of the attempt, once it has finished.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        self.end.as_ref().map(|end| end.finished_at.since(self.started_at))
    }
}

/// A named checkpoint within a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Unique within a task.
    pub name: String,
    /// The saved value: JSON text.
    pub value: String,
    pub saved_at: Timestamp,
    /// The token of the lease it was saved under.
    pub token: u64,
}
