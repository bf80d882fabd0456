//! Figures of a survey, as people ask for them.

use std::collections::BTreeMap;

use ostler_core::WorkerState;

use crate::views::{Counts, Survey};

/// How a store, or one queue of it, stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tasks by state; what has ended is counted for ever, pruned or not.
    pub tasks: Counts,
    /// The most that ever waited at once, in any one lane.
    pub queue_high_water: u64,
    /// Workers of living nodes.
    pub workers: WorkerCounts,
    /// For each kind, how long its last runs took.
    pub kinds: BTreeMap<String, KindStats>,
}

/// Workers by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// All of them.
    pub total: u64,
    /// With nothing to do.
    pub idle: u64,
    /// Running an attempt.
    pub busy: u64,
}

/// How long the last runs of a kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindStats {
    /// How many runs these figures are of: the last hundred of each lane, or fewer.
    pub count: u64,
    /// Their average.
    pub avg_ms: f64,
    /// Half of them took no longer.
    pub p50_ms: u32,
    /// All but one in a hundred took no longer.
    pub p99_ms: u32,
}

impl Stats {
    /// The figures of one queue, or of all.
    #[must_use]
    pub fn of(survey: &Survey, queue: Option<&str>) -> Self {
        let wanted = |name: &str| queue.is_none_or(|queue| queue == name);
        let mut stats = Self::default();
        let mut runs: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for lane in survey.lanes.iter().filter(|lane| wanted(&lane.queue)) {
            stats.tasks = stats.tasks.plus(lane.counts);
            stats.queue_high_water = stats.queue_high_water.max(lane.high_water);
            runs.entry(&lane.kind).or_default().extend(&lane.recent_ms);
        }
        for record in survey.workers.iter().filter(|record| wanted(&record.worker.pool)) {
            stats.workers.total += 1;
            match record.worker.state {
                WorkerState::Idle => stats.workers.idle += 1,
                WorkerState::Busy | WorkerState::Draining => stats.workers.busy += 1,
                WorkerState::Starting | WorkerState::Killed | WorkerState::Deaf => {}
            }
        }
        stats.kinds = runs.into_iter().map(|(kind, runs)| (kind.to_owned(), KindStats::of(runs))).collect();
        stats
    }

    /// All tasks that were ever enqueued.
    #[must_use]
    pub const fn submitted(&self) -> u64 {
        self.tasks.submitted()
    }
}

impl KindStats {
    fn of(mut runs: Vec<u32>) -> Self {
        runs.sort_unstable();
        let Some(last) = runs.len().checked_sub(1) else { return Self::default() };
        let sum: f64 = runs.iter().copied().map(f64::from).sum();
        // The smallest value that so many in a hundred do not exceed.
        let at = |percent: usize| runs[(runs.len() * percent).div_ceil(100).saturating_sub(1).min(last)];
        Self { count: runs.len() as u64, avg_ms: sum / runs.len() as f64, p50_ms: at(50), p99_ms: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::LaneRecord;

    fn lane(queue: &str, kind: &str, queued: u64, high_water: u64, recent_ms: Vec<u32>) -> LaneRecord {
        let counts = Counts { queued, completed: recent_ms.len() as u64, ..Counts::default() };
        LaneRecord { queue: queue.into(), kind: kind.into(), counts, high_water, recent_ms }
    }

    #[test]
    fn lanes_are_added_up_and_a_queue_can_be_asked_for_alone() {
        let survey = Survey {
            lanes: vec![
                lane("a", "x", 2, 5, vec![10, 30]),
                lane("b", "x", 1, 9, vec![20]),
                lane("b", "y", 0, 1, vec![]),
            ],
            ..Survey::default()
        };
        let all = Stats::of(&survey, None);
        assert_eq!((all.submitted(), all.tasks.queued, all.queue_high_water), (6, 3, 9));
        assert_eq!(all.kinds["x"], KindStats { count: 3, avg_ms: 20.0, p50_ms: 20, p99_ms: 30 });
        assert_eq!(all.kinds["y"], KindStats::default());
        let one = Stats::of(&survey, Some("a"));
        assert_eq!((one.tasks.queued, one.queue_high_water, one.kinds.len()), (2, 5, 1));
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let figures = KindStats::of((1..=100).collect());
        assert_eq!((figures.p50_ms, figures.p99_ms, figures.avg_ms), (50, 99, 50.5));
        assert_eq!(KindStats::of(vec![7]), KindStats { count: 1, avg_ms: 7.0, p50_ms: 7, p99_ms: 7 });
    }
}
