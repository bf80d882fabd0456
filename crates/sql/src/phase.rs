//! Phases of a task and other small enumerations, as numbers in columns.

use ostler_core::{CancelReason, FailReason, Id, Readiness, SessionId, State, StateName, Wait, WorkerId};

use crate::value::{Cell, Column, ToValue, Unreadable, Value};

/// The state of a task, with the readiness of queued ones folded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Ready = 0,
    Timed = 1,
    Parked = 2,
    Claimed = 3,
    Running = 4,
    Completed = 5,
    Failed = 6,
    Cancelled = 7,
}

impl Phase {
    pub const ALL: [Self; 8] = [
        Self::Ready,
        Self::Timed,
        Self::Parked,
        Self::Claimed,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    pub const fn state(self) -> StateName {
        match self {
            Self::Ready | Self::Timed | Self::Parked => StateName::Queued,
            Self::Claimed => StateName::Claimed,
            Self::Running => StateName::Running,
            Self::Completed => StateName::Completed,
            Self::Failed => StateName::Failed,
            Self::Cancelled => StateName::Cancelled,
        }
    }

    /// Whether a task in this phase takes one of the places of its limit key.
    pub const fn takes_place(self) -> bool {
        match self {
            Self::Ready | Self::Claimed | Self::Running => true,
            Self::Timed | Self::Parked | Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// The phase of a state.
    pub const fn of(state: &State) -> Self {
        match state {
            State::Queued { readiness: Readiness::Ready, .. } => Self::Ready,
            State::Queued { readiness: Readiness::Parked, .. } => Self::Parked,
            State::Queued { readiness: Readiness::Waiting, .. } => Self::Timed,
            State::Claimed { .. } => Self::Claimed,
            State::Running { .. } => Self::Running,
            State::Completed { .. } => Self::Completed,
            State::Failed { .. } => Self::Failed,
            State::Cancelled { .. } => Self::Cancelled,
        }
    }
}

impl Phase {
    /// The number in the column.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The phase of a number.
    ///
    /// # Errors
    /// When no phase has it.
    pub fn from_code(code: i16) -> Result<Self, Unreadable> {
        from_ordinal(&Self::ALL, i64::from(code))
    }
}

impl ToValue for Phase {
    fn to_value(&self) -> Value<'_> {
        Value::Int(i64::from(self.code()))
    }
}

impl Column for Phase {
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
        from_ordinal(&Self::ALL, i64::from_cell(cell)?)
    }
}

/// The entry at an ordinal that a row names.
pub fn from_ordinal<T: Copy>(all: &[T], at: i64) -> Result<T, Unreadable> {
    let found = usize::try_from(at).ok().and_then(|at| all.get(at)).copied();
    found.ok_or_else(|| Unreadable(format!("{at} is not one of {} known numbers", all.len())))
}

/// The ordinal of a reason.
pub fn ordinal<T: PartialEq>(all: &[T], reason: &T) -> i16 {
    all.iter().position(|known| known == reason).map_or(-1, |at| at as i16)
}

/// The number in the column `why`.
pub fn why_code(state: &State) -> i16 {
    match state {
        State::Queued { why, .. } => ordinal(&Wait::ALL, why),
        State::Failed { reason, .. } => ordinal(&FailReason::ALL, reason),
        State::Cancelled { reason, .. } => ordinal(&CancelReason::ALL, reason),
        State::Claimed { .. } | State::Running { .. } | State::Completed { .. } => 0,
    }
}

/// Who ran an attempt, where it has no row of its own: the worker, then the session.
pub fn ran_bytes(worker: WorkerId, session: SessionId) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&worker.0.to_bytes());
    bytes[16..].copy_from_slice(&session.0.to_bytes());
    bytes
}

/// The two halves of [`ran_bytes`].
pub fn ran_from(bytes: &[u8]) -> Result<(WorkerId, SessionId), Unreadable> {
    let half = |at: usize| bytes.get(at..at + 16)?.try_into().ok().map(Id::from_bytes);
    let halves = half(0).zip(half(16)).map(|(worker, session)| (WorkerId(worker), SessionId(session)));
    halves.ok_or_else(|| Unreadable("who ran an attempt takes 32 bytes".to_owned()))
}

/// What went wrong with a task besides its failures, and whether others waited for it, as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    pub crashes: u32,
    pub node_deaths: u32,
    pub suspect: bool,
    pub awaited: bool,
}

impl Mishaps {
    /// Set for a task that others wait for. It is the sign, so that a statement can ask for it in a few letters.
    pub const AWAITED: i64 = i64::MIN;
    /// Room for each count; no policy allows as many.
    const BITS: u32 = 20;
    const MOST: u32 = (1 << Self::BITS) - 1;

    pub fn code(self) -> i64 {
        let awaited = if self.awaited { Self::AWAITED } else { 0 };
        awaited
            | i64::from(self.suspect)
            | i64::from(self.crashes.min(Self::MOST)) << 1
            | i64::from(self.node_deaths.min(Self::MOST)) << (1 + Self::BITS)
    }

    pub fn from_code(code: i64) -> Self {
        let count = |shift: u32| ((code >> shift) as u32) & Self::MOST;
        let (crashes, node_deaths) = (count(1), count(1 + Self::BITS));
        Self { crashes, node_deaths, suspect: code & 1 == 1, awaited: code < 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_for_mishaps_keeps_all_of_it() {
        for (crashes, node_deaths) in [(0, 0), (1, 0), (0, 1), (7, 9), (Mishaps::MOST, Mishaps::MOST)] {
            for suspect in [false, true] {
                for awaited in [false, true] {
                    let mishaps = Mishaps { crashes, node_deaths, suspect, awaited };
                    assert_eq!(Mishaps::from_code(mishaps.code()), mishaps);
                    assert_eq!(mishaps.code() < 0, awaited, "the sign alone tells who is awaited");
                }
            }
        }
    }

    #[test]
    fn the_numbers_in_the_statements_are_those_of_the_lists() {
        assert_eq!(ordinal(&Wait::ALL, &Wait::Dependency), 7, "the index of due tasks leaves it out");
    }
}
