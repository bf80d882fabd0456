//! Schedules (recurring work): due runs, missed runs, and overlap with the previous run.
//!
//! Computing the times of a schedule is left to the caller (a cron line needs a calendar and time zones): here they are
//! a function from one time to the next.

use std::time::Duration;

use crate::state::StateName;
use crate::time::Timestamp;

/// What happens when a run is due and the previous one has not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// This run is skipped.
    #[default]
    Skip,
    /// This run is queued behind the previous one.
    Queue,
    /// The previous run is cancelled.
    Replace,
}

impl Overlap {
    /// Every choice; a store persists the index in this list.
    pub const ALL: [Self; 3] = [Self::Skip, Self::Queue, Self::Replace];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Replace => "replace",
        }
    }
}

/// What happens to runs that became due while no node was checking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// They are skipped.
    Skip,
    /// One run stands for all of them.
    #[default]
    One,
    /// Each is made up for, up to [`MAX_MADE_UP`] at a time.
    All,
}

impl Missed {
    /// Every choice; a store persists the index in this list.
    pub const ALL: [Self; 3] = [Self::Skip, Self::One, Self::All];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::One => "one",
            Self::All => "all",
        }
    }
}

/// A run is missed when it is later than this; up to then it is merely late.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);
/// The maximum number of missed runs examined, or made up for, at a time.
pub const MAX_MADE_UP: usize = 100;

/// What to do about a schedule now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The time to make a run for; `None`: no run is due.
    pub run: Option<Timestamp>,
    /// The next time of the schedule; `None`: there is none.
    pub next: Option<Timestamp>,
}

/// Returns what is due at `now`, when the schedule's next time is `expected`. Call again with the returned `next` until it lies in
/// the future: each answer is at most one run, so that each can be written on its own.
#[must_use]
pub fn due(
    missed: Missed,
    expected: Timestamp,
    now: Timestamp,
    after: impl Fn(Timestamp) -> Option<Timestamp>,
) -> Due {
    if expected > now {
        return Due { run: None, next: Some(expected) };
    }
    match missed {
        Missed::All => Due { run: Some(expected), next: after(expected) },
        Missed::One => {
            let (last, next) = last_until(expected, now, &after);
            Due { run: Some(last), next }
        }
        Missed::Skip => {
            let (last, next) = last_until(expected, now, &after);
            let in_time = now.since(last) <= MISSED_AFTER;
            Due { run: in_time.then_some(last), next }
        }
    }
}

/// The last time that is not after `now`, and the one that follows. A schedule with a great many times behind it continues
/// from now: those in between cannot be told apart from missed ones anyway.
fn last_until(
    expected: Timestamp,
    now: Timestamp,
    after: &impl Fn(Timestamp) -> Option<Timestamp>,
) -> (Timestamp, Option<Timestamp>) {
    let mut last = expected;
    for _ in 0..MAX_MADE_UP {
        match after(last) {
            Some(next) if next <= now => last = next,
            next => return (last, next),
        }
    }
    (last, after(now))
}

/// What to do with a due run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fire {
    /// Enqueue it.
    Enqueue,
    /// Skip it.
    Skip,
    /// Cancel the previous run and enqueue this one.
    Replace,
}

/// Decides what to do with a due run, given the state of the previous one; `None`: there is none, or it was pruned.
#[must_use]
pub const fn fire(overlap: Overlap, previous: Option<StateName>) -> Fire {
    let unfinished = match previous {
        Some(StateName::Queued | StateName::Claimed | StateName::Running) => true,
        Some(StateName::Completed | StateName::Failed | StateName::Cancelled) | None => false,
    };
    match overlap {
        Overlap::Skip if unfinished => Fire::Skip,
        Overlap::Replace if unfinished => Fire::Replace,
        Overlap::Skip | Overlap::Replace | Overlap::Queue => Fire::Enqueue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * MINUTE)
    }

    fn each_minute(after: Timestamp) -> Option<Timestamp> {
        Some(Timestamp::from_millis((after.millis() / MINUTE + 1) * MINUTE))
    }

    #[test]
    fn nothing_is_due_before_its_moment() {
        for missed in Missed::ALL {
            let due = due(missed, at(5), at(4), each_minute);
            assert_eq!(due, Due { run: None, next: Some(at(5)) });
        }
    }

    #[test]
    fn what_is_in_time_is_run_once_whatever_the_policy() {
        let now = Timestamp::from_millis(5 * MINUTE + 30);
        for missed in Missed::ALL {
            assert_eq!(due(missed, at(5), now, each_minute), Due { run: Some(at(5)), next: Some(at(6)) });
        }
    }

    #[test]
    fn what_was_missed_is_left_out_or_made_up_for_as_asked() {
        let night = Timestamp::from_millis(9 * MINUTE + 1);
        assert_eq!(due(Missed::One, at(5), night, each_minute), Due { run: Some(at(9)), next: Some(at(10)) });
        // The last one is merely late.
        assert_eq!(due(Missed::Skip, at(5), night, each_minute).run, Some(at(9)));
        let once_a_day = |_| Some(at(24 * 60));
        assert_eq!(due(Missed::Skip, at(5), night, once_a_day), Due { run: None, next: Some(at(24 * 60)) });
        let (mut expected, mut runs) = (at(5), Vec::new());
        loop {
            let due = due(Missed::All, expected, night, each_minute);
            let Some(run) = due.run else { break };
            runs.push(run);
            expected = due.next.unwrap();
        }
        assert_eq!(runs, (5..=9).map(at).collect::<Vec<_>>());
    }

    #[test]
    fn a_year_behind_is_caught_up_with_in_one_step() {
        let year = at(365 * 24 * 60);
        let due = due(Missed::One, at(0), year, each_minute);
        assert_eq!(due.next, Some(Timestamp::from_millis(year.millis() + MINUTE)));
    }

    #[test]
    fn a_schedule_that_has_no_moment_left_ends() {
        for missed in Missed::ALL {
            assert_eq!(due(missed, at(5), at(5), |_| None), Due { run: Some(at(5)), next: None });
        }
    }

    #[test]
    fn an_overlap_is_skipped_queued_or_replaced() {
        let unfinished = [StateName::Queued, StateName::Claimed, StateName::Running];
        let over = [StateName::Completed, StateName::Failed, StateName::Cancelled];
        for state in unfinished {
            assert_eq!(fire(Overlap::Skip, Some(state)), Fire::Skip);
            assert_eq!(fire(Overlap::Queue, Some(state)), Fire::Enqueue);
            assert_eq!(fire(Overlap::Replace, Some(state)), Fire::Replace);
        }
        for overlap in Overlap::ALL {
            assert_eq!(fire(overlap, None), Fire::Enqueue);
            for state in over {
                assert_eq!(fire(overlap, Some(state)), Fire::Enqueue);
            }
        }
    }
}
