//! Builder: opens a store, registers handlers and starts the pool.

mod limits;
mod secrets;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{EndKind, Overrides};
use ostler_exec::{Context, Executor, Inline, Served, TaskError, ThreadPolicy, Threads};
use ostler_postgres::{Address, Postgres};
use ostler_runtime::{
    LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, PoolSize, Prefetch, Presence, StoreNews, TakeOver,
    Unclassed,
};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::SystemClock;
use ostler_store::calls::QueueChange;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::callbacks::{AttemptEnded, Callbacks};
use crate::error::OpenError;
use crate::ids::ids;
use crate::pool::{AnyStore, Pool};
use crate::store_url::{StoreUrl, StoreUrlError};
use secrets::SecretSettings;

/// Default number of concurrent handlers.
const WORKERS: usize = 64;
/// Default queue.
const QUEUE: &str = "default";

/// Opens the embedded store in a file (`jobs.db` or `sqlite:jobs.db`), or the shared store at a URL such as
/// `postgres://user@host/database`, and returns a [`Builder`]. A missing store is created. [`StoreUrl`] parses the text,
/// for the command line as well. A PostgreSQL server is not contacted before [`Builder::start`].
///
/// # Errors
/// When the file is not an Ostler store (the file is left unchanged) or cannot be written, or the URL is invalid.
pub fn open(place: impl AsRef<Path>) -> Result<Builder, OpenError> {
    let embedded = |path: &Path| Sqlite::open(path, Arc::new(SystemClock), Options::default()).map(Arc::new);
    let source = match place.as_ref().to_str().map(StoreUrl::parse) {
        Some(Ok(StoreUrl::Sqlite(path))) => StoreSource::Embedded(embedded(&path)?),
        Some(Ok(StoreUrl::Postgres(address))) => StoreSource::Shared(address),
        Some(Err(StoreUrlError::Postgres(error))) => return Err(error.into()),
        Some(Err(error)) => return Err(OpenError::Url(error)),
        // Not UTF-8, hence not a URL, but it may be a file name.
        None => StoreSource::Embedded(embedded(place.as_ref())?),
    };
    Ok(Builder {
        source,
        queue: QUEUE.to_owned(),
        handlers: Inline::new(),
        local: Vec::new(),
        threads: None,
        workers: None,
        least: None,
        scale_up_at: None,
        idle_timeout: None,
        lease: LeaseTimes::default(),
        changes: Vec::new(),
        refused: None,
        take_over: TakeOver::No,
        callbacks: None,
        unclassed: Unclassed::default(),
        grace: Duration::from_secs(5),
        presence: None,
        #[cfg(feature = "redis")]
        presence_times: None,
        store_news: None,
        secrets: SecretSettings::default(),
    })
}

/// The store to use.
enum StoreSource {
    /// An SQLite file, already open.
    Embedded(Arc<Sqlite>),
    /// A PostgreSQL database, opened by `start`.
    Shared(Address),
}

impl StoreSource {
    async fn open(self) -> Result<AnyStore, OpenError> {
        Ok(match self {
            Self::Embedded(store) => AnyStore::Embedded(store),
            Self::Shared(address) => {
                let options = ostler_postgres::Options::default();
                AnyStore::Shared(Arc::new(Postgres::open(address.secret(), options).await?))
            }
        })
    }
}

/// Registers a handler with threads once they are started.
type LocalHandlerFactory = Box<dyn FnOnce(Threads) -> Threads + Send>;

