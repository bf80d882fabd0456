//! Prefetch estimate: how far a pool claims ahead of its workers. With prefetch, a free worker gets its next task
//! immediately and claims are batched; but a task that is held here cannot run elsewhere. So it applies to short work only,
//! and never to more than the pool completes in a moment.

use std::time::Duration;

/// Prefetched tasks are completed in about this time. If runs take longer on average, nothing is prefetched.
const AHEAD: Duration = Duration::from_millis(20);
/// Runs that must have been measured before anything is prefetched.
const ENOUGH_RUNS: u32 = 4;
/// The inverse weight of a new run in the moving average.
const WEIGHT: i64 = 8;

/// A moving average of the run times of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrefetchEstimate {
    runs: u32,
    average_us: i64,
}

impl PrefetchEstimate {
    /// Records a run.
    pub(crate) fn ran(&mut self, took: Duration) {
        let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX / WEIGHT);
        self.average_us =
            if self.runs == 0 { took_us } else { self.average_us + (took_us - self.average_us) / WEIGHT };
        self.runs = self.runs.saturating_add(1);
    }

    /// Resets the estimate because work turned out to be long: nothing is prefetched until enough short runs have been
    /// measured.
    pub(crate) const fn forget(&mut self) {
        *self = Self { runs: 0, average_us: 0 };
    }

    /// How many tasks to claim ahead for this many workers, at most `bound`.
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
        let mut estimate = PrefetchEstimate::default();
        runs.into_iter().for_each(|millis| estimate.ran(Duration::from_millis(millis)));
        estimate
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
        let mut estimate = after([1; 100]);
        estimate.ran(Duration::from_secs(2));
        assert_eq!(estimate.ahead(8, 100), 0);
        (0..100).for_each(|_| estimate.ran(Duration::from_millis(1)));
        assert_eq!(estimate.ahead(8, 100), 100);
        estimate.forget();
        assert_eq!(estimate.ahead(8, 100), 0);
    }
}
