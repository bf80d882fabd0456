//! Unique keys: conflict rules when a new task has the key of an existing one.

use std::time::Duration;

use crate::state::{State, StateName};
use crate::time::Timestamp;

/// How long a task holds its unique key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyHold {
    /// Until the task is removed from the store, in whatever state it is.
    #[default]
    Removed,
    /// Until the task has ended. A replay takes the key back.
    End,
    /// For this long, from when it is enqueued, whatever the task does.
    For(Duration),
}

impl KeyHold {
    /// The choices that have a name.
    pub const NAMED: [Self; 2] = [Self::Removed, Self::End];

    /// The name shown to users; `None` for a duration.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Removed => Some("removed"),
            Self::End => Some("end"),
            Self::For(_) => None,
        }
    }

    /// The choice of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|hold| hold.name() == Some(name))
    }

    /// The hold that begins at `now`, as a store persists it.
    #[must_use]
    pub fn from(self, now: Timestamp) -> HeldUntil {
        match self {
            Self::Removed => HeldUntil::Removed,
            Self::End => HeldUntil::Ended,
            Self::For(hold) => HeldUntil::At(now.after(hold)),
        }
    }
}

/// When a task's hold on its unique key is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldUntil {
    /// When the task is removed.
    Removed,
    /// When the task has ended.
    Ended,
    At(Timestamp),
}

impl HeldUntil {
    fn is_over(self, holder: &State, now: Timestamp) -> bool {
        match self {
            Self::Removed => false,
            Self::Ended => holder.name().is_terminal(),
            Self::At(until) => until <= now,
        }
    }
}

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
    /// The existing task's hold on the key is over: the key goes to the new task.
    Create,
    /// The existing task is returned.
    Keep,
    /// The existing task, which waits, takes over payload, priority and time. Its id stays.
    Replace,
    /// The new task is rejected.
    Reject,
}

/// Decides a conflict when the key belongs to a task in state `holder`.
#[must_use]
pub fn conflict(wish: OnConflict, holder: &State, held: HeldUntil, now: Timestamp) -> Conflict {
    if held.is_over(holder, now) {
        return Conflict::Create;
    }
    match (wish, holder.name()) {
        (OnConflict::Reject, _) => Conflict::Reject,
        (OnConflict::Replace, StateName::Queued) => Conflict::Replace,
        (OnConflict::Keep | OnConflict::Replace, _) => Conflict::Keep,
    }
}

/// What becomes of the unique key of an ended task that is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regain {
    /// The key is free: the task has it again.
    Take,
    /// Another task holds it: the replay is refused, or two unfinished tasks would have the same key.
    Refuse,
}

/// Decides whether a replayed task that held its key until its end gets it back from the task that has the key now, which is
/// in state `holder`.
#[must_use]
pub fn regain(holder: &State, held: HeldUntil, now: Timestamp) -> Regain {
    if held.is_over(holder, now) { Regain::Take } else { Regain::Refuse }
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
            assert_eq!(conflict(OnConflict::Replace, &state, HeldUntil::Removed, NOW), expected);
            assert_eq!(conflict(OnConflict::Keep, &state, HeldUntil::Removed, NOW), Conflict::Keep);
            assert_eq!(conflict(OnConflict::Reject, &state, HeldUntil::Removed, NOW), Conflict::Reject);
        }
    }

    #[test]
    fn after_its_time_the_key_is_free_whatever_the_other_does() {
        for state in states() {
            for wish in OnConflict::ALL {
                assert_eq!(conflict(wish, &state, HeldUntil::At(NOW), NOW), Conflict::Create);
                let later = KeyHold::For(Duration::from_millis(1)).from(NOW);
                assert_ne!(conflict(wish, &state, later, NOW), Conflict::Create);
            }
        }
    }

    #[test]
    fn a_key_held_until_the_end_is_free_exactly_when_its_task_has_ended() {
        let held = KeyHold::End.from(NOW);
        for state in states() {
            let ended = state.name().is_terminal();
            for wish in OnConflict::ALL {
                assert_eq!(conflict(wish, &state, held, NOW) == Conflict::Create, ended, "{state:?}");
            }
            let expected = if ended { Regain::Take } else { Regain::Refuse };
            assert_eq!(regain(&state, held, NOW), expected, "{state:?}");
            assert_eq!(regain(&state, HeldUntil::Removed, NOW), Regain::Refuse, "{state:?}");
        }
    }
}
