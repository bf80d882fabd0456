//! Configuration of a node and its pools, checked before start.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::price::PriceTable;
use ostler_core::{ErrorClass, Failure, MemoryPressure, Outcome};
use ostler_exec::{ClassSource, Executor, LivenessHolder};
use ostler_schedule::PlannedSchedule;
use ostler_store::calls::{QueueChange, Retention};
use ostler_store::{MAX_BATCH, MAX_CLAIM, check_name};
use tokio::sync::mpsc;

use crate::outbox::EndListener;
use crate::presence::Presence;
use crate::store_health::StoreNews;

/// A configuration error, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(String);

impl InvalidConfig {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

/// Lease duration, heartbeat and poll interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a lease lasts without renewal. Default: 60 s.
    pub ttl: Duration,
    /// The interval between renewals. Default: 15 s.
    pub heartbeat: Duration,
    /// How often a pool polls for work when no notification arrives. Default: 5 s.
    pub poll: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { ttl: seconds(60), heartbeat: seconds(15), poll: seconds(5) }
    }
}

/// When the start of an attempt is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// Before the work begins: for child processes, and for work that may take its node down.
    Durable,
    /// Together with the outcome, in one write. A task that was lost with a node before starts durably all the same.
    Lazy,
}

/// How many workers a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// The initial and minimum number.
    pub min: usize,
    /// The maximum number.
    pub max: usize,
    /// Workers are added when this many tasks wait and no worker is idle.
    pub scale_up_at: usize,
    /// A worker above the minimum stops after being idle this long.
    pub idle_timeout: Duration,
}

impl PoolSize {
    /// Default idle timeout of a worker above the minimum.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

    /// A fixed number of workers.
    #[must_use]
    pub const fn fixed(workers: usize) -> Self {
        Self::between(workers, workers)
    }

    /// From `min` to `max`: one worker is added for each waiting task.
    #[must_use]
    pub const fn between(min: usize, max: usize) -> Self {
        Self { min, max, scale_up_at: 1, idle_timeout: Self::IDLE_TIMEOUT }
    }

    fn check(&self, queue: &str) -> Result<(), InvalidConfig> {
        let Self { min, max, scale_up_at, .. } = *self;
        if max == 0 || max > MAX_CLAIM || min > max {
            return Err(InvalidConfig(format!(
                "the pool of queue \"{queue}\" has {min} to {max} workers: the minimum must not exceed the \
                 maximum, which must be from 1 to {MAX_CLAIM}"
            )));
        }
        if scale_up_at == 0 || scale_up_at > MAX_CLAIM {
            return Err(InvalidConfig(format!(
                "the pool of queue \"{queue}\" scales up at {scale_up_at} waiting tasks, but must do so at 1 to {MAX_CLAIM}"
            )));
        }
        Ok(())
    }
}

/// Whether a pool claims ahead of its workers. It does so only while its runs are short: a task that is held here cannot
/// run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Never: claims at most one task per worker.
    Off,
    /// At most this many tasks.
    UpTo(usize),
    /// As many as leave the pool with at most this many claimed tasks, running ones included.
    Within(usize),
}

impl Prefetch {
    /// Suits any pool: a batch size that stores write efficiently.
    const USUAL_LEAST: usize = 64;
    /// More gains nothing.
    const USUAL_MOST: usize = 512;

    /// A prefetch that suits short work on this many workers.
    #[must_use]
    pub fn usual(workers: usize) -> Self {
        Self::UpTo(workers.saturating_mul(2).clamp(Self::USUAL_LEAST, Self::USUAL_MOST))
    }

    /// The same, with a bound of all tasks that the pool has claimed.
    #[must_use]
    pub fn within(most: u32) -> Self {
        Self::Within(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// How many tasks a pool with these slots of workers may claim ahead.
    pub(crate) fn most(self, slots: usize) -> usize {
        match self {
            Self::Off => 0,
            Self::UpTo(most) => most,
            Self::Within(most) => most.saturating_sub(slots).min(Self::USUAL_MOST),
        }
    }
}

/// A pool: one queue, one executor, a number of workers.
#[derive(Clone)]
pub struct PoolConfig {
    pub queue: String,
    /// Workers are named after it, and numbered: `mail-1`, `mail-2`.
    pub worker_name: String,
    pub executor: Arc<dyn Executor>,
    /// How many workers the pool has. Each runs one attempt at a time, or as many as its executor says.
    pub size: PoolSize,
    pub prefetch: Prefetch,
    /// When the start of an attempt is written.
    pub beginning: StartMode,
    /// How long an attempt may take to stop after it was asked to.
    pub grace: Duration,
    /// Settings that the node applies to the queue. Every live node that serves the queue must have the same.
    pub settings: Vec<QueueChange>,
    /// Receives the outcomes of the queue's attempts.
    pub listeners: Vec<Arc<dyn EndListener>>,
    /// The class of unclassified failures.
    pub unclassed: Unclassed,
    /// What models cost, for usage that names a model and no cost.
    pub prices: Arc<PriceTable>,
    /// Why it is not known what its work costs, if so: budgets of its queue are refused.
    pub unpriced: Option<String>,
}

/// The class of unclassified failures: an exit code in no list, an error of the program's own type, a panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unclassed {
    /// The attempt may succeed when retried.
    #[default]
    Transient,
    /// A retry is useless.
    Permanent,
}

impl Unclassed {
    /// Applies the class to a failure whose class was only assumed.
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

/// What a node does when another live node has different settings for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeOver {
    /// Refuses to start.
    #[default]
    No,
    /// Applies its own settings.
    Yes,
}

impl PoolConfig {
    /// A pool for handlers in this process: a fixed number of workers, a grace of five seconds, lazy starts, and short work
    /// claimed ahead.
    #[must_use]
    pub fn new(queue: impl Into<String>, executor: Arc<dyn Executor>, workers: usize) -> Self {
        let queue = queue.into();
        Self {
            worker_name: queue.clone(),
            queue,
            executor,
            size: PoolSize::fixed(workers),
            prefetch: Prefetch::usual(workers),
            beginning: StartMode::Lazy,
            grace: Duration::from_secs(5),
            settings: Vec::new(),
            listeners: Vec::new(),
            unclassed: Unclassed::default(),
            prices: Arc::new(PriceTable::built_in()),
            unpriced: None,
        }
    }

