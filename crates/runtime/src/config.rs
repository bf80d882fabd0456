//! The settings of a node, valid by construction.

use std::sync::Arc;
use std::time::Duration;

use ostler_exec::Executor;
use ostler_store::MAX_CLAIM;
use ostler_store::calls::{QueueChange, Retention};

/// Why settings cannot work, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(String);

/// How leases are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a lease holds without a renewal.
    pub ttl: Duration,
    /// How often it is renewed.
    pub heartbeat: Duration,
    /// How often a pool looks for work when nobody says that there is some.
    pub poll: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { ttl: seconds(60), heartbeat: seconds(15), poll: seconds(5) }
    }
}

/// How the start of an attempt is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Before the work begins: for children, and for what may take its node down.
    Durable,
    /// Together with its end, in one write. A task that was lost with a node before starts durably all the same.
    Lazy,
}

/// A pool: one queue, one executor, so many workers.
#[derive(Clone)]
pub struct PoolConfig {
    /// The queue it serves.
    pub queue: String,
    /// What runs its work.
    pub executor: Arc<dyn Executor>,
    /// How many attempts run at once.
    pub workers: usize,
    /// How the start of an attempt is written.
    pub beginning: Beginning,
    /// How long an attempt may take to stop when it is told to.
    pub grace: Duration,
    /// Settings that the node brings for the queue. Another living node that serves it must bring the same.
    pub settings: Vec<QueueChange>,
}

/// What a node does when another living node has other settings for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeOver {
    /// It does not start.
    #[default]
    No,
    /// Its own settings hold from now on.
    Yes,
}

impl PoolConfig {
    /// A pool with the usual grace of five seconds and lazy beginnings.
    #[must_use]
    pub fn new(queue: impl Into<String>, executor: Arc<dyn Executor>, workers: usize) -> Self {
        let grace = Duration::from_secs(5);
        Self {
            queue: queue.into(),
            executor,
            workers,
            beginning: Beginning::Lazy,
            grace,
            settings: Vec::new(),
        }
    }
}

/// A node.
#[derive(Clone)]
pub struct NodeConfig {
    /// What people call it.
    pub name: String,
    /// How leases are kept.
    pub lease: LeaseTimes,
    /// Its pools.
    pub pools: Vec<PoolConfig>,
    /// What is kept of finished tasks.
    pub retention: Retention,
    /// How often the store is looked after.
    pub upkeep: Duration,
    /// What happens when another living node has other settings for a queue.
    pub take_over: TakeOver,
}

impl NodeConfig {
    /// A node with the usual times.
    #[must_use]
    pub fn new(name: impl Into<String>, pools: Vec<PoolConfig>) -> Self {
        Self {
            name: name.into(),
            lease: LeaseTimes::default(),
            pools,
            retention: Retention::default(),
            upkeep: Duration::from_millis(500),
            take_over: TakeOver::No,
        }
    }

    /// That these settings can work.
    ///
    /// # Errors
    /// One sentence for the first rule that is broken.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        let refuse = |sentence: String| Err(InvalidConfig(sentence));
        let LeaseTimes { ttl, heartbeat, poll } = self.lease;
        if heartbeat.is_zero() || poll.is_zero() || self.upkeep.is_zero() {
            return refuse("lease.heartbeat, lease.poll and upkeep must be longer than zero".into());
        }
        if ttl < heartbeat * 2 {
            return refuse(format!(
                "lease.ttl is {ttl:?}, and must be at least two heartbeats ({heartbeat:?} each)"
            ));
        }
        for pool in &self.pools {
            if pool.workers == 0 || pool.workers > MAX_CLAIM {
                return refuse(format!(
                    "the pool of queue \"{}\" has {} workers, and must have 1 to {MAX_CLAIM}",
                    pool.queue, pool.workers
                ));
            }
        }
        let queues: std::collections::BTreeSet<&str> =
            self.pools.iter().map(|pool| pool.queue.as_str()).collect();
        if queues.len() < self.pools.len() {
            return refuse("two pools serve one queue; a queue has one pool in a node".into());
        }
        Ok(())
    }
}
