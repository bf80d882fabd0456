//! Counters of a node, by queue and kind: submissions, attempts and their outcomes, durations, and the fate of workers. They count
//! what this node did since it started; the store has the totals of all nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ostler_core::{Ending, StateName};
use ostler_store::calls::Finished;

use super::histogram::{Histogram, HistogramSnapshot};

/// Maximum pairs of queue and kind, since tasks may bring any kind. Further ones are counted together.
const MAX_LANES: usize = 200;
/// The queue and kind of what is counted together.
const OTHER: &str = "(other)";

/// What became of an attempt and its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// The task is completed.
    Completed,
    /// The attempt failed, and the task is retried.
    Retried,
    /// The task waits and is not to blame: a rate limit, a stopped queue, a spent budget.
    Postponed,
    /// The task is a dead letter.
    Failed,
    /// The task is cancelled.
    Cancelled,
    /// The task was returned to its queue unfinished.
    Returned,
    /// The lease was lost: the result does not count.
    Lost,
}

impl AttemptOutcome {
    /// Every outcome, in the order of a snapshot.
    pub const ALL: [Self; 7] = [
        Self::Completed,
        Self::Retried,
        Self::Postponed,
        Self::Failed,
        Self::Cancelled,
        Self::Returned,
        Self::Lost,
    ];

    /// The value of a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Retried => "retried",
            Self::Postponed => "postponed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Returned => "returned",
            Self::Lost => "lost",
        }
    }

    /// The outcome of an attempt, from how it ended and what the store made of that.
    pub(super) const fn of(ending: Ending, finished: Finished) -> Self {
        match (finished, ending) {
            (Finished::LeaseLost, _) => Self::Lost,
            (Finished::Recorded(StateName::Completed), _) => Self::Completed,
            (Finished::Recorded(StateName::Failed), _) => Self::Failed,
            (Finished::Recorded(StateName::Cancelled), _) => Self::Cancelled,
            (
                Finished::Recorded(StateName::Queued | StateName::Claimed | StateName::Running),
                Ending::Failed(class),
            ) => {
                if class.is_failure() {
                    Self::Retried
                } else {
                    Self::Postponed
                }
            }
            (
                Finished::Recorded(StateName::Queued | StateName::Claimed | StateName::Running),
                Ending::Success | Ending::NodeDied | Ending::HandedBack | Ending::Cancelled,
            ) => Self::Returned,
        }
    }
}

/// The counters of one queue and kind.
pub(super) struct LaneCounters {
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) submitted: AtomicU64,
    pub(super) started: AtomicU64,
    ended: [AtomicU64; AttemptOutcome::ALL.len()],
    /// From the submission of a task to its first start.
    pub(super) waited: Histogram,
    /// From the start of an attempt to its end.
    pub(super) took: Histogram,
}

impl LaneCounters {
    fn new(queue: &str, kind: &str) -> Arc<Self> {
        Arc::new(Self {
            queue: queue.into(),
            kind: kind.into(),
            submitted: AtomicU64::default(),
            started: AtomicU64::default(),
            ended: Default::default(),
            waited: Histogram::default(),
            took: Histogram::default(),
        })
    }

    pub(super) fn count_end(&self, outcome: AttemptOutcome) {
        self.ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn snapshot(&self) -> LaneSnapshot {
        let ended = AttemptOutcome::ALL.map(|outcome| (outcome, load(&self.ended[outcome as usize])));
        LaneSnapshot {
            queue: self.queue.to_string(),
            kind: self.kind.to_string(),
            submitted: load(&self.submitted),
            started: load(&self.started),
            ended: ended.to_vec(),
            waited: self.waited.snapshot(),
            took: self.took.snapshot(),
        }
    }
}

/// The counters of one pool: its claims, and its workers.
#[derive(Default)]
pub(super) struct PoolCounters {
    /// Tasks that claims have returned.
    pub(super) claimed: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) failed_starts: AtomicU64,
    pub(super) recycled: AtomicU64,
    pub(super) crashed: AtomicU64,
    pub(super) stuck: AtomicU64,
    pub(super) stalled: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Counters by kind.
type Kinds = HashMap<Arc<str>, Arc<LaneCounters>>;

/// All counters of a node.
pub(super) struct Counters {
    /// By queue.
    lanes: RwLock<HashMap<Arc<str>, Kinds>>,
    other: Arc<LaneCounters>,
    /// By queue. A node has a bounded number of pools at once, and pools of jobs come and go: those beyond the bound share one.
    pools: RwLock<BTreeMap<Arc<str>, Arc<PoolCounters>>>,
    pub(super) store_outages: AtomicU64,
    pub(super) store_errors: AtomicU64,
    pub(super) heartbeats: AtomicU64,
    pub(super) fenced: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            lanes: RwLock::default(),
            other: LaneCounters::new(OTHER, OTHER),
            pools: RwLock::default(),
            store_outages: AtomicU64::default(),
            store_errors: AtomicU64::default(),
            heartbeats: AtomicU64::default(),
            fenced: AtomicU64::default(),
        }
    }
}

impl Counters {
    /// The counters of a queue and kind.
    pub(super) fn lane(&self, queue: &str, kind: &str) -> Arc<LaneCounters> {
        let known = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = known.get(queue).and_then(|kinds| kinds.get(kind)) {
            return Arc::clone(lane);
        }
        drop(known);
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        if lanes.values().map(HashMap::len).sum::<usize>() >= MAX_LANES {
            return Arc::clone(&self.other);
        }
        let lane = LaneCounters::new(queue, kind);
        let kinds = lanes.entry(Arc::clone(&lane.queue)).or_default();
        Arc::clone(kinds.entry(Arc::clone(&lane.kind)).or_insert(lane))
    }

