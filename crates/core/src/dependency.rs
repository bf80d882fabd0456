//! Tasks that wait for others.

use crate::state::StateName;

/// What happens to a task when one that it waits for did not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailed {
    /// It is cancelled too.
    #[default]
    Cancel,
    /// It runs all the same.
    Run,
    /// It goes on waiting: the other one may be replayed.
    Wait,
}

impl OnFailed {
    /// Every choice; a store keeps the place in this list.
    pub const ALL: [Self; 3] = [Self::Cancel, Self::Run, Self::Wait];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Run => "run",
            Self::Wait => "wait",
        }
    }
}

/// What the end of one task means for another that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// It need not wait for this one any more.
    Satisfied,
    /// It still waits for it.
    Waits,
    /// It is cancelled.
    Cancelled,
}

/// What it means for a task that it waits for one in this state. A task that is not there any more has ended long ago, and
/// holds nobody up: ask with `None`.
#[must_use]
pub const fn release(choice: OnFailed, other: Option<StateName>) -> Release {
    match other {
        None | Some(StateName::Completed) => Release::Satisfied,
        Some(StateName::Queued | StateName::Claimed | StateName::Running) => Release::Waits,
        Some(StateName::Failed | StateName::Cancelled) => match choice {
            OnFailed::Cancel => Release::Cancelled,
            OnFailed::Run => Release::Satisfied,
            OnFailed::Wait => Release::Waits,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_task_and_one_that_was_pruned_hold_nobody_up() {
        for choice in OnFailed::ALL {
            assert_eq!(release(choice, Some(StateName::Completed)), Release::Satisfied);
            assert_eq!(release(choice, None), Release::Satisfied);
            for unfinished in [StateName::Queued, StateName::Claimed, StateName::Running] {
                assert_eq!(release(choice, Some(unfinished)), Release::Waits);
            }
        }
    }

    #[test]
    fn what_a_failure_means_is_a_choice() {
        for ended in [StateName::Failed, StateName::Cancelled] {
            assert_eq!(release(OnFailed::Cancel, Some(ended)), Release::Cancelled);
            assert_eq!(release(OnFailed::Run, Some(ended)), Release::Satisfied);
            assert_eq!(release(OnFailed::Wait, Some(ended)), Release::Waits);
        }
    }
}
