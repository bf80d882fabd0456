//! The settings of a node, valid by construction.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, MemoryPressure, Outcome};
use ostler_exec::{ClassSource, Executor, LivenessHolder};
use ostler_store::calls::{QueueChange, Retention};
use ostler_store::{MAX_BATCH, MAX_CLAIM};
use tokio::sync::mpsc;

use crate::outbox::EndListener;
use crate::presence::Presence;
use crate::schedules::PlannedSchedule;
use crate::store_health::StoreNews;

/// Why settings cannot work, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(String);

impl InvalidConfig {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

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
pub enum StartMode {
    /// Before the work begins: for children, and for what may take its node down.
    Durable,
    /// Together with its end, in one write. A task that was lost with a node before starts durably all the same.
    Lazy,
}

/// How many workers a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// So many from the start, and never fewer.
    pub min: usize,
    /// Never more.
    pub max: usize,
    /// More come when this many tasks wait and nobody is idle.
    pub scale_up_at: usize,
    /// One that had nothing to do for this long goes, down to the minimum.
    pub idle_timeout: Duration,
}

impl PoolSize {
    /// How long a worker above the minimum stays idle, unless told otherwise.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

    /// Always this many.
    #[must_use]
    pub const fn fixed(workers: usize) -> Self {
        Self::between(workers, workers)
    }

    /// From `min` to `max`: one comes for each task that waits.
    #[must_use]
    pub const fn between(min: usize, max: usize) -> Self {
        Self { min, max, scale_up_at: 1, idle_timeout: Self::IDLE_TIMEOUT }
    }

    fn check(&self, queue: &str) -> Result<(), InvalidConfig> {
        let Self { min, max, scale_up_at, .. } = *self;
        if max == 0 || max > MAX_CLAIM || min > max {
            return Err(InvalidConfig(format!(
                "the pool of queue \"{queue}\" has {min} to {max} workers, and must have at most 1 to {MAX_CLAIM}, and \
                 at least no more than that"
            )));
        }
        if scale_up_at == 0 || scale_up_at > MAX_CLAIM {
            return Err(InvalidConfig(format!(
                "the pool of queue \"{queue}\" scales up at {scale_up_at} waiting tasks, and must do so at 1 to {MAX_CLAIM}"
            )));
        }
        Ok(())
    }
}

/// Whether a pool claims ahead of its workers. It does so only while its runs are short: what is held here cannot be run
/// elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Never: as much as there are workers, and no more.
    Off,
    /// At most this many tasks.
    UpTo(usize),
}

impl Prefetch {
    /// So many are good for any pool: a batch that a store writes well.
    const USUAL_LEAST: usize = 64;
    /// More bring nothing.
    const USUAL_MOST: usize = 512;

    /// What suits short work on so many workers.
    #[must_use]
    pub fn usual(workers: usize) -> Self {
        Self::UpTo(workers.saturating_mul(2).clamp(Self::USUAL_LEAST, Self::USUAL_MOST))
    }

    fn most(self) -> usize {
        match self {
            Self::Off => 0,
            Self::UpTo(most) => most,
        }
    }
}

/// A pool: one queue, one executor, so many workers.
#[derive(Clone)]
pub struct PoolConfig {
    /// The queue it serves.
    pub queue: String,
    /// What runs its work.
    pub executor: Arc<dyn Executor>,
    /// How many workers it has; each runs one attempt at a time.
    pub size: PoolSize,
    /// Whether it claims ahead.
    pub prefetch: Prefetch,
    /// How the start of an attempt is written.
    pub beginning: StartMode,
    /// How long an attempt may take to stop when it is told to.
    pub grace: Duration,
    /// Settings that the node brings for the queue. Another living node that serves it must bring the same.
    pub settings: Vec<QueueChange>,
    /// Who is told how its attempts ended.
    pub listener: Option<Arc<dyn EndListener>>,
    /// What a failure is that nobody has classed.
    pub unclassed: Unclassed,
}

/// What a failure is that nobody has classed: an exit code in no list, an error of a program's own, a panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unclassed {
    /// It may work next time.
    #[default]
    Transient,
    /// It will never work.
    Permanent,
}

