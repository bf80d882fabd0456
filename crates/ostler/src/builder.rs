//! Opens a store and registers handlers, up to the start of the pool.

mod limits;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{EndKind, Overrides};
use ostler_exec::{Context, Executor, Inline, Served, TaskError, ThreadPolicy, Threads};
use ostler_postgres::{Address, Postgres};
use ostler_runtime::{
    EndListener, LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, PoolSize, Prefetch, Presence, StoreNews,
    TakeOver, Unclassed,
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

/// Handlers that run at once, unless told otherwise.
const WORKERS: usize = 64;
/// The queue, unless told otherwise.
const QUEUE: &str = "default";

/// Opens the embedded store in this file (`jobs.db`, or `sqlite:jobs.db`), or the shared one at a URL such as
/// `postgres://user@host/database`; makes it if there is nothing. The text means what it means on the command line:
/// [`StoreUrl`] reads it. A server is first spoken to by [`Builder::start`].
///
/// # Errors
/// When the file is not an Ostler store, or may not be written; it is then left as it is. When the URL cannot be read.
pub fn open(place: impl AsRef<Path>) -> Result<Builder, OpenError> {
    let embedded = |path: &Path| Sqlite::open(path, Arc::new(SystemClock), Options::default()).map(Arc::new);
    let source = match place.as_ref().to_str().map(StoreUrl::parse) {
        Some(Ok(StoreUrl::Sqlite(path))) => StoreSource::Embedded(embedded(&path)?),
        Some(Ok(StoreUrl::Postgres(address))) => StoreSource::Shared(address),
        Some(Err(StoreUrlError::Postgres(error))) => return Err(error.into()),
        Some(Err(error)) => return Err(OpenError::Url(error)),
        // No URL, but a file may be called so.
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
    })
}

/// Where tasks live.
enum StoreSource {
    /// In a file, which is open.
    Embedded(Arc<Sqlite>),
    /// On a server.
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

/// Brings a handler to threads that have been started.
type LocalHandlerFactory = Box<dyn FnOnce(Threads) -> Threads + Send>;

/// A pool that is being set up.
pub struct Builder {
    source: StoreSource,
    queue: String,
    handlers: Inline,
    local: Vec<LocalHandlerFactory>,
    threads: Option<ThreadPolicy>,
    workers: Option<usize>,
    least: Option<usize>,
    lease: LeaseTimes,
    changes: Vec<QueueChange>,
    /// What was said and cannot be used.
    refused: Option<ostler_store::Error>,
    take_over: TakeOver,
    callbacks: Option<Callbacks>,
    unclassed: Unclassed,
    grace: Duration,
    presence: Option<Presence>,
    #[cfg(feature = "redis")]
    presence_times: Option<ostler_runtime::PresenceTimes>,
    store_news: Option<OnStoreNews>,
}

/// Who is told of the store.
type OnStoreNews = Box<dyn Fn(StoreNews) + Send>;
/// What is new about the store and was not told yet.
const MAX_NEWS: usize = 16;

impl Builder {
    /// The queue that the pool serves and submits to. Unless told otherwise: "default".
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// A handler for a kind of task. Its payload is read from JSON; what cannot be read is a permanent failure. What it
    /// gives back is the task's output, as JSON.
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

    /// A handler whose future is not `Send`: it runs on a thread of its own, one task at a time, and whatever it spawns ends with
    /// it. A pool has handlers of one sort.
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

    /// How the threads of [`handle_local`](Self::handle_local) are laid out. Unless told otherwise: one for each core, or what
    /// the variables `WORKER_POOL_SIZE` and `MAX_QUEUED_WORKERS` say.
    #[must_use]
    pub fn threads(mut self, policy: ThreadPolicy) -> Self {
        self.threads = Some(policy);
        self
    }

    /// How many handlers run at once. Unless told otherwise: 64, or one for each thread where they have threads of their own, and no
    /// more than [`most`](ThreadPolicy::most) then. More than that is refused.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// At least `min` and at most `max` handlers run at once: more come while tasks wait, and go again when they had nothing to do
    /// for five minutes.
    #[must_use]
    pub fn workers_between(mut self, min: usize, max: usize) -> Self {
        self.workers = Some(max);
        self.least = Some(min);
        self
    }

    /// What holds for the tasks of the queue, where they do not say otherwise: attempts, backoff, timeout. It is kept in the
    /// store, for every process.
    #[must_use]
    pub fn defaults(mut self, overrides: Overrides) -> Self {
        self.changes.push(QueueChange::Overrides(overrides));
        self
    }

