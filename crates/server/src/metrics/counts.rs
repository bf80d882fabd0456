//! What a node did, as the program that embeds the server counts it: plain numbers, which only rise.

use std::time::Duration;

use ostler_core::SessionId;

/// Tells what a node did.
pub trait NodeCounters: Send + Sync {
    fn counts(&self) -> NodeCounts;
}

/// What a node did since it started.
#[derive(Clone, Debug)]
pub struct NodeCounts {
    /// The name of the node.
    pub node: String,
    /// Its current session.
    pub session: SessionId,
    /// Attempts that run now.
    pub running: u64,
    /// By queue; several may have the same one.
    pub lanes: Vec<LaneCounts>,
    /// By pool.
    pub pools: Vec<PoolCounts>,
    pub heartbeats: u64,
    pub store_errors: u64,
    pub store_outages: u64,
    /// How often it lost its leases.
    pub fenced: u64,
}

/// What a node did with the tasks of a queue.
#[derive(Clone, Debug, Default)]
pub struct LaneCounts {
    pub queue: String,
    pub submitted: u64,
    pub started: u64,
    /// Attempts that ended, by outcome.
    pub ended: Vec<(&'static str, u64)>,
    /// From submission to first start.
    pub waited: Durations,
    /// From the start of an attempt to its end.
    pub took: Durations,
}

/// A distribution of durations.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// The upper bound of each bucket, ascending, and how many are in it alone. The last one has no bound.
    pub buckets: Vec<(Option<Duration>, u64)>,
    pub sum: Duration,
}

impl Durations {
    /// Adds another one, which has the same buckets unless one of them is empty.
    pub(super) fn add(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
                *count += more;
            }
        }
        self.sum += other.sum;
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// What a node did for a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolCounts {
    pub pool: String,
    /// Tasks that it claimed.
    pub claimed: u64,
    pub workers_started: u64,
    pub failed_starts: u64,
    pub workers_recycled: u64,
    pub workers_crashed: u64,
    pub workers_stuck: u64,
    pub workers_stalled: u64,
}
