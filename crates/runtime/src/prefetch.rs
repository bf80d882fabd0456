//! How far a pool claims ahead of its workers. Ahead is fast, for a worker that gets free has its next task at once, and
//! claims come in batches; but what is held here cannot be run elsewhere. So it is for short work only, and never for
//! more than the pool works off in a moment.

use std::time::Duration;

/// What is claimed ahead is worked off in about this time. Runs that take longer on average have nothing claimed ahead.
const AHEAD: Duration = Duration::from_millis(20);
/// So many runs must be known before anything is claimed ahead.
const ENOUGH_RUNS: u32 = 4;
/// One more run moves the average by this part of its distance.
const WEIGHT: i64 = 8;

/// How long the runs of a pool take, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrefetchEstimate {
    runs: u32,
    average_us: i64,
}

impl PrefetchEstimate {
    /// One more run.
    pub(crate) fn ran(&mut self, took: Duration) {
        let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX / WEIGHT);
        self.average_us =
            if self.runs == 0 { took_us } else { self.average_us + (took_us - self.average_us) / WEIGHT };
        self.runs = self.runs.saturating_add(1);
    }

    /// Work turned out to be long: nothing is claimed ahead until enough short runs have been seen.
    pub(crate) const fn forget(&mut self) {
        *self = Self { runs: 0, average_us: 0 };
    }

    /// How many tasks to claim ahead for so many workers, at most `bound`.
    pub(crate) fn ahead(&self, workers: usize, bound: usize) -> usize {
        let ahead_us = i64::try_from(AHEAD.as_micros()).unwrap_or(i64::MAX);
        if self.runs < ENOUGH_RUNS || self.average_us > ahead_us {
            return 0;
        }
        let each = usize::try_from(ahead_us / self.average_us.max(1)).unwrap_or(usize::MAX);
        workers.saturating_mul(each).min(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(runs: impl IntoIterator<Item = u64>) -> PrefetchEstimate {
        let mut pace = PrefetchEstimate::default();
        runs.into_iter().for_each(|millis| pace.ran(Duration::from_millis(millis)));
        pace
    }

    #[test]
    fn nothing_is_claimed_ahead_before_enough_is_known() {
        assert_eq!(PrefetchEstimate::default().ahead(8, 100), 0);
        assert_eq!(after([1; 3]).ahead(8, 100), 0);
        assert_eq!(after([1; 4]).ahead(8, 100), 100);
    }

    #[test]
    fn short_work_is_claimed_ahead_for_a_moment_and_long_work_is_not() {
        assert_eq!(after([10; 4]).ahead(8, 100), 16, "two each");
        assert_eq!(after([20; 4]).ahead(8, 100), 8, "one each");
        assert_eq!(after([21; 4]).ahead(8, 100), 0);
        assert_eq!(after([0; 4]).ahead(8, 100), 100, "the bound holds");
    }

    #[test]
    fn one_long_run_ends_it_and_short_ones_bring_it_back() {
        let mut pace = after([1; 100]);
        pace.ran(Duration::from_secs(2));
        assert_eq!(pace.ahead(8, 100), 0);
        (0..100).for_each(|_| pace.ran(Duration::from_millis(1)));
        assert_eq!(pace.ahead(8, 100), 100);
        pace.forget();
        assert_eq!(pace.ahead(8, 100), 0);
    }
}
