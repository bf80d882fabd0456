//! Cancel and replay: the transitions that users request.

use crate::decide::lapsed;
use crate::state::{CancelReason, FailReason, Readiness, State, StateName, Wait};
use crate::time::Timestamp;

/// The result of a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelling {
    /// The task is not leased: it is cancelled now.
    Now(CancelReason),
    /// A node holds the lease: the task is marked, and is cancelled when its worker stops or its node dies.
    Mark,
    /// The task is in a terminal state: nothing changes.
    Ended(StateName),
}

/// Decides a request to cancel a task in `state`.
#[must_use]
pub const fn cancel(state: &State) -> Cancelling {
    match state {
        State::Queued { .. } => Cancelling::Now(CancelReason::Requested),
        State::Claimed { .. } | State::Running { .. } => Cancelling::Mark,
        State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => {
            Cancelling::Ended(state.name())
        }
    }
}

/// The result of a replay request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaying {
    /// The task had failed or was cancelled: it is queued again, with its failure counters at zero.
    Requeue,
    /// The task waits for a time: it becomes due now.
    Hasten,
    /// Nothing to do, or not allowed; the state says why.
    Refused(StateName),
}

/// Decides a request to replay a task in `state`.
#[must_use]
pub const fn replay(state: &State) -> Replaying {
    match state {
        State::Failed { .. } | State::Cancelled { .. } => Replaying::Requeue,
        State::Queued { readiness: Readiness::Waiting, why, .. } => match why {
            // These wait only for a time.
            Wait::Scheduled
            | Wait::Retry
            | Wait::RateLimited
            | Wait::UsageLimit
            | Wait::New
            | Wait::Replayed => Replaying::Hasten,
            Wait::HandedBack | Wait::LeaseExpired | Wait::Paused | Wait::Budget => Replaying::Hasten,
            // These wait for a condition that a replay cannot bring about.
            Wait::Concurrency | Wait::BreakerOpen | Wait::Dependency => Replaying::Refused(StateName::Queued),
        },
        State::Queued { readiness: Readiness::Ready | Readiness::Parked, .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. } => Replaying::Refused(state.name()),
    }
}

/// Returns whether a queued task is due at `now`, and what it waits for. A task whose dependencies are satisfied
/// may still wait for its time.
#[must_use]
pub fn arrival(run_at: Timestamp, now: Timestamp, why: Wait) -> (Readiness, Wait) {
    if run_at <= now {
        return (Readiness::Ready, why);
    }
    let why = if matches!(why, Wait::New | Wait::Dependency) { Wait::Scheduled } else { why };
    (Readiness::Waiting, why)
}

/// The last time at which a queued task is not yet [`too_late`]; `None`: no limit.
#[must_use]
pub fn in_time_until(not_after: Option<Timestamp>, deadline: Option<Timestamp>) -> Option<Timestamp> {
    [not_after, deadline].into_iter().flatten().min()
}

/// The final state of a queued task that is too late at `now`; `None` while it may still run.
#[must_use]
pub fn too_late(not_after: Option<Timestamp>, deadline: Option<Timestamp>, now: Timestamp) -> Option<State> {
    if lapsed(not_after, now) {
        return Some(State::Cancelled { finished_at: now, reason: CancelReason::Expired });
    }
    lapsed(deadline, now).then_some(State::Failed { finished_at: now, reason: FailReason::Deadline })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_in_time_until_the_first_of_its_ends_and_not_a_moment_longer() {
        let moments = [None, Some(4), Some(5), Some(6)];
        let at = |ms: i64| Timestamp::from_millis(ms);
        for (not_after, deadline) in moments.into_iter().flat_map(|a| moments.map(|b| (a.map(at), b.map(at))))
        {
            for now in (3..8).map(at) {
                let late = in_time_until(not_after, deadline).is_some_and(|last| now > last);
                assert_eq!(too_late(not_after, deadline, now).is_some(), late);
            }
        }
    }
}
