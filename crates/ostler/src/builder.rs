//! Builder: opens a store, registers handlers and starts the pool.

mod handlers;
mod limits;
mod queue_plan;
mod secrets;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{EndKind, Overrides};
use ostler_exec::{Resources, ThreadPolicy};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, Presence, StoreNews, TakeOver, Unclassed};
use ostler_store::SystemClock;
use ostler_store::calls::{QueueChange, Retention};
use tokio::sync::mpsc;

use crate::callbacks::AttemptEnded;
use crate::client::DEFAULT_QUEUE;
use crate::error::OpenError;
use crate::ids::ids;
use crate::opening::StoreSource;
use crate::pool::Pool;
use queue_plan::QueuePlan;

/// Opens the embedded store in a file (`jobs.db` or `sqlite:jobs.db`), or the shared store at a URL such as
/// `postgres://user@host/database`, and returns a [`Builder`]. A missing store is created.
/// [`StoreUrl`](crate::StoreUrl) parses the text, for the command line as well. A PostgreSQL server is not contacted before
/// [`Builder::start`].
///
/// # Errors
/// When the file is not an Ostler store (the file is left unchanged) or cannot be written, or the URL is invalid.
pub fn open(place: impl AsRef<Path>) -> Result<Builder, OpenError> {
    StoreSource::at(place.as_ref()).map(Builder::new)
}

/// For tests: a new store that is gone with the program, in memory where the system has a file system for that. Everything else
/// is as with [`open`].
///
/// # Errors
/// When there is no place for it.
#[cfg(feature = "testing")]
pub fn open_memory() -> Result<Builder, OpenError> {
    StoreSource::temporary().map(Builder::new)
}

/// Configures a pool. Created by [`open`]; [`start`](Self::start) turns it into a running [`Pool`].
///
/// A pool serves one queue, or several: handlers, workers, limits and callbacks are those of the queue that was named last, by
/// [`queue`](Self::queue) or [`and_queue`](Self::and_queue).
pub struct Builder {
    source: StoreSource,
    /// The queues before the last one.
    before: Vec<QueuePlan>,
    /// The queue that settings apply to.
    plan: QueuePlan,
    shared: Resources,
    name: Option<String>,
    retention: Retention,
    lease: LeaseTimes,
    /// The first invalid setting; reported by `start`.
    refused: Option<ostler_store::Error>,
    take_over: TakeOver,
    presence: Option<Presence>,
    #[cfg(feature = "redis")]
    presence_times: Option<ostler_runtime::PresenceTimes>,
    store_news: Option<OnStoreNews>,
    #[cfg(feature = "process")]
    supervisor: Option<ostler_process::supervisor::SupervisorProgram>,
}

/// The callback for changes in the store's availability.
type OnStoreNews = Box<dyn Fn(StoreNews) + Send>;
/// Maximum pending notifications about the store.
const MAX_NEWS: usize = 16;

impl Builder {
    fn new(source: StoreSource) -> Self {
        Self {
            source,
            before: Vec::new(),
            plan: QueuePlan::new(DEFAULT_QUEUE),
            shared: Resources::default(),
            name: None,
            retention: Retention::default(),
            lease: LeaseTimes::default(),
            refused: None,
            take_over: TakeOver::No,
            presence: None,
            #[cfg(feature = "redis")]
            presence_times: None,
            store_news: None,
            #[cfg(feature = "process")]
            supervisor: None,
        }
    }

