//! What may be asked of a task from outside, and what follows: cancel and replay.

use crate::decide::lapsed;
use crate::state::{CancelReason, FailReason, Readiness, State, StateName, Wait};
use crate::time::Timestamp;

/// What a request to cancel leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelling {
    /// Nobody has it: it is cancelled now.
    Now(CancelReason),
    /// A node has it: the task is marked, and ends when the worker or its node does.
    Mark,
    /// It has ended: nothing changes.
    Ended(StateName),
}

/// What a request to cancel a task in `state` leads to.
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

/// What a request for another go leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaying {
    /// It failed or was cancelled: it is queued again, with its counts of trouble at zero.
    Requeue,
    /// It waits for a moment: the moment is now.
    Hasten,
    /// Nothing to do, or not to be done; the state says why.
    Refused(StateName),
}

/// What a request to replay a task in `state` leads to.
#[must_use]
pub const fn replay(state: &State) -> Replaying {
    match state {
        State::Failed { .. } | State::Cancelled { .. } => Replaying::Requeue,
        State::Queued { readiness: Readiness::Waiting, why, .. } => match why {
            // Only time holds these back.
            Wait::Scheduled | Wait::Retry | Wait::RateLimited | Wait::New | Wait::Replayed => {
                Replaying::Hasten
            }
            Wait::HandedBack | Wait::LeaseExpired | Wait::Paused | Wait::Budget => Replaying::Hasten,
            // These wait for something else, which a wish does not bring about.
            Wait::Concurrency | Wait::BreakerOpen | Wait::Dependency => Replaying::Refused(StateName::Queued),
        },
        State::Queued { readiness: Readiness::Ready | Readiness::Parked, .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. } => Replaying::Refused(state.name()),
    }
}

/// Whether a queued task is ready at `now`, as far as time goes, and what it waits for. One that waited for other tasks, and
/// does not any more, may still wait for its time.
#[must_use]
pub fn arrival(run_at: Timestamp, now: Timestamp, why: Wait) -> (Readiness, Wait) {
    if run_at <= now {
        return (Readiness::Ready, why);
    }
    let why = if matches!(why, Wait::New | Wait::Dependency) { Wait::Scheduled } else { why };
    (Readiness::Waiting, why)
}

/// The last moment that a queued task is not [`too_late`] for; `None`: it has all the time there is.
#[must_use]
pub fn in_time_until(not_after: Option<Timestamp>, deadline: Option<Timestamp>) -> Option<Timestamp> {
    [not_after, deadline].into_iter().flatten().min()
}

/// Where a queued task ends whose time is over at `now`; `None` while it may still run.
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
