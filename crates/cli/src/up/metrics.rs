//! What the node did, from its counters, in the form in which the server shows it as metrics.

use ostler_runtime::{HistogramSnapshot, LaneSnapshot, NodeHandle, PoolSnapshot};
use ostler_server::{Durations, LaneCounts, NodeCounters, NodeCounts, PoolCounts};

/// The counters of a node.
pub(super) struct CountersOfNode {
    pub(super) name: String,
    pub(super) node: NodeHandle,
}

impl NodeCounters for CountersOfNode {
    fn counts(&self) -> NodeCounts {
        let found = self.node.telemetry().counters();
        NodeCounts {
            node: self.name.clone(),
            session: self.node.session(),
            running: self.node.running() as u64,
            lanes: found.lanes.into_iter().map(lane).collect(),
            pools: found.pools.into_iter().map(pool).collect(),
            heartbeats: found.heartbeats,
            store_errors: found.store_errors,
            store_outages: found.store_outages,
            fenced: found.fenced,
        }
    }
}

fn lane(found: LaneSnapshot) -> LaneCounts {
    LaneCounts {
        queue: found.queue,
        submitted: found.submitted,
        started: found.started,
        ended: found.ended.into_iter().map(|(outcome, count)| (outcome.name(), count)).collect(),
        waited: durations(found.waited),
        took: durations(found.took),
    }
}

fn durations(found: HistogramSnapshot) -> Durations {
    Durations { buckets: found.buckets, sum: found.sum }
}

fn pool(found: PoolSnapshot) -> PoolCounts {
    PoolCounts {
        pool: found.queue,
        claimed: found.claimed,
        workers_started: found.workers_started,
        failed_starts: found.failed_starts,
        workers_recycled: found.workers_recycled,
        workers_crashed: found.workers_crashed,
        workers_stuck: found.workers_stuck,
        workers_stalled: found.workers_stalled,
    }
}
