//! State transitions at the end of an attempt. All rules about outcomes live in [`decide`]; a store writes the
//! [`Transition`] that it returns.
//!
//! The guide to failures has the table; the property tests of this crate cover all of it.

use std::time::Duration;

use crate::account::{MAX_ACCOUNT_HOLD, UNKNOWN_RESET};
use crate::id::TaskId;
use crate::outcome::{ErrorClass, Failure, Outcome};
use crate::policy::Policy;
use crate::state::{CancelReason, FailReason, Wait};
use crate::time::Timestamp;

/// The phase of a leased task when its lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeasePhase {
    /// A node had claimed it, but no attempt had durably started.
    Claimed,
    /// An attempt had started.
    Running,
}

/// The input of the rules about a leased task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Seeds the jitter.
    pub id: TaskId,
    pub phase: LeasePhase,
    /// Failed attempts, before this one.
    pub failures: u32,
    /// Workers that died while running it, before this one.
    pub crashes: u32,
    /// Nodes that died while it was running, before this one.
    pub node_deaths: u32,
    /// Whether a cancellation was requested.
    pub cancel_requested: bool,
    /// After this time the task is too late to be useful.
    pub not_after: Option<Timestamp>,
    /// No attempt starts after this time: the limit for all attempts together.
    pub deadline: Option<Timestamp>,
}

/// The task's next state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Back to its queue.
    Queue {
        /// Not due before this time.
        run_at: Timestamp,
        why: Wait,
    },
    Complete,
    /// Failed permanently.
    Fail(FailReason),
    Cancel(CancelReason),
}

/// The effect of an outcome beyond its own task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    /// The breaker of its key or pool records a success.
    BreakerSuccess,
    /// The breaker of its key or pool counts a failure.
    BreakerFailure,
    /// Its key is throttled until this time; or, if it has none, its pool, unless an account takes care of that.
    HoldUntil(Timestamp),
    /// Its account is held until this time.
    HoldAccount(Timestamp),
    /// Its queue is paused, with the failure's message as the reason.
    PauseQueue,
    /// Its job or pool is paused and asks for a larger budget.
    PauseForBudget,
}

impl Effect {
    /// The same in a queue without an account: a usage limit throttles its key or pool.
    #[must_use]
    pub const fn without_account(self) -> Self {
        match self {
            Self::HoldAccount(until) => Self::HoldUntil(until),
            Self::None
            | Self::BreakerSuccess
            | Self::BreakerFailure
            | Self::HoldUntil(_)
            | Self::PauseQueue
            | Self::PauseForBudget => self,
        }
    }

    /// The reason to pause the queue, if this effect pauses it.
    #[must_use]
    pub fn pause_reason(self, outcome: &Outcome) -> Option<String> {
        match self {
            Self::PauseQueue | Self::PauseForBudget => {
                outcome.failure().map(|failure| failure.message.clone())
            }
            Self::None
            | Self::BreakerSuccess
            | Self::BreakerFailure
            | Self::HoldUntil(_)
            | Self::HoldAccount(_) => None,
        }
    }
}

/// The decision that a store writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub next: Next,
    /// The new value of `failures`.
    pub failures: u32,
    /// The new value of `crashes`.
    pub crashes: u32,
    /// The new value of `node_deaths`.
    pub node_deaths: u32,
    /// Whether the task must from now on start durably, with nothing prefetched alongside it.
    pub becomes_suspect: bool,
    pub effect: Effect,
}

impl Transition {
    /// Whether a failed attempt is retried, given the facts before it.
    #[must_use]
    pub const fn retries(&self, before: &Facts) -> bool {
        self.failures > before.failures && matches!(self.next, Next::Queue { .. })
    }

    /// The same in a queue with an account. After a usage limit the task is ready, and the account's hold is all that it waits for: it
    /// starts as soon as the hold ends or is released.
    #[must_use]
    pub const fn of_account(self, now: Timestamp) -> Self {
        match (self.next, self.effect) {
            (Next::Queue { why, .. }, Effect::HoldAccount(_)) => {
                Self { next: Next::Queue { run_at: now, why }, ..self }
            }
            (Next::Queue { .. } | Next::Complete | Next::Fail(_) | Next::Cancel(_), _) => self,
        }
    }
}

/// Decides the transition when the attempt that leased `task` ends with `outcome`.
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

/// The rows of the table for failures.
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
            // No retry time was given: wait as after a first failure.
            let wait = failure.retry_after.unwrap_or_else(|| backoff(task.id, 1, policy, None));
            let until = now.after(wait);
            let next = Next::Queue { run_at: until, why: Wait::RateLimited };
            Transition { next, effect: Effect::HoldUntil(until), ..unchanged }
        }
        ErrorClass::UsageLimit => {
            let until = now.after(failure.retry_after.unwrap_or(UNKNOWN_RESET).min(MAX_ACCOUNT_HOLD));
            let next = Next::Queue { run_at: until, why: Wait::UsageLimit };
            Transition { next, effect: Effect::HoldAccount(until), ..unchanged }
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

/// Overrides the table: a task with a requested cancellation is not run again, and neither is one that is past its
/// deadline or `not_after`.
fn overruled(task: &Facts, next: Next) -> Next {
    match next {
        Next::Queue { .. } | Next::Fail(_) if task.cancel_requested => Next::Cancel(CancelReason::Requested),
        Next::Queue { run_at, .. } if lapsed(task.not_after, run_at) => Next::Cancel(CancelReason::Expired),
        Next::Queue { run_at, .. } if lapsed(task.deadline, run_at) => Next::Fail(FailReason::Deadline),
        Next::Queue { .. } | Next::Complete | Next::Fail(_) | Next::Cancel(_) => next,
    }
}

/// Whether `moment` is after the limit `end`, if one is set.
#[must_use]
pub fn lapsed(end: Option<Timestamp>, moment: Timestamp) -> bool {
    end.is_some_and(|end| moment > end)
}