    /// The counters of a pool's workers.
    pub(super) fn pool(&self, queue: &str) -> Arc<PoolCounters> {
        let known = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = known.get(queue) {
            return Arc::clone(pool);
        }
        drop(known);
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let name = if pools.len() < MAX_LANES { queue } else { OTHER };
        Arc::clone(pools.entry(name.into()).or_default())
    }

    pub(super) fn snapshot(&self) -> CounterSnapshot {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        let mut lanes: Vec<LaneSnapshot> =
            lanes.values().flat_map(HashMap::values).map(|lane| lane.snapshot()).collect();
        lanes.sort_by(|one, other| (&one.queue, &one.kind).cmp(&(&other.queue, &other.kind)));
        lanes.push(self.other.snapshot());
        lanes.retain(|lane| lane.submitted > 0 || lane.started > 0);
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let pool = |(queue, pool): (&Arc<str>, &Arc<PoolCounters>)| PoolSnapshot {
            queue: queue.to_string(),
            claimed: load(&pool.claimed),
            workers_started: load(&pool.started),
            failed_starts: load(&pool.failed_starts),
            workers_recycled: load(&pool.recycled),
            workers_crashed: load(&pool.crashed),
            workers_stuck: load(&pool.stuck),
            workers_stalled: load(&pool.stalled),
        };
        CounterSnapshot {
            lanes,
            pools: pools.iter().map(pool).collect(),
            store_outages: load(&self.store_outages),
            store_errors: load(&self.store_errors),
            heartbeats: load(&self.heartbeats),
            fenced: load(&self.fenced),
        }
    }
}

/// What a node has counted since it started. Every number only rises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// By queue and kind.
    pub lanes: Vec<LaneSnapshot>,
    /// By queue.
    pub pools: Vec<PoolSnapshot>,
    /// How often the store could not be used.
    pub store_outages: u64,
    /// Calls of the store that failed.
    pub store_errors: u64,
    /// Renewals of the node's leases.
    pub heartbeats: u64,
    /// How often the node lost its leases.
    pub fenced: u64,
}

/// What a node has counted of the tasks of one queue and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSnapshot {
    pub queue: String,
    pub kind: String,
    /// Tasks that this node stored.
    pub submitted: u64,
    /// Attempts that started.
    pub started: u64,
    /// Attempts that ended, by outcome.
    pub ended: Vec<(AttemptOutcome, u64)>,
    /// From the submission of a task to its first start, including a delay that it was submitted with.
    pub waited: HistogramSnapshot,
    /// From the start of an attempt to its end.
    pub took: HistogramSnapshot,
}

impl LaneSnapshot {
    /// How many attempts had this outcome.
    #[must_use]
    pub fn ended(&self, outcome: AttemptOutcome) -> u64 {
        self.ended.iter().filter(|(found, _)| *found == outcome).map(|(_, count)| count).sum()
    }
}

/// What a node has counted of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSnapshot {
    pub queue: String,
    /// Tasks that were claimed.
    pub claimed: u64,
    pub workers_started: u64,
    /// Workers that did not start.
    pub failed_starts: u64,
    /// Workers that were replaced after their share of work, or on request.
    pub workers_recycled: u64,
    /// Workers that died by themselves.
    pub workers_crashed: u64,
    /// Workers that were killed because they did nothing.
    pub workers_stuck: u64,
    /// Workers that did not stop when they were asked to.
    pub workers_stalled: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_sets_are_bounded_and_what_is_beyond_is_counted_together() {
        let counters = Counters::default();
        for kind in 0..MAX_LANES + 50 {
            count(&counters.lane("mail", &kind.to_string()).started);
            count(&counters.pool(&kind.to_string()).crashed);
        }
        count(&counters.lane("mail", "7").started);
        let found = counters.snapshot();
        assert_eq!(found.lanes.len(), MAX_LANES + 1);
        let started = |kind: &str| found.lanes.iter().find(|lane| lane.kind == kind).map(|lane| lane.started);
        assert_eq!((started("7"), started(OTHER)), (Some(2), Some(50)));
        assert_eq!(found.pools.len(), MAX_LANES + 1);
        assert_eq!(found.pools.iter().map(|pool| pool.workers_crashed).sum::<u64>(), MAX_LANES as u64 + 50);
    }

    #[test]
    fn outcomes_follow_what_the_store_recorded() {
        use ostler_core::ErrorClass;
        let failed = Ending::Failed(ErrorClass::Crash);
        let limited = Ending::Failed(ErrorClass::RateLimited);
        let recorded = Finished::Recorded;
        for (ending, finished, outcome) in [
            (Ending::Success, recorded(StateName::Completed), AttemptOutcome::Completed),
            (failed, recorded(StateName::Queued), AttemptOutcome::Retried),
            (limited, recorded(StateName::Queued), AttemptOutcome::Postponed),
            (failed, recorded(StateName::Failed), AttemptOutcome::Failed),
            (failed, recorded(StateName::Cancelled), AttemptOutcome::Cancelled),
            (Ending::HandedBack, recorded(StateName::Queued), AttemptOutcome::Returned),
            (Ending::Success, Finished::LeaseLost, AttemptOutcome::Lost),
        ] {
            assert_eq!(AttemptOutcome::of(ending, finished), outcome);
        }
    }
}
