//! The node: runs a sequence of sessions. When it cannot renew its leases, it stops its work and rejoins with a new
//! session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::{Id, SessionId};
use ostler_store::{Clock, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{InvalidConfig, NodeConfig};
use crate::finisher::Finisher;
use crate::handler_runtime::HandlerRuntimes;
use crate::lifecycle::{NodeLifecycle, NodeState};
use crate::node_thread::NodeThread;
use crate::session::{Join, NodeSession, SessionDeps};
use crate::settings_conflict::SettingsConflict;
use crate::sizes::Sizes;
use crate::store_health::StoreHealth;
use crate::watched_store::WatchedStore;
use crate::workers::WorkerSet;

/// First and longest pause after a failed join.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long an immediate stop may take to end the work and hand it back, however slow the store is.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// How long an ended node waits for its store to close, which may have to wait for the write lock.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Generates ids; the caller supplies the randomness.
pub type Ids = Arc<dyn Fn() -> Id + Send + Sync>;

/// What happened to the attempts that were running when a drain began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Attempts that finished.
    pub finished: usize,
    /// Attempts that were handed back to the queue.
    pub handed_back: usize,
}

/// The dependencies of a node.
#[derive(Clone)]
pub struct NodeDeps {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// Generates session and worker ids.
    pub ids: Ids,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
    /// The system could not create a thread.
    #[error("cannot start the node's thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The session id was not new.
    #[error("the store already has a session with this id")]
    NotNew,
    /// The supervisor cannot hold the liveness lock until the child processes are gone.
    #[error("the supervisor cannot hold the node's liveness lock: {0}")]
    Guard(std::io::Error),
    /// The store already holds the maximum number of schedules.
    #[error("the schedule \"{name}\" is one too many: a store can have at most {limit}; remove some first")]
    TooManySchedules {
        /// The schedule that exceeded it.
        name: String,
        /// The maximum number of schedules.
        limit: usize,
    },
    /// Another live node has different settings for a queue.
    #[error("{0}")]
    Differs(SettingsConflict),
}

/// A running node. Dropped without a drain, it stops immediately; its leases expire when they are not renewed.
pub struct Node {
    handle: NodeHandle,
    _thread: NodeThread,
}

/// The handle to the tasks on the node thread.
struct NodeHandle {
    lifecycle: NodeLifecycle,
    present: Arc<CurrentSession>,
    written: watch::Sender<u64>,
    wish: watch::Sender<Option<Duration>>,
    stopper: Stopper,
    sizes: Sizes,
    health: StoreHealth,
    supervisor: Option<JoinHandle<Drained>>,
}

impl NodeHandle {
    /// Runs on the node thread, as does everything spawned from here on.
    async fn begin(parts: NodeDeps, config: NodeConfig, stages: HandlerRuntimes) -> Result<Self, StartError> {
        let lifecycle = NodeLifecycle::new();
        let health = StoreHealth::new(Arc::clone(&parts.clock), lifecycle.clone(), config.store_news.clone());
        let watched = WatchedStore { store: parts.store, health: health.clone() };
        let parts = NodeDeps { store: Arc::new(watched), ..parts };
        let written = watch::Sender::new(0);
        let (finisher, finishing) = Finisher::start(
            Arc::clone(&parts.store),
            lifecycle.watch(),
            written.clone(),
            lifecycle.held.clone(),
        );
        let sizes = Sizes::new(&config.pools);
        let deps = SessionDeps {
            parts,
            config,
            lifecycle: lifecycle.clone(),
            finisher,
            sizes: sizes.clone(),
            stages,
        };
        let first = NodeSession::begin(&deps, Join::First).await?;
        let present = Arc::new(CurrentSession(Mutex::new(Now::of(&first))));
        let (wish, wished) = watch::channel(None);
        let stopper = Stopper::default();
        let hurry = stopper.0.clone();
        let supervisor = Supervisor {
            deps,
            finishing,
            present: Arc::clone(&present),
            wished,
            hurry,
            health: health.clone(),
        };
        let supervisor = Some(tokio::spawn(supervisor.serve(first)));
        Ok(Self { lifecycle, present, written, wish, stopper, sizes, health, supervisor })
    }
}