/// Configures a pool. Created by [`open`]; [`start`](Self::start) turns it into a running [`Pool`].
pub struct Builder {
    source: StoreSource,
    queue: String,
    handlers: Inline,
    local: Vec<LocalHandlerFactory>,
    threads: Option<ThreadPolicy>,
    workers: Option<usize>,
    least: Option<usize>,
    scale_up_at: Option<usize>,
    idle_timeout: Option<Duration>,
    lease: LeaseTimes,
    changes: Vec<QueueChange>,
    /// The first invalid setting; reported by `start`.
    refused: Option<ostler_store::Error>,
    take_over: TakeOver,
    callbacks: Option<Callbacks>,
    unclassed: Unclassed,
    grace: Duration,
    presence: Option<Presence>,
    #[cfg(feature = "redis")]
    presence_times: Option<ostler_runtime::PresenceTimes>,
    store_news: Option<OnStoreNews>,
    secrets: SecretSettings,
}

/// The callback for changes in the store's availability.
type OnStoreNews = Box<dyn Fn(StoreNews) + Send>;
/// Maximum pending notifications about the store.
const MAX_NEWS: usize = 16;

impl Builder {
    /// Sets the queue that the pool serves and submits to. Default: "default".
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Registers a handler for a kind of task. The payload is deserialized from JSON; a payload that does not fit is a
    /// permanent failure. The value returned by the handler is stored as the task's output, as JSON.
    #[must_use]
    pub fn handle<P, O, F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, TaskError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.handlers = self.handlers.handle(kind, move |payload, context| {
            let handler = Arc::clone(&handler);
            async move { call(handler.as_ref(), &payload, context).await }
        });
        self
    }

    /// Registers a handler whose future is not `Send`. It runs on a dedicated thread, one task at a time, and everything it
    /// spawns is dropped when it returns. A pool accepts either such handlers or those of [`handle`](Self::handle), not
    /// both.
    #[must_use]
    pub fn handle_local<P, O, F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        P: DeserializeOwned + 'static,
        O: Serialize + 'static,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, TaskError>> + 'static,
    {
        let (kind, handler) = (kind.into(), Arc::new(handler));
        self.local.push(Box::new(move |threads| {
            threads.handle(kind, move |payload, context| {
                let handler = Arc::clone(&handler);
                async move { call(handler.as_ref(), &payload, context).await }
            })
        }));
        self
    }

    /// Configures the threads of [`handle_local`](Self::handle_local). Default: one per core, unless the environment
    /// variables `WORKER_POOL_SIZE` and `MAX_QUEUED_WORKERS` say otherwise.
    #[must_use]
    pub fn threads(mut self, policy: ThreadPolicy) -> Self {
        self.threads = Some(policy);
        self
    }

    /// Sets how many handlers run at once. Default: 64; with [`handle_local`](Self::handle_local), one per thread and at
    /// most [`most`](ThreadPolicy::most). [`start`](Self::start) refuses a higher number than that.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Lets the number of concurrent handlers vary between `min` and `max`: workers are added while tasks wait, and removed
    /// after five idle minutes. See [`scale_up_at`](Self::scale_up_at) and [`idle_timeout`](Self::idle_timeout).
    #[must_use]
    pub fn workers_between(mut self, min: usize, max: usize) -> Self {
        self.workers = Some(max);
        self.least = Some(min);
        self
    }

    /// Adds workers only when this many tasks wait and no worker is idle. Default: 1.
    #[must_use]
    pub fn scale_up_at(mut self, waiting: usize) -> Self {
        self.scale_up_at = Some(waiting);
        self
    }

    /// Removes a worker above the minimum after it has been idle this long. Default: five minutes.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Sets attempts, backoff and timeout for tasks of the queue that do not set their own. Stored with the queue, so it applies to every
    /// process.
    #[must_use]
    pub fn defaults(mut self, overrides: Overrides) -> Self {
        self.changes.push(QueueChange::Overrides(overrides));
        self
    }

    /// Sets attempts, backoff and timeout for tasks of one kind that do not set their own. Takes precedence over
    /// [`defaults`](Self::defaults). Stored with the queue, so it applies to every process.
    #[must_use]
    pub fn defaults_of(mut self, kind: impl Into<String>, overrides: Overrides) -> Self {
        self.changes.push(QueueChange::KindOverrides(kind.into(), overrides));
        self
    }

    /// Limits how many tasks may wait in the queue. Beyond it, submissions fail with
    /// [`SubmitError::QueueFull`](crate::SubmitError::QueueFull). Stored with the queue, so it applies to every process.
    #[must_use]
    pub fn queue_limit(mut self, limit: u64) -> Self {
        self.changes.push(QueueChange::Limit(Some(limit)));
        self
    }

    /// Sets the class of errors, including panics, that are classified neither by their own type, nor by the handler, nor
    /// by the system. Default: transient.
    #[must_use]
    pub fn unclassed(mut self, unclassed: Unclassed) -> Self {
        self.unclassed = unclassed;
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
        self.callbacks.get_or_insert_default().set(what, callback);
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
        self.grace = grace;
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

    /// Starts the pool, which begins to claim tasks.
    ///
    /// # Errors
    /// When settings are invalid or conflict with those of a live process, handlers were registered in both ways, or the
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
        let on_threads = !self.local.is_empty();
        let (executor, usual): (Arc<dyn Executor>, usize) = if self.local.is_empty() {
            (Arc::new(self.handlers), WORKERS)
        } else if self.handlers.served() == Served::Only(Vec::new()) {
            let policy = match self.threads {
                Some(policy) => policy,
                None => ThreadPolicy::from_environment(cores(), |name| std::env::var(name).ok())
                    .map_err(OpenError::Threads)?,
            };
            let threads = Threads::start(policy).map_err(|error| {
                OpenError::Threads(format!("cannot start threads for the handlers: {error}"))
            })?;
            let threads = self.local.into_iter().fold(threads, |threads, handler| handler(threads));
            (Arc::new(threads), policy.threads.min(policy.most))
        } else {
            return Err(OpenError::TwoSorts);
        };
        let secrets = self.secrets.into_secrets();
        let secrets = secrets.map_err(|error| ostler_store::Error::invalid(error.to_string()))?;
        let executor = secrets.guard(executor);
        let workers = self.workers.unwrap_or(usual);
        // Threads have their own queue, and their tasks are seldom short.
        let prefetch = if on_threads { Prefetch::Off } else { Prefetch::usual(workers) };
        let ids = ids()?;
        let store = self.source.open().await?;
        let parts = NodeDeps { store: store.any(), clock: Arc::new(SystemClock), ids: Arc::clone(&ids) };
        let size = PoolSize::between(self.least.unwrap_or(workers), workers);
        let pool = PoolConfig {
            grace: self.grace,
            prefetch,
            size: PoolSize {
                scale_up_at: self.scale_up_at.unwrap_or(size.scale_up_at),
                idle_timeout: self.idle_timeout.unwrap_or(size.idle_timeout),
                ..size
            },
            settings: self.changes,
            unclassed: self.unclassed,
            listeners: self.callbacks.map(Callbacks::into_listeners).unwrap_or_default(),
            ..PoolConfig::new(self.queue.clone(), executor, workers)
        };
        let name = format!("pid {}", std::process::id());
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
            store_news,
            take_over: self.take_over,
            presence,
            ..NodeConfig::new(name, vec![pool])
        };
        let node = Node::start(parts, config).await?;
        Ok(Pool::new(store, node, self.queue, ids))
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Deserializes the payload, calls the handler and serializes its output.
async fn call<P, O, F, R>(handler: &F, payload: &str, context: Context) -> Result<Option<String>, TaskError>
where
    P: DeserializeOwned,
    O: Serialize,
    F: Fn(P, Context) -> R,
    R: Future<Output = Result<O, TaskError>>,
{
    let payload = serde_json::from_str(payload)
        .map_err(|error| TaskError::permanent(format!("the payload does not fit the handler: {error}")))?;
    let output = handler(payload, context).await?;
    serde_json::to_string(&output)
        .map(Some)
        .map_err(|error| TaskError::permanent(format!("the output cannot be written as JSON: {error}")))
}