    /// A pool for work outside this process: starts are on disk before the work begins, and nothing is claimed ahead.
    #[must_use]
    pub fn durable(queue: impl Into<String>, executor: Arc<dyn Executor>, workers: usize) -> Self {
        let (prefetch, beginning) = (Prefetch::Off, StartMode::Durable);
        Self { prefetch, beginning, ..Self::new(queue, executor, workers) }
    }

    /// How far it claims ahead: not at all if its queue has an account, so that nothing that was claimed before a hold of the account
    /// starts after it.
    pub(crate) fn claims_ahead(&self) -> Prefetch {
        let has_account = |change: &QueueChange| matches!(change, QueueChange::Account(Some(_)));
        if self.settings.iter().any(has_account) { Prefetch::Off } else { self.prefetch }
    }
}

/// Reports whether there is memory for more work. Called often; must not block.
pub type MemoryGauge = Arc<dyn Fn() -> MemoryPressure + Send + Sync>;

/// Configuration of a node.
#[derive(Clone)]
pub struct NodeConfig {
    /// The display name.
    pub name: String,
    pub lease: LeaseTimes,
    pub pools: Vec<PoolConfig>,
    /// Schedules that the node puts into the store at its start. One that exists already continues where it was.
    pub schedules: Vec<PlannedSchedule>,
    /// How long finished tasks are kept.
    pub retention: Retention,
    /// The interval of store maintenance.
    pub maintenance: Duration,
    /// What to do when another live node has different settings for a queue.
    pub take_over: TakeOver,
    /// Holds the liveness lock until the node's child processes are gone.
    pub guard: Option<Arc<dyn LivenessHolder>>,
    /// Whether there is memory for more work. When it is tight, pools have no more workers than their minimum, and each
    /// starts a task only when it runs nothing else.
    pub memory: MemoryGauge,
    /// Where the node announces itself to external monitors. Its work does not depend on it.
    pub presence: Option<Presence>,
    /// Notified when the store becomes unusable and when it is back. Notifications that find the channel full are dropped.
    pub store_news: Option<mpsc::Sender<StoreNews>>,
    /// Whether the owner of the node serves metrics of it and of the store.
    pub metrics: MetricsService,
}

/// Whether metrics of a node are served. Other nodes know it: one of those that serve them exports what the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsService {
    #[default]
    Absent,
    Served,
}

impl NodeConfig {
    /// A node with default times.
    #[must_use]
    pub fn new(name: impl Into<String>, pools: Vec<PoolConfig>) -> Self {
        Self {
            name: name.into(),
            lease: LeaseTimes::default(),
            pools,
            schedules: Vec::new(),
            retention: Retention::default(),
            maintenance: Duration::from_millis(500),
            take_over: TakeOver::No,
            guard: None,
            memory: Arc::new(|| MemoryPressure::Free),
            presence: None,
            store_news: None,
            metrics: MetricsService::Absent,
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// One sentence for the first rule that is broken.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        let refuse = |sentence: String| Err(InvalidConfig::new(sentence));
        let LeaseTimes { ttl, heartbeat, poll } = self.lease;
        if heartbeat.is_zero() || poll.is_zero() || self.maintenance.is_zero() {
            return refuse("lease.heartbeat, lease.poll and maintenance must be longer than zero".into());
        }
        if ttl < heartbeat * 2 {
            return refuse(format!(
                "lease.ttl is {ttl:?}, but must be at least two heartbeats ({heartbeat:?} each)"
            ));
        }
        if let Some(presence) = &self.presence {
            presence.check()?;
        }
        for pool in &self.pools {
            pool.size.check(&pool.queue)?;
            check_name("worker_name", &pool.worker_name)
                .map_err(|error| InvalidConfig::new(error.to_string()))?;
            let (queue, max) = (&pool.queue, pool.size.max);
            if let Some(most) = pool.executor.capacity().filter(|most| *most < max) {
                return refuse(format!(
                    "the pool of queue \"{queue}\" has up to {max} workers, but its executor runs at most {most} tasks at once"
                ));
            }
        }
        let slots = |pool: &PoolConfig| pool.size.max * pool.executor.per_worker();
        let most: usize = self.pools.iter().map(|pool| slots(pool) + pool.prefetch.most(slots(pool))).sum();
        if most > MAX_BATCH {
            return refuse(format!(
                "the pools together could hold {most} tasks (workers and prefetch), but at most {MAX_BATCH} are renewed at \
                 once"
            ));
        }
        let queues: std::collections::BTreeSet<&str> =
            self.pools.iter().map(|pool| pool.queue.as_str()).collect();
        if queues.len() < self.pools.len() {
            return refuse("two pools serve the same queue; a node can have only one pool per queue".into());
        }
        Ok(())
    }
}
