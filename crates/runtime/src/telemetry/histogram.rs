//! Histogram of durations with fixed buckets: plain atomics, so that recording neither locks nor allocates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets; longer durations are in one more.
const BOUNDS: [Duration; 16] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(4 * 60 * 60),
];

#[derive(Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(super) fn record(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        HistogramSnapshot {
            buckets: bounds.zip(counts).collect(),
            sum: Duration::from_micros(self.sum_us.load(Ordering::Relaxed)),
        }
    }
}

/// A distribution of durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The upper bound of each bucket, inclusive and ascending, and how many durations lie between it and the bound before. The last
    /// bucket has no bound.
    pub buckets: Vec<(Option<Duration>, u64)>,
    /// All durations together.
    pub sum: Duration,
}

impl HistogramSnapshot {
    /// How many durations were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        let times = [0, 1, 2, 5, 1_000, 1_001, 100_000_000].map(Duration::from_millis);
        times.into_iter().for_each(|time| histogram.record(time));
        let found = histogram.snapshot();
        let filled: Vec<_> = found.buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        let at = |millis| Some(Duration::from_millis(millis));
        assert_eq!(filled, [(at(1), 2), (at(5), 2), (at(1_000), 1), (at(5_000), 1), (None, 1)]);
        assert_eq!((found.count(), found.sum), (7, times.iter().sum()));
    }
}
