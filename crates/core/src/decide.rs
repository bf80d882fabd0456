//! What follows from the end of an attempt. All rules about endings live in [`decide`]; a store writes the
//! [`Transition`] that it is given.
//!
//! The table is in the guide to failures; the property tests of this crate walk all of it.

use std::time::Duration;

use crate::id::TaskId;
use crate::outcome::{ErrorClass, Failure, Outcome};
use crate::policy::Policy;
use crate::state::{CancelReason, FailReason, Wait};
use crate::time::Timestamp;

/// How far a leased task had come, for what its end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeasePhase {
    /// A node had it, and had not durably begun.
    Claimed,
    /// An attempt had begun.
    Running,
}

/// What the rules need to know about a leased task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Which task; it seeds the jitter.
    pub id: TaskId,
    /// How far it had come.
    pub phase: LeasePhase,
    /// Attempts that failed, before this one.
    pub failures: u32,
    /// Workers that died under it, before this one.
    pub crashes: u32,
    /// Nodes that died while it ran, before this one.
    pub node_deaths: u32,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// Too late to be useful after this.
    pub not_after: Option<Timestamp>,
    /// No attempt begins after this: the time for all of them together.
    pub deadline: Option<Timestamp>,
}

/// Where the task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Back into its queue.
    Queue {
        /// Not before this moment.
        run_at: Timestamp,
        /// Why it waits.
        why: Wait,
    },
    /// Done.
    Complete,
    /// Failed for good.
    Fail(FailReason),
    /// Cancelled.
    Cancel(CancelReason),
}

/// What the attempt's end does to others than its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The breaker of its key or pool hears of a success.
    BreakerSuccess,
    /// The breaker of its key or pool counts a failure.
    BreakerFailure,
    /// Its key, or its pool, waits until then.
    HoldUntil(Timestamp),
    /// Its queue pauses, with the failure's message as the reason.
    PauseQueue,
    /// Its job, or its pool, pauses and asks for more money.
    PauseForBudget,
}

impl Effect {
    /// Why the queue pauses, if it does.
    #[must_use]
    pub fn pause_reason(self, outcome: &Outcome) -> Option<String> {
        match self {
            Self::PauseQueue | Self::PauseForBudget => {
                outcome.failure().map(|failure| failure.message.clone())
            }
            Self::None | Self::BreakerSuccess | Self::BreakerFailure | Self::HoldUntil(_) => None,
        }
    }
}

/// The decision: what to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Where the task goes.
    pub next: Next,
    /// `failures` from now on.
    pub failures: u32,
    /// `crashes` from now on.
    pub crashes: u32,
    /// `node_deaths` from now on.
    pub node_deaths: u32,
    /// Whether the task must from now on start durably, with nothing prefetched beside it.
    pub becomes_suspect: bool,
    /// What it does to others.
    pub effect: Effect,
}

impl Transition {
    /// Whether a failed attempt leads to another one, given what was true before it.
    #[must_use]
    pub const fn retries(&self, before: &Facts) -> bool {
        self.failures > before.failures && matches!(self.next, Next::Queue { .. })
    }
}

/// What follows when the attempt that held `task` ends with `outcome`.
#[must_use]
pub fn decide(task: &Facts, outcome: &Outcome, policy: &Policy, now: Timestamp) -> Transition {
    let unchanged = Transition {
        next: Next::Complete,
        failures: task.failures,
        crashes: task.crashes,
        node_deaths: task.node_deaths,
        becomes_suspect: false,
        effect: Effect::None,
    };
    let at_once = |why| Next::Queue { run_at: now, why };
    let decided = match outcome {
        Outcome::Success => Transition { effect: Effect::BreakerSuccess, ..unchanged },
        Outcome::Failed(failure) => failed(task, failure, policy, now),
        Outcome::NodeDied => {
            let ran = u32::from(task.phase == LeasePhase::Running);
            let node_deaths = task.node_deaths.saturating_add(ran);
            let next = if ran == 1 && node_deaths >= policy.max_node_deaths {
                Next::Fail(FailReason::NodeDeaths)
            } else {
                at_once(Wait::LeaseExpired)
            };
            Transition { next, node_deaths, becomes_suspect: true, ..unchanged }
        }
        Outcome::HandedBack => Transition { next: at_once(Wait::HandedBack), ..unchanged },
        Outcome::Cancelled => Transition { next: Next::Cancel(CancelReason::Requested), ..unchanged },
    };
    Transition { next: overruled(task, decided.next), ..decided }
}

