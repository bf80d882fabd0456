//! Unique keys: conflict rules when a new task has the key of an existing one.

use crate::state::{State, StateName};
use crate::time::Timestamp;

/// What the caller of `enqueue` wants if the key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnConflict {
    /// Keep the existing task and return it.
    #[default]
    Keep,
    /// Replace the content of an existing task that still waits; leave any other as it is.
    Replace,
    /// Reject the new task and report which task has the key.
    Reject,
}

impl OnConflict {
    /// Every choice; a store persists the index in this list.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Replace, Self::Reject];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Reject => "reject",
        }
    }
}

/// The decision for the two tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The existing task's hold on the key has expired: the key goes to the new task.
    Create,
    /// The existing task is returned.
    Keep,
    /// The existing task, which waits, takes over payload, priority and time. Its id stays.
    Replace,
    /// The new task is rejected.
    Reject,
}

/// Decides a conflict when the key belongs to a task in state `holder` until `held_until`; `None`: as long as that task
/// exists in the store.
#[must_use]
pub fn conflict(wish: OnConflict, holder: &State, held_until: Option<Timestamp>, now: Timestamp) -> Conflict {
    if held_until.is_some_and(|until| until <= now) {
        return Conflict::Create;
    }
    match (wish, holder.name()) {
        (OnConflict::Reject, _) => Conflict::Reject,
        (OnConflict::Replace, StateName::Queued) => Conflict::Replace,
        (OnConflict::Keep | OnConflict::Replace, _) => Conflict::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{CancelReason, FailReason, Readiness, Wait};
    use crate::{Id, SessionId};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn states() -> [State; 6] {
        let session = SessionId(Id::from_bits(1));
        [
            State::Queued { readiness: Readiness::Ready, why: Wait::New, run_at: NOW },
            State::Claimed { session },
            State::Running { session, started_at: NOW },
            State::Completed { finished_at: NOW },
            State::Failed { finished_at: NOW, reason: FailReason::Permanent },
            State::Cancelled { finished_at: NOW, reason: CancelReason::Requested },
        ]
    }

    #[test]
    fn only_what_waits_is_replaced() {
        for state in states() {
            let expected = if state.name() == StateName::Queued { Conflict::Replace } else { Conflict::Keep };
            assert_eq!(conflict(OnConflict::Replace, &state, None, NOW), expected);
            assert_eq!(conflict(OnConflict::Keep, &state, None, NOW), Conflict::Keep);
            assert_eq!(conflict(OnConflict::Reject, &state, None, NOW), Conflict::Reject);
        }
    }

    #[test]
    fn after_its_time_the_key_is_free_whatever_the_other_does() {
        for state in states() {
            for wish in OnConflict::ALL {
                assert_eq!(conflict(wish, &state, Some(NOW), NOW), Conflict::Create);
                let later = Some(NOW.after(std::time::Duration::from_millis(1)));
                assert_ne!(conflict(wish, &state, later, NOW), Conflict::Create);
            }
        }
    }
}
