//! Outbox entry kinds: the outcomes that callbacks and hooks are notified of.

use crate::outcome::Outcome;
use crate::state::State;

/// The kind of an outbox entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndKind {
    /// A task completed.
    Completed,
    /// A task failed permanently.
    Failed,
    /// An attempt failed, and the task will be retried.
    Retry,
}

impl EndKind {
    /// Every kind; a store persists the index in this list.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Retry];

    /// The name that users see and stores persist.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Retry => "retry",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The outbox entry for a task that reached `state`: at the end of an attempt, or without one (no `outcome`), as when
/// its deadline passed. A cancellation makes no entry, since only the canceller cares, and neither does a task that was handed back
/// or lost its node, since it only moved.
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