impl Node {
    /// Starts a node: it joins, begins its heartbeat, and claims tasks.
    ///
    /// # Errors
    /// When the configuration is invalid, or the store returns an error.
    pub async fn start(parts: NodeDeps, config: NodeConfig) -> Result<Self, StartError> {
        config.check()?;
        let thread = NodeThread::open()?;
        match thread.spawn(NodeHandle::begin(parts, config, HandlerRuntimes::here())).await {
            Ok(handle) => Ok(Self { handle: handle?, _thread: thread }),
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// The current session; a new one after the node was fenced and rejoined.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.handle.present.lock().session
    }

    /// Watches the lifecycle state. A drain command shows up here; the owner of the node then drains it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.handle.lifecycle.watch()
    }

    /// Changes whenever this node has written outcomes: a hint to query again.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.handle.written.subscribe()
    }

    /// The number of running attempts.
    #[must_use]
    pub fn running(&self) -> usize {
        self.handle.present.lock().worker_sets.iter().map(WorkerSet::running).sum()
    }

    /// The maximum number of workers of all pools together, as configured or resized.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.handle.sizes.most()
    }

    /// Current problems as sentences: workers that fail to start, and why a fenced node has not rejoined yet.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let now = self.handle.present.lock();
        let workers = now.worker_sets.iter().filter_map(WorkerSet::trouble).map(|failure| failure.message);
        workers.chain(now.trouble.clone()).collect()
    }

    /// The health of the store. If the store [is gone](StoreHealth::gone) because it was replaced, damaged or moved, the
    /// node has stopped its work and its state is `Draining`; its owner must drain it.
    #[must_use]
    pub fn store_health(&self) -> StoreHealth {
        self.handle.health.clone()
    }

    /// Takes no more work, waits for running attempts, and hands the rest back after `timeout`. Nothing is lost, and no
    /// attempt counts as a failure.
    pub async fn drain(mut self, timeout: Duration) -> Drained {
        self.handle.lifecycle.drain();
        self.handle.wish.send_replace(Some(timeout));
        match self.handle.supervisor.take() {
            Some(supervisor) => supervisor.await.unwrap_or_default(),
            None => Drained::default(),
        }
    }

    /// Returns a handle that cuts a drain short.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.handle.stopper.clone()
    }

    /// Ends running attempts without a grace period and hands them back, within three seconds. Nothing is lost, and nothing
    /// counts as a failure or as a node death.
    pub async fn stop_now(self) -> Drained {
        self.handle.stopper.stop_now();
        self.drain(Duration::ZERO).await
    }
}

/// Cuts the drain of a node short. Clones act on the same node.
#[derive(Clone, Debug, Default)]
pub struct Stopper(CancellationToken);

impl Stopper {
    /// Ends running attempts without a grace period and hands them back. The drain then finishes within three seconds, even
    /// if the store does not answer: another node that finds the session over requeues its tasks. Without a drain under
    /// way, this applies to the next one.
    pub fn stop_now(&self) {
        self.0.cancel();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(supervisor) = &self.handle.supervisor {
            supervisor.abort();
        }
    }
}

/// The current session, shared with the handle.
struct CurrentSession(Mutex<Now>);

struct Now {
    session: SessionId,
    worker_sets: Vec<WorkerSet>,
    trouble: Option<String>,
}

impl Now {
    fn of(session: &NodeSession) -> Self {
        Self { session: session.session, worker_sets: session.worker_sets.clone(), trouble: None }
    }
}

impl CurrentSession {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one session after another.
struct Supervisor {
    deps: SessionDeps,
    finishing: JoinHandle<()>,
    present: Arc<CurrentSession>,
    /// The timeout of the drain, once one is requested.
    wished: watch::Receiver<Option<Duration>>,
    /// Cancelled when the drain is to end immediately.
    hurry: CancellationToken,
    health: StoreHealth,
}

impl Supervisor {
    async fn serve(mut self, first: NodeSession) -> Drained {
        let _over = EndOnDrop(self.deps.lifecycle.clone());
        let drained = self.run_sessions(first).await;
        let hurry = self.hurry.clone();
        // Dropping the last reference closes the store.
        let closing = tokio::task::spawn_blocking(move || drop(self));
        tokio::select! {
            _ = tokio::time::timeout(CLOSE_PATIENCE, closing) => {}
            () = hurry.cancelled() => {}
        }
        drained
    }

