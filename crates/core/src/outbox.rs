//! Which ends of attempts somebody may want to be told of: callbacks and hooks hang on these.

use crate::outcome::Outcome;
use crate::state::State;

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndKind {
    /// A task was completed.
    Completed,
    /// A task failed for good.
    Failed,
    /// An attempt failed, and the task will be tried again.
    Retry,
}

impl EndKind {
    /// All there is; a store keeps the place in this list.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Retry];

    /// The word that users see and stores keep.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Retry => "retry",
        }
    }

    /// What has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What there is to tell of a task that came to `state`: by the end of an attempt, or by itself (no `outcome`), as when
/// its deadline passed. A cancel is nobody's news but the canceller's, and a task that was handed back or lost its node
/// only moved.
#[must_use]
pub const fn end_kind(state: &State, outcome: Option<&Outcome>) -> Option<EndKind> {
    match state {
        State::Completed { .. } => Some(EndKind::Completed),
        State::Failed { .. } => Some(EndKind::Failed),
        State::Queued { .. } => match outcome {
            Some(Outcome::Failed(_)) => Some(EndKind::Retry),
            Some(Outcome::Success | Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled) | None => {
                None
            }
        },
        State::Claimed { .. } | State::Running { .. } | State::Cancelled { .. } => None,
    }
}
