//! Statistics computed from a survey.

use std::collections::BTreeMap;

use ostler_core::WorkerState;

use crate::views::{Counts, LaneRecord, Survey};

/// Statistics of a store, or of one queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tasks by state; tasks in terminal states are counted forever, pruned or not, until they are replayed.
    pub tasks: Counts,
    /// Totals since the store was created. These numbers only rise.
    pub totals: Totals,
    /// The most tasks that ever waited at once in the queue; of several queues, in any one of them.
    pub queue_high_water: u64,
    /// Workers of live nodes.
    pub workers: WorkerCounts,
    /// Durations of the last runs of all kinds together: the runs that `kinds` covers.
    pub all_kinds: KindStats,
    /// Durations of the last runs, by kind.
    pub kinds: BTreeMap<String, KindStats>,
}

/// Totals over the life of a store: neither a replay, nor a drop, nor pruning reduces them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Enqueued tasks.
    pub submitted: u64,
    /// How often a task completed.
    pub completed: u64,
    /// How often a task ended in `failed`.
    pub failed: u64,
    /// How often a task was cancelled.
    pub cancelled: u64,
    /// Attempts that started.
    pub attempts: u64,
    /// Failed attempts after which the task was queued again.
    pub retried: u64,
    /// How often a failed or cancelled task was replayed.
    pub replayed: u64,
}

impl Totals {
    /// The totals of a lane. A replayed task leaves the count of `failed`, but not the total.
    #[must_use]
    pub const fn of(lane: &LaneRecord) -> Self {
        let (counts, tally) = (&lane.counts, &lane.tally);
        Self {
            submitted: counts.submitted(),
            completed: counts.completed,
            failed: counts.failed + tally.replayed_failed,
            cancelled: counts.cancelled + tally.replayed_cancelled,
            attempts: tally.attempts,
            retried: tally.retried,
            replayed: tally.replayed_failed + tally.replayed_cancelled,
        }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            submitted: self.submitted + other.submitted,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            attempts: self.attempts + other.attempts,
            retried: self.retried + other.retried,
            replayed: self.replayed + other.replayed,
        }
    }
}

/// Workers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// All workers.
    pub total: u64,
    /// Idle workers.
    pub idle: u64,
    /// Workers that run an attempt.
    pub busy: u64,
}

/// Durations of the last runs of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindStats {
    /// The number of runs: the last hundred of each lane, or fewer.
    pub count: u64,
    /// The average.
    pub avg_ms: f64,
    /// The median.
    pub p50_ms: u32,
    /// The 99th percentile.
    pub p99_ms: u32,
}

impl Stats {
    /// The statistics of one queue, or of all.
    #[must_use]
    pub fn of(survey: &Survey, queue: Option<&str>) -> Self {
        let wanted = |name: &str| queue.is_none_or(|queue| queue == name);
        let mut stats = Self::default();
        let mut runs: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for lane in survey.lanes.iter().filter(|lane| wanted(&lane.queue)) {
            stats.tasks = stats.tasks.plus(lane.counts);
            stats.totals = stats.totals.plus(Totals::of(lane));
            runs.entry(&lane.kind).or_default().extend(&lane.recent_ms);
        }
        let highs = survey.queues.iter().filter(|queue| wanted(&queue.name)).map(|queue| queue.high_water);
        stats.queue_high_water = highs.max().unwrap_or(0);
        for record in survey.workers.iter().filter(|record| wanted(&record.worker.pool)) {
            stats.workers.total += 1;
            match record.worker.state {
                WorkerState::Idle => stats.workers.idle += 1,
                WorkerState::Busy | WorkerState::Draining => stats.workers.busy += 1,
                WorkerState::Starting | WorkerState::Killed | WorkerState::Unresponsive => {}
            }
        }
        stats.all_kinds = KindStats::of(runs.values().flatten().copied().collect());
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
        // The smallest value that this percentage of runs does not exceed.
        let at = |percent: usize| runs[(runs.len() * percent).div_ceil(100).saturating_sub(1).min(last)];
        Self { count: runs.len() as u64, avg_ms: sum / runs.len() as f64, p50_ms: at(50), p99_ms: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::{LaneTotals, QueueRecord, QueueSettings};

    fn lane(queue: &str, kind: &str, queued: u64, recent_ms: Vec<u32>) -> LaneRecord {
        let counts = Counts { queued, completed: recent_ms.len() as u64, ..Counts::default() };
        LaneRecord { queue: queue.into(), kind: kind.into(), counts, tally: LaneTotals::default(), recent_ms }
    }

    fn queue(name: &str, high_water: u64) -> QueueRecord {
        let settings = QueueSettings::default();
        QueueRecord {
            name: name.into(),
            high_water,
            settings,
            held_until: None,
            breaker: None,
            shut: None,
            spending: None,
        }
    }

    #[test]
    fn lanes_are_added_up_and_a_queue_can_be_asked_for_alone() {
        let survey = Survey {
            lanes: vec![
                lane("a", "x", 2, vec![10, 30]),
                lane("b", "x", 1, vec![20]),
                lane("b", "y", 0, vec![100]),
                lane("b", "z", 0, vec![]),
            ],
            queues: vec![queue("a", 5), queue("b", 9)],
            ..Survey::default()
        };
        let all = Stats::of(&survey, None);
        assert_eq!((all.submitted(), all.tasks.queued, all.queue_high_water), (7, 3, 9));
        assert_eq!(all.kinds["x"], KindStats { count: 3, avg_ms: 20.0, p50_ms: 20, p99_ms: 30 });
        assert_eq!(all.kinds["z"], KindStats::default());
        assert_eq!(all.all_kinds, KindStats { count: 4, avg_ms: 40.0, p50_ms: 20, p99_ms: 100 });
        let one = Stats::of(&survey, Some("a"));
        assert_eq!((one.tasks.queued, one.queue_high_water, one.kinds.len()), (2, 5, 1));
        assert_eq!(one.all_kinds, KindStats { count: 2, avg_ms: 20.0, p50_ms: 10, p99_ms: 30 });
    }

    #[test]
    fn what_was_replayed_is_gone_from_its_state_and_not_from_the_totals() {
        let counts = Counts { queued: 1, completed: 2, failed: 3, cancelled: 4, ..Counts::default() };
        let tally = LaneTotals { attempts: 50, retried: 6, replayed_failed: 7, replayed_cancelled: 8 };
        let lane = LaneRecord { counts, tally, ..lane("a", "x", 0, vec![]) };
        let stats = Stats::of(&Survey { lanes: vec![lane], ..Survey::default() }, None);
        assert_eq!((stats.tasks.failed, stats.tasks.cancelled), (3, 4));
        let expected = Totals {
            submitted: 10,
            completed: 2,
            failed: 10,
            cancelled: 12,
            attempts: 50,
            retried: 6,
            replayed: 15,
        };
        assert_eq!(stats.totals, expected);
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let figures = KindStats::of((1..=100).collect());
        assert_eq!((figures.p50_ms, figures.p99_ms, figures.avg_ms), (50, 99, 50.5));
        assert_eq!(KindStats::of(vec![7]), KindStats { count: 1, avg_ms: 7.0, p50_ms: 7, p99_ms: 7 });
    }
}