    async fn run_sessions(&mut self, first: NodeSession) -> Drained {
        let mut session = Some(first);
        while let Some(mut present) = session {
            let timeout = tokio::select! {
                timeout = wish(&mut self.wished) => timeout,
                () = self.deps.lifecycle.lost() => {
                    if self.health.gone().is_some() {
                        // Not a death: when the store is found again, the tasks are requeued.
                        let depart = self.deps.parts.store.depart(present.session);
                        let _ = tokio::time::timeout(STOP_PATIENCE, depart).await;
                    }
                    let too_late = self.too_late(present.session);
                    tokio::select! {
                        () = present.stop() => {}
                        () = too_late => {}
                    }
                    session = self.come_back().await;
                    continue;
                }
            };
            let too_late = self.too_late(present.session);
            let mut drained = Drained::default();
            tokio::select! {
                () = self.go(&mut present, timeout, &mut drained) => {}
                // Tasks that the store has not taken back by now are requeued when another node finds the session over.
                () = too_late => self.finishing.abort(),
            }
            self.deps.lifecycle.end();
            present.end().await;
            return drained;
        }
        // Fenced, and a drain was requested or the store is gone.
        self.deps.lifecycle.rest();
        wish(&mut self.wished).await;
        self.deps.lifecycle.end();
        let _ = self.flush().await;
        Drained::default()
    }

    /// Ends the work of a session, flushes its reports, and leaves.
    async fn go(&mut self, session: &mut NodeSession, timeout: Duration, drained: &mut Drained) {
        let hurry = self.hurry.clone();
        session.wind_down(timeout, &hurry, drained).await;
        // A node fenced in the meantime must not leave: its session is lost.
        if self.flush().await == Flushed::Written {
            tokio::select! {
                () = session.leave(&hurry) => {}
                () = self.deps.lifecycle.lost() => {}
            }
        }
    }

    /// Waits for an immediate stop, records that the node stops on purpose, and waits as long as a stop may take.
    fn too_late(&self, session: SessionId) -> impl Future<Output = ()> + use<> {
        let (hurry, store) = (self.hurry.clone(), Arc::clone(&self.deps.parts.store));
        async move {
            hurry.cancelled().await;
            let until = Instant::now() + STOP_PATIENCE;
            // If this cannot be written, the stop counts as a node death.
            let _ = tokio::time::timeout_at(until, store.depart(session)).await;
            tokio::time::sleep_until(until).await;
        }
    }

    /// Rejoins, retrying as often as necessary; `None` when the node is to drain instead, or the store is gone.
    async fn come_back(&mut self) -> Option<NodeSession> {
        let mut pause = FIRST_PAUSE;
        let leaving = self.deps.lifecycle.leaving();
        loop {
            if self.health.gone().is_some() {
                return None;
            }
            let refused = tokio::select! {
                biased;
                () = leaving.cancelled() => return None,
                begun = self.begin() => match begun {
                    Ok(session) => {
                        *self.present.lock() = Now::of(&session);
                        return Some(session);
                    }
                    Err(refused) => refused,
                },
            };
            self.present.lock().trouble = Some(refused);
            tokio::select! {
                () = leaving.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Begins another session, or returns why that is not possible yet.
    async fn begin(&self) -> Result<NodeSession, String> {
        // Reports of the old session come first: once it is declared dead, the store rejects them.
        if self.deps.finisher.pending() > 0 {
            return Err("results of the lost session are not written yet".to_owned());
        }
        NodeSession::begin(&self.deps, Join::Again).await.map_err(|refused| refused.to_string())
    }

    /// Waits until all reports are written. A node fenced in the meantime gives them up.
    async fn flush(&mut self) -> Flushed {
        self.deps.finisher.close();
        tokio::select! {
            biased;
            () = self.deps.lifecycle.lost() => {}
            _ = &mut self.finishing => return Flushed::Written,
        }
        self.deps.lifecycle.end();
        let _ = (&mut self.finishing).await;
        Flushed::GivenUp
    }
}

/// What happened to the last reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// They are on disk.
    Written,
    /// The session was lost: tasks without a written report run again.
    GivenUp,
}

/// Marks the node as ended for all parts, however the supervisor ends.
struct EndOnDrop(NodeLifecycle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Waits until a drain is requested.
async fn wish(wished: &mut watch::Receiver<Option<Duration>>) -> Duration {
    loop {
        if let Some(timeout) = *wished.borrow_and_update() {
            return timeout;
        }
        if wished.changed().await.is_err() {
            // The handle is gone; the supervisor is about to be aborted.
            std::future::pending::<()>().await;
        }
    }
}
