//! Medians and percentiles.

use std::time::Duration;

/// The middle value, or the mean of the two in the middle; zero if empty.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        even if even % 2 == 0 => f64::midpoint(values[half - 1], values[half]),
        _ => values[half],
    }
}

/// Durations of many samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The lowest sample that `percent` in a hundred do not exceed (nearest rank); zero if empty.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    /// The longest sample; zero if empty.
    pub(crate) fn max(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(millis: impl IntoIterator<Item = u64>) -> Samples {
        Samples(millis.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let hundred = samples((1..=100).rev());
        for percent in [1, 50, 99, 100] {
            assert_eq!(hundred.percentile(percent), Duration::from_millis(percent as u64));
        }
        assert_eq!(samples([7, 3, 5]).percentile(50), Duration::from_millis(5));
        assert_eq!(samples([3, 5]).percentile(99), Duration::from_millis(5));
        assert_eq!(samples([9]).percentile(50), Duration::from_millis(9));
    }

    #[test]
    fn of_nothing_everything_is_zero() {
        assert_eq!(samples([]).percentile(99), Duration::ZERO);
        assert_eq!(samples([]).max(), Duration::ZERO);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), 3.0);
    }
}
