//! The node: start, drain and stop, and what its owner can ask it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::Id;
use ostler_store::{Clock, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{InvalidConfig, NodeConfig};
use crate::finisher::{Finisher, ReportCount};
use crate::handler_runtime::HandlerRuntimes;
use crate::lifecycle::{Leaving, NodeLifecycle};
use crate::node_handle::NodeHandle;
use crate::node_thread::NodeThread;
use crate::pool_requests::MAX_REQUESTS;
use crate::session::{Join, NodeSession, SessionDeps};
use crate::sessions::{CurrentSession, Supervisor};
use crate::settings_conflict::SettingsConflict;
use crate::sizes::Sizes;
use crate::store_health::StoreHealth;
use crate::telemetry::Telemetry;
use crate::watched_store::WatchedStore;

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
    sessions: Sessions,
    _thread: NodeThread,
}

/// The task on the node thread that runs the sessions.
struct Sessions {
    wish: watch::Sender<Option<Duration>>,
    supervisor: Option<JoinHandle<Drained>>,
}

/// Runs on the node thread, as does everything spawned from here on.
async fn begin(
    parts: NodeDeps,
    config: NodeConfig,
    stages: HandlerRuntimes,
    telemetry: Telemetry,
) -> Result<(NodeHandle, Sessions), StartError> {
    let telemetry = telemetry.on_node_thread();
    let lifecycle = NodeLifecycle::new();
    let clock = Arc::clone(&parts.clock);
    let health = StoreHealth::new(clock, lifecycle.clone(), config.store_news.clone(), telemetry.clone());
    let watched = WatchedStore { store: parts.store, health: health.clone(), telemetry: telemetry.clone() };
    let parts = NodeDeps { store: Arc::new(watched), ..parts };
    let reports = ReportCount::default();
    let (finisher, finishing) = Finisher::start(
        Arc::clone(&parts.store),
        lifecycle.watch(),
        reports.clone(),
        lifecycle.held.clone(),
        telemetry.clone(),
    );
    let (sizes, store) = (Sizes::default(), Arc::downgrade(&parts.store));
    let deps = SessionDeps {
        parts,
        config,
        lifecycle: lifecycle.clone(),
        finisher,
        sizes: sizes.clone(),
        stages,
        telemetry: telemetry.clone(),
    };
    let first = NodeSession::begin(&deps, Join::First).await?;
    let present = Arc::new(CurrentSession::of(&first));
    let (wish, wished) = watch::channel(None);
    let (requests, requested) = mpsc::channel(MAX_REQUESTS);
    let stopper = Stopper::default();
    let supervisor = Supervisor {
        deps,
        finishing,
        present: Arc::clone(&present),
        requested,
        wished,
        hurry: stopper.0.clone(),
        health: health.clone(),
    };
    let supervisor = Some(tokio::spawn(supervisor.serve(first)));
    let handle =
        NodeHandle { requests, store, present, lifecycle, reports, stopper, sizes, health, telemetry };
    Ok((handle, Sessions { wish, supervisor }))
}

impl Node {
    /// Starts a node: it joins, begins its heartbeat, and claims tasks.
    ///
    /// # Errors
    /// When the configuration is invalid, or the store returns an error.
    pub async fn start(parts: NodeDeps, config: NodeConfig) -> Result<Self, StartError> {
        config.check()?;
        let thread = NodeThread::open()?;
        // The node thread has no default subscriber of its own.
        let telemetry = Telemetry::here(&config.name);
        match thread.spawn(begin(parts, config, HandlerRuntimes::here(), telemetry)).await {
            Ok(begun) => {
                let (handle, sessions) = begun?;
                Ok(Self { handle, sessions, _thread: thread })
            }
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// Returns a handle that can be shared, and does not keep the node alive.
    #[must_use]
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// Takes no more work, waits for running attempts, hands the rest back after `timeout`, and ends. Nothing is lost, and no
    /// attempt counts as a failure. This cannot be taken back; see [`NodeHandle::begin_drain`] for a drain that can.
    pub async fn drain(mut self, timeout: Duration) -> Drained {
        let (running, lifecycle) = (self.handle.running(), &self.handle.lifecycle);
        // The event comes before those of its pools. A drain that could be taken back has sent it already, unless tasks still run.
        if *lifecycle.leaving().borrow() == Leaving::No || running > 0 {
            self.handle.telemetry.node_draining(timeout, running);
        }
        lifecycle.leave();
        self.sessions.wish.send_replace(Some(timeout));
        match self.sessions.supervisor.take() {
            Some(supervisor) => supervisor.await.unwrap_or_default(),
            None => Drained::default(),
        }
    }

    /// Ends running attempts without a grace period and hands them back, within three seconds. Nothing is lost, and nothing
    /// counts as a failure or as a node death.
    pub async fn stop_now(self) -> Drained {
        self.handle.stopper.stop_now();
        self.drain(Duration::ZERO).await
    }
}

/// A node can be asked what its handles can be asked.
impl Deref for Node {
    type Target = NodeHandle;

    fn deref(&self) -> &NodeHandle {
        &self.handle
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

    /// Waits for an immediate stop.
    pub(crate) async fn stopped(&self) {
        self.0.cancelled().await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(supervisor) = &self.sessions.supervisor {
            supervisor.abort();
        }
    }
}