impl Unclassed {
    /// The outcome, with the class that is assumed where nobody has said one.
    pub(crate) fn judge(self, outcome: Outcome, classing: ClassSource) -> Outcome {
        match (outcome, classing, self) {
            (Outcome::Failed(failure), ClassSource::Assumed, Self::Permanent) => {
                Outcome::Failed(Failure { class: ErrorClass::Permanent, ..failure })
            }
            (outcome, ClassSource::Assumed | ClassSource::Given, Self::Permanent | Self::Transient) => {
                outcome
            }
        }
    }
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
    /// A pool for handlers in this process: a fixed number of workers, the usual grace of five seconds, lazy beginnings, and
    /// short work claimed ahead.
    #[must_use]
    pub fn new(queue: impl Into<String>, executor: Arc<dyn Executor>, workers: usize) -> Self {
        Self {
            queue: queue.into(),
            executor,
            size: PoolSize::fixed(workers),
            prefetch: Prefetch::usual(workers),
            beginning: StartMode::Lazy,
            grace: Duration::from_secs(5),
            settings: Vec::new(),
            listener: None,
            unclassed: Unclassed::default(),
        }
    }

    /// A pool for work outside of this process: its starts are on disk before it begins, and nothing is claimed ahead.
    #[must_use]
    pub fn durable(queue: impl Into<String>, executor: Arc<dyn Executor>, workers: usize) -> Self {
        let (prefetch, beginning) = (Prefetch::Off, StartMode::Durable);
        Self { prefetch, beginning, ..Self::new(queue, executor, workers) }
    }
}

/// Whether there is memory for more work; it is asked often, and must answer at once.
pub type MemoryGauge = Arc<dyn Fn() -> MemoryPressure + Send + Sync>;

/// A node.
#[derive(Clone)]
pub struct NodeConfig {
    /// What people call it.
    pub name: String,
    /// How leases are kept.
    pub lease: LeaseTimes,
    /// Its pools.
    pub pools: Vec<PoolConfig>,
    /// Schedules that it brings to the store. One that is there already goes on where it was.
    pub schedules: Vec<PlannedSchedule>,
    /// What is kept of finished tasks.
    pub retention: Retention,
    /// How often the store is looked after.
    pub upkeep: Duration,
    /// What happens when another living node has other settings for a queue.
    pub take_over: TakeOver,
    /// Who keeps its proof of life until its children are gone, where it has any.
    pub guard: Option<Arc<dyn LivenessHolder>>,
    /// Whether there is memory for more work. When it is tight, pools have no more workers than their minimum, and each begins a
    /// task only when it runs nothing else.
    pub memory: MemoryGauge,
    /// Where it says that it is there, for monitors outside. Its work does not depend on it.
    pub presence: Option<Presence>,
    /// Who is told when its store cannot be used, and when it can again. What finds no room is not told.
    pub store_news: Option<mpsc::Sender<StoreNews>>,
}

impl NodeConfig {
    /// A node with the usual times.
    #[must_use]
    pub fn new(name: impl Into<String>, pools: Vec<PoolConfig>) -> Self {
        Self {
            name: name.into(),
            lease: LeaseTimes::default(),
            pools,
            schedules: Vec::new(),
            retention: Retention::default(),
            upkeep: Duration::from_millis(500),
            take_over: TakeOver::No,
            guard: None,
            memory: Arc::new(|| MemoryPressure::Free),
            presence: None,
            store_news: None,
        }
    }

    /// That these settings can work.
    ///
    /// # Errors
    /// One sentence for the first rule that is broken.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        let refuse = |sentence: String| Err(InvalidConfig::new(sentence));
        let LeaseTimes { ttl, heartbeat, poll } = self.lease;
        if heartbeat.is_zero() || poll.is_zero() || self.upkeep.is_zero() {
            return refuse("lease.heartbeat, lease.poll and upkeep must be longer than zero".into());
        }
        if ttl < heartbeat * 2 {
            return refuse(format!(
                "lease.ttl is {ttl:?}, and must be at least two heartbeats ({heartbeat:?} each)"
            ));
        }
        if let Some(presence) = &self.presence {
            presence.check()?;
        }
        for pool in &self.pools {
            pool.size.check(&pool.queue)?;
            let (queue, max) = (&pool.queue, pool.size.max);
            if let Some(most) = pool.executor.capacity().filter(|most| *most < max) {
                return refuse(format!(
                    "the pool of queue \"{queue}\" has up to {max} workers, and what runs its work takes at most {most} at once"
                ));
            }
        }
        let most: usize = self.pools.iter().map(|pool| pool.size.max + pool.prefetch.most()).sum();
        if most > MAX_BATCH {
            return refuse(format!(
                "the pools together could hold {most} tasks (workers and prefetch), and at most {MAX_BATCH} are renewed at \
                 once"
            ));
        }
        let queues: std::collections::BTreeSet<&str> =
            self.pools.iter().map(|pool| pool.queue.as_str()).collect();
        if queues.len() < self.pools.len() {
            return refuse("two pools serve one queue; a queue has one pool in a node".into());
        }
        Ok(())
    }
}
