//! What follows when a task comes with a unique key that another one has.

use crate::state::{State, StateName};
use crate::time::Timestamp;

/// What whoever enqueues wants, should the key be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnConflict {
    /// The one that is there stays, and is the answer.
    #[default]
    Keep,
    /// One that still waits takes over what the new one brings; any other stays as it is.
    Replace,
    /// The new one is refused, and says which one has the key.
    Reject,
}

impl OnConflict {
    /// Every wish; a store keeps the place in this list.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Replace, Self::Reject];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Reject => "reject",
        }
    }
}

/// What happens to the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The other's time with the key is over: the key goes to the new one.
    Create,
    /// The other one is the answer.
    Keep,
    /// The other one, which waits, takes over payload, priority and time. Its id stays.
    Replace,
    /// The new one is refused.
    Reject,
}

/// What follows when the key belongs to a task in the state `holder`, until `held_until`; `None` is for as long as that task
/// is kept.
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