/// The rows of the table that are about failures.
fn failed(task: &Facts, failure: &Failure, policy: &Policy, now: Timestamp) -> Transition {
    let failures = task.failures.saturating_add(1);
    let crashes = task.crashes.saturating_add(1);
    let unchanged = Transition {
        next: Next::Fail(FailReason::Permanent),
        failures: if failure.class.is_failure() { failures } else { task.failures },
        crashes: task.crashes,
        node_deaths: task.node_deaths,
        becomes_suspect: false,
        effect: Effect::None,
    };
    let retry = |class_limit_reached: Option<FailReason>| match class_limit_reached {
        Some(reason) => Next::Fail(reason),
        None if failures >= policy.retry.attempts => Next::Fail(FailReason::Exhausted),
        None => {
            let wait = backoff(task.id, failures, policy, failure.retry_after);
            Next::Queue { run_at: now.after(wait), why: Wait::Retry }
        }
    };
    match failure.class {
        ErrorClass::Transient | ErrorClass::Partial | ErrorClass::Timeout | ErrorClass::Stuck => {
            Transition { next: retry(None), effect: Effect::BreakerFailure, ..unchanged }
        }
        ErrorClass::Crash => {
            let quarantined = (crashes >= policy.max_crashes).then_some(FailReason::Crashes);
            let next = retry(quarantined);
            Transition { next, crashes, effect: Effect::BreakerFailure, ..unchanged }
        }
        ErrorClass::Permanent => unchanged,
        ErrorClass::RateLimited => {
            // No time was given: wait as after a first failure.
            let wait = failure.retry_after.unwrap_or_else(|| backoff(task.id, 1, policy, None));
            let until = now.after(wait);
            let next = Next::Queue { run_at: until, why: Wait::RateLimited };
            Transition { next, effect: Effect::HoldUntil(until), ..unchanged }
        }
        ErrorClass::QueueStop => {
            let next = Next::Queue { run_at: now, why: Wait::Paused };
            Transition { next, effect: Effect::PauseQueue, ..unchanged }
        }
        ErrorClass::Budget => {
            let next = Next::Queue { run_at: now, why: Wait::Budget };
            Transition { next, effect: Effect::PauseForBudget, ..unchanged }
        }
    }
}

fn backoff(id: TaskId, failures: u32, policy: &Policy, retry_after: Option<Duration>) -> Duration {
    let bits = id.0.bits();
    let seed = (bits as u64) ^ ((bits >> 64) as u64) ^ (u64::from(failures) << 32);
    let wait = policy.retry.delay(failures, seed);
    retry_after.map_or(wait, |asked| asked.max(wait))
}

/// What stands above the table: a task that was asked to be cancelled is not run again, and neither is one
/// whose time is over.
fn overruled(task: &Facts, next: Next) -> Next {
    match next {
        Next::Queue { .. } | Next::Fail(_) if task.cancel_requested => Next::Cancel(CancelReason::Requested),
        Next::Queue { run_at, .. } if lapsed(task.not_after, run_at) => Next::Cancel(CancelReason::Expired),
        Next::Queue { run_at, .. } if lapsed(task.deadline, run_at) => Next::Fail(FailReason::Deadline),
        Next::Queue { .. } | Next::Complete | Next::Fail(_) | Next::Cancel(_) => next,
    }
}

/// Whether `moment` lies after the `end` that was set.
#[must_use]
pub fn lapsed(end: Option<Timestamp>, moment: Timestamp) -> bool {
    end.is_some_and(|end| moment > end)
}