    /// Names the queue that the pool serves and submits to. Default: "default".
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.plan.queue = queue.into();
        self
    }

    /// Adds another queue to the pool: handlers and settings that follow are those of this queue, with workers of its own. The
    /// pool submits to its first queue; [`Pool::on`] names another.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = ostler::open("jobs.db")?
    ///     .handle("mail", |to: String, _ctx| async move { Ok(to) })
    ///     .workers(8)
    ///     .and_queue("thumbnails")
    ///     .handle("resize", |path: String, _ctx| async move { Ok(path) })
    ///     .workers(2)
    ///     .start()
    ///     .await?;
    /// pool.submit("mail", &"ada@example.org").await?;
    /// pool.on("thumbnails").submit("resize", &"a.png").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn and_queue(mut self, queue: impl Into<String>) -> Self {
        let before = std::mem::replace(&mut self.plan, QueuePlan::new(queue));
        self.before.push(before);
        self
    }

    /// Names the pool, for people who look at the running system. Default: its process id. Not unique: two processes may share
    /// a name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Shares a value with all handlers of the pool, such as a client or a connection pool: they get it with
    /// [`Context::shared`](crate::Context::shared). One value of each type.
    ///
    /// ```no_run
    /// struct Mailer;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = ostler::open("jobs.db")?
    ///     .share(Mailer)
    ///     .handle("mail", |to: String, ctx| async move {
    ///         let _mailer: &Mailer = ctx.shared()?;
    ///         Ok(to)
    ///     })
    ///     .start()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared = self.shared.with(value);
        self
    }

    /// Sets how long finished tasks of the store are kept: completed and cancelled ones, and failed ones. Default: 7 days and 30.
    #[must_use]
    pub const fn keep_for(mut self, completed: Duration, failed: Duration) -> Self {
        self.retention = Retention { completed, failed, ..self.retention };
        self
    }

    /// Sets how many finished tasks of the store are kept at most: of those that completed or were cancelled, and of those that
    /// failed. Default: a million of each.
    #[must_use]
    pub const fn keep_most(mut self, tasks: u64) -> Self {
        self.retention.most = tasks;
        self
    }

    /// Configures the threads of [`handle_local`](Self::handle_local). Default: one per core, unless the environment
    /// variables `WORKER_POOL_SIZE` and `MAX_QUEUED_WORKERS` say otherwise.
    #[must_use]
    pub fn threads(mut self, policy: ThreadPolicy) -> Self {
        self.plan.threads = Some(policy);
        self
    }

    /// Sets how many handlers run at once. Default: 64; if all are of [`handle_local`](Self::handle_local), one per thread; if
    /// any is, at most [`most`](ThreadPolicy::most). [`start`](Self::start) refuses a higher number than that.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.plan.workers = Some(workers);
        self
    }

    /// Names the workers, for people who look at the running system: `resizer` makes `resizer-1`, `resizer-2`, and so on. Default:
    /// the name of the queue.
    #[must_use]
    pub fn worker_name(mut self, name: impl Into<String>) -> Self {
        self.plan.worker_name = Some(name.into());
        self
    }

    /// Lets the number of concurrent handlers vary between `min` and `max`: workers are added while tasks wait, and removed
    /// after five idle minutes. See [`scale_up_at`](Self::scale_up_at) and [`idle_timeout`](Self::idle_timeout).
    #[must_use]
    pub fn workers_between(mut self, min: usize, max: usize) -> Self {
        self.plan.workers = Some(max);
        self.plan.least = Some(min);
        self
    }

    /// Adds workers only when this many tasks wait and no worker is idle. Default: 1.
    #[must_use]
    pub fn scale_up_at(mut self, waiting: usize) -> Self {
        self.plan.scale_up_at = Some(waiting);
        self
    }

    /// Removes a worker above the minimum after it has been idle this long. Default: five minutes.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.plan.idle_timeout = Some(timeout);
        self
    }

    /// Sets attempts, backoff and timeout for tasks of the queue that do not set their own. Stored with the queue, so it applies to every
    /// process.
    #[must_use]
    pub fn defaults(mut self, overrides: Overrides) -> Self {
        self.plan.changes.push(QueueChange::Overrides(overrides));
        self
    }

    /// Sets attempts, backoff and timeout for tasks of one kind that do not set their own. Takes precedence over
    /// [`defaults`](Self::defaults). Stored with the queue, so it applies to every process.
    #[must_use]
    pub fn defaults_of(mut self, kind: impl Into<String>, overrides: Overrides) -> Self {
        self.plan.changes.push(QueueChange::KindOverrides(kind.into(), overrides));
        self
    }

    /// Limits how many tasks may wait in the queue. Beyond it, submissions fail with
    /// [`SubmitError::QueueFull`](crate::SubmitError::QueueFull). Stored with the queue, so it applies to every process.
    #[must_use]
    pub fn queue_limit(mut self, limit: u64) -> Self {
        self.plan.changes.push(QueueChange::Limit(Some(limit)));
        self
    }

    /// Sets the class of errors, including panics, that are classified neither by their own type, nor by the handler, nor
    /// by the system. Default: transient.
    #[must_use]
    pub fn unclassed(mut self, unclassed: Unclassed) -> Self {
        self.plan.unclassed = unclassed;
        self
    }

    /// Sets a callback for completed tasks of the queue, whichever process ran them. It is called after the commit and at
    /// least once: if this process is killed in between, it is called after the next start. It runs separately from the
    /// workers and delays none of them; after a minute it is abandoned.
    #[must_use]
    pub fn on_completed<F, R>(self, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on(EndKind::Completed, callback)
    }

    /// Like [`on_completed`](Self::on_completed), for tasks that have failed permanently.
    #[must_use]
    pub fn on_failed<F, R>(self, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on(EndKind::Failed, callback)
    }

    /// Like [`on_completed`](Self::on_completed), for attempts that have failed and are retried.
    #[must_use]
    pub fn on_retry<F, R>(self, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on(EndKind::Retry, callback)
    }

    fn on<F, R>(mut self, what: EndKind, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.plan.callbacks.set(what, callback);
        self
    }

    /// Sets a callback for logs and monitors, called once when the pool cannot use its store and once when it can again.
    /// Submissions return their own errors. After [`StoreNews::Gone`] the pool has stopped its work and can only be
    /// drained.
    #[must_use]
    pub fn on_store_news(mut self, callback: impl Fn(StoreNews) + Send + 'static) -> Self {
        self.store_news = Some(Box::new(callback));
        self
    }

    /// Applies this pool's settings of the queue even if a live process has different ones. Without this, such a pool fails
    /// to start.
    #[must_use]
    pub fn take_over(mut self) -> Self {
        self.take_over = TakeOver::Yes;
        self
    }

    /// Sets lease duration, heartbeat and poll interval. Default: 60 s, 15 s and 5 s.
    #[must_use]
    pub fn lease(mut self, times: LeaseTimes) -> Self {
        self.lease = times;
        self
    }

    /// Sets how long a handler may take to stop after it was asked to. Default: 5 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.plan.grace = grace;
        self
    }

    /// Announces the pool in the Redis server at this URL, such as `redis://cache:6379`, for external monitors. The pool
    /// works without it. An invalid URL makes [`start`](Self::start) fail.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn presence(mut self, url: &str) -> Self {
        match ostler_runtime::RedisAddress::parse(url) {
            Ok(address) => self.presence = Some(Presence::new(address)),
            Err(error) => self.refused = Some(ostler_store::Error::invalid(format!("presence: {error}"))),
        }
        self
    }

    /// Sets how often the presence is refreshed and how long it lasts without a refresh. Default: every 10 s, for 30 s.
    /// Times that cannot work make [`start`](Self::start) fail.
    #[cfg(feature = "redis")]
    #[must_use]
    pub const fn presence_times(mut self, times: ostler_runtime::PresenceTimes) -> Self {
        self.presence_times = Some(times);
        self
    }

    /// Gives the handlers of the queue a gateway, which they ask by [`Context::gateway`](crate::Context::gateway): an
    /// [`AgentPolicy`](crate::agent::AgentPolicy) for agents of this program, which needs
    /// [`process::init`](crate::process::init), or a [`GatewayPolicy`](crate::agent::GatewayPolicy) for a server elsewhere. The
    /// token of the latter is one of the queue's secrets. Worker processes may have one too.
    #[cfg(feature = "agent")]
    #[must_use]
    pub fn gateway(mut self, gateway: impl Into<ostler_agent::gateway::GatewaySettings>) -> Self {
        self.plan.gateway = Some(gateway.into());
        self
    }

    #[cfg(feature = "process")]
    pub(crate) fn set_spec(&mut self, spec: Box<dyn ostler_config::PoolSpec>) {
        self.plan.spec = Some(spec);
    }

    #[cfg(feature = "process")]
    pub(crate) fn set_supervisor(&mut self, program: ostler_process::supervisor::SupervisorProgram) {
        self.supervisor = Some(program);
    }

    /// Starts the pool, which begins to claim tasks.
    ///
    /// # Errors
    /// When settings are invalid or conflict with those of a live process, a queue has both handlers and an executor, or the
    /// store returns an error.
    pub async fn start(self) -> Result<Pool, OpenError> {
        if let Some(error) = self.refused {
            return Err(error.into());
        }
        #[cfg(feature = "redis")]
        let presence = match (self.presence, self.presence_times) {
            (Some(presence), Some(times)) => Some(presence.beating(times)),
            (presence, _) => presence,
        };
        #[cfg(not(feature = "redis"))]
        let presence = self.presence;
        let plans: Vec<QueuePlan> = self.before.into_iter().chain([self.plan]).collect();
        let resources = Resources::default();
        #[cfg(feature = "process")]
        let (resources, supervisor) = if plans.iter().any(QueuePlan::has_children) {
            let supervisor = crate::process::start_supervisor(self.supervisor).await?;
            (resources.with(supervisor.clone()), Some(supervisor))
        } else {
            (resources, None)
        };
        let store = self.source.open().await?;
        let (shared, mut pools) = (Arc::new(self.shared), Vec::with_capacity(plans.len()));
        for plan in plans {
            pools.push(plan.build(&resources, &shared, &store.store).await?);
        }
        let first = pools[0].clone();
        let ids = ids()?;
        let parts =
            NodeDeps { store: Arc::clone(&store.store), clock: Arc::new(SystemClock), ids: Arc::clone(&ids) };
        let name = self.name.unwrap_or_else(|| format!("pid {}", std::process::id()));
        let store_news = self.store_news.map(|callback| {
            let (sender, mut news) = mpsc::channel(MAX_NEWS);
            tokio::spawn(async move {
                while let Some(news) = news.recv().await {
                    callback(news);
                }
            });
            sender
        });
        let config = NodeConfig {
            lease: self.lease,
            retention: self.retention,
            store_news,
            take_over: self.take_over,
            presence,
            ..NodeConfig::new(name, pools)
        };
        #[cfg(feature = "process")]
        let config = crate::process::supervised(config, supervisor.as_ref());
        let node = Node::start(parts, config).await?;
        Ok(Pool::new(
            store,
            node,
            first,
            self.retention,
            ids,
            #[cfg(feature = "process")]
            supervisor,
        ))
    }
}