    /// What holds for the tasks of one kind, where they do not say otherwise. It wins over [`defaults`](Self::defaults), and is
    /// kept in the store, for every process.
    #[must_use]
    pub fn defaults_of(mut self, kind: impl Into<String>, overrides: Overrides) -> Self {
        self.changes.push(QueueChange::KindOverrides(kind.into(), overrides));
        self
    }

    /// At most this many tasks wait in the queue; over it, a submit answers *queue full*. It is kept in the store.
    #[must_use]
    pub fn queue_limit(mut self, limit: u64) -> Self {
        self.changes.push(QueueChange::Limit(Some(limit)));
        self
    }

    /// What an error is that nobody has classed: neither its own type, nor the handler, nor the system; a panic too. Unless told
    /// otherwise: transient.
    #[must_use]
    pub fn unclassed(mut self, unclassed: Unclassed) -> Self {
        self.unclassed = unclassed;
        self
    }

    /// Is called when a task of the queue was completed, in whatever process: after the commit, at least once, also when this
    /// process is killed in between (it is called after the next start then). It runs beside the workers, and holds up none; after
    /// a minute it is given up.
    #[must_use]
    pub fn on_completed<F, R>(self, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on(EndKind::Completed, callback)
    }

    /// The same when a task has failed for good.
    #[must_use]
    pub fn on_failed<F, R>(self, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on(EndKind::Failed, callback)
    }

    /// The same when an attempt has failed and the task will be tried again.
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

    /// Called when the pool cannot use its store, and when it can again: once each, for logs and monitors. Submissions are answered
    /// with errors of their own. After [`StoreNews::Gone`] the pool has ended its work, and only drains.
    #[must_use]
    pub fn on_store_news(mut self, callback: impl Fn(StoreNews) + Send + 'static) -> Self {
        self.store_news = Some(Box::new(callback));
        self
    }

    /// Brings its own settings for the queue, also if a living process has others. Without it, such a pool does not start.
    #[must_use]
    pub fn take_over(mut self) -> Self {
        self.take_over = TakeOver::Yes;
        self
    }

    /// How leases are kept.
    #[must_use]
    pub fn lease(mut self, times: LeaseTimes) -> Self {
        self.lease = times;
        self
    }

    /// How long a handler may take to stop when it is told to.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Says in the Redis server of this URL, such as `redis://cache:6379`, that the pool is there: for monitors outside. Its work does not
    /// depend on it. A URL that cannot be read keeps the pool from starting.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn presence(mut self, url: &str) -> Self {
        match ostler_runtime::RedisAddress::parse(url) {
            Ok(address) => self.presence = Some(Presence::new(address)),
            Err(error) => self.refused = Some(ostler_store::Error::invalid(format!("presence: {error}"))),
        }
        self
    }

    /// How often it says so, and how long that holds. Unless told otherwise: every ten seconds, for thirty. Times that cannot work keep the
    /// pool from starting.
    #[cfg(feature = "redis")]
    #[must_use]
    pub const fn presence_times(mut self, times: ostler_runtime::PresenceTimes) -> Self {
        self.presence_times = Some(times);
        self
    }

    /// Starts the pool: it takes work from now on.
    ///
    /// # Errors
    /// When the settings cannot work, or the store refuses.
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
            let threads = Threads::start(policy)
                .map_err(|error| OpenError::Threads(format!("no threads for the handlers: {error}")))?;
            let threads = self.local.into_iter().fold(threads, |threads, handler| handler(threads));
            (Arc::new(threads), policy.threads.min(policy.most))
        } else {
            return Err(OpenError::TwoSorts);
        };
        let workers = self.workers.unwrap_or(usual);
        // Threads have a line of their own, and their work is seldom short.
        let prefetch = if on_threads { Prefetch::Off } else { Prefetch::usual(workers) };
        let ids = ids()?;
        let store = self.source.open().await?;
        let parts = NodeDeps { store: store.any(), clock: Arc::new(SystemClock), ids: Arc::clone(&ids) };
        let pool = PoolConfig {
            grace: self.grace,
            prefetch,
            size: PoolSize::between(self.least.unwrap_or(workers), workers),
            settings: self.changes,
            unclassed: self.unclassed,
            listener: self.callbacks.map(|callbacks| Arc::new(callbacks) as Arc<dyn EndListener>),
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

/// Reads the payload, calls the handler, and writes what it gives back.
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
