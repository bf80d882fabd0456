//! Dependencies between tasks.

use crate::state::StateName;

/// What happens to a task when one of its dependencies did not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailed {
    /// The task is cancelled too.
    #[default]
    Cancel,
    /// The task runs anyway.
    Run,
    /// The task keeps waiting: the dependency may be replayed.
    Wait,
}

impl OnFailed {
    /// Every choice; a store persists the index in this list.
    pub const ALL: [Self; 3] = [Self::Cancel, Self::Run, Self::Wait];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Run => "run",
            Self::Wait => "wait",
        }
    }
}

/// What the state of a dependency means for the task that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// The task no longer waits for this dependency.
    Satisfied,
    /// The task still waits for it.
    Waits,
    /// The task is cancelled.
    Cancelled,
}

/// Decides what a dependency in state `other` means for a task. A dependency that is no longer in the store (`None`)
/// ended long ago and blocks no task.
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
    fn a_completed_task_and_one_that_was_pruned_do_not_hold_up_others() {
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
