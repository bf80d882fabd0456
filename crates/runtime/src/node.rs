//! The node: it lives through terms, one session each. What it could not renew it stops, and then it joins anew.

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

/// How long to wait after a join that failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a node that is told to stop at once takes at most to end its work and to hand it back, however slow the store is.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node that has ended waits for its store to be closed, which may wait for a turn at writing.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Makes ids; the edge of the system brings the chance.
pub type Ids = Arc<dyn Fn() -> Id + Send + Sync>;

/// What became of the attempts that ran when a drain began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// They ended by themselves.
    pub finished: usize,
    /// They were given back, and run elsewhere.
    pub handed_back: usize,
}

/// What a node is made of, besides its settings.
#[derive(Clone)]
pub struct NodeDeps {
    /// Where tasks live.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Names for sessions and workers.
    pub ids: Ids,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its settings cannot work.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
    /// The system gave no thread.
    #[error("no thread for the node: {0}")]
    Thread(#[from] std::io::Error),
    /// The session's id was not new.
    #[error("the store knows a session of this id already")]
    NotNew,
    /// Nobody keeps the node's proof of life until its children are gone.
    #[error("the supervisor of the children cannot hold the node's lock: {0}")]
    Guard(std::io::Error),
    /// The store has as many schedules as it may have.
    #[error("the schedule \"{name}\" is one too many: a store has at most {limit}; remove some first")]
    TooManySchedules {
        /// The one that was too many.
        name: String,
        /// How many a store has.
        limit: usize,
    },
    /// Another living node has other settings for a queue.
    #[error("{0}")]
    Differs(SettingsConflict),
}

/// A running node. When it is dropped without a drain it stops at once; its leases end when they are not renewed.
pub struct Node {
    handle: NodeHandle,
    _house: NodeThread,
}

/// What lives in the house, as others see it.
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
    /// Moves in: everything that is spawned from here on lives there too.
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
    /// Starts a node: it joins, beats, and claims.
    ///
    /// # Errors
    /// When its settings cannot work, or the store refuses.
    pub async fn start(parts: NodeDeps, config: NodeConfig) -> Result<Self, StartError> {
        config.check()?;
        let house = NodeThread::open()?;
        match house.spawn(NodeHandle::begin(parts, config, HandlerRuntimes::here())).await {
            Ok(handle) => Ok(Self { handle: handle?, _house: house }),
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// Its session: another one after it was fenced and came back.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.handle.present.lock().session
    }

    /// Where it stands, and where it goes. An order to drain is seen here: whoever owns the node then drains it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.handle.lifecycle.watch()
    }

    /// Changes whenever ends of attempts were written by this node: a hint to look.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.handle.written.subscribe()
    }

    /// How many attempts run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.handle.present.lock().worker_sets.iter().map(WorkerSet::running).sum()
    }

    /// How many workers its pools may have together: as they were set, or as they were resized by order.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.handle.sizes.most()
    }

    /// What does not work, in sentences: workers that do not come up, and why a fenced node is not back yet.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let now = self.handle.present.lock();
        let workers = now.worker_sets.iter().filter_map(WorkerSet::trouble).map(|failure| failure.message);
        workers.chain(now.trouble.clone()).collect()
    }

    /// How its store stands. A node whose store [is gone](StoreHealth::gone), because it was replaced, damaged or moved, has ended its
    /// work, and its state is `Draining`: whoever owns it then drains it.
    #[must_use]
    pub fn store_health(&self) -> StoreHealth {
        self.handle.health.clone()
    }

    /// Takes no more work, waits for what runs, and after `timeout` gives the rest back. Nothing is lost, and nothing is
    /// counted as a failure.
    pub async fn drain(mut self, timeout: Duration) -> Drained {
        self.handle.lifecycle.drain();
        self.handle.wish.send_replace(Some(timeout));
        match self.handle.supervisor.take() {
            Some(supervisor) => supervisor.await.unwrap_or_default(),
            None => Drained::default(),
        }
    }

    /// By what a drain is cut short.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.handle.stopper.clone()
    }

    /// Ends what runs at once, without its grace, and gives it back, in three seconds at most. Nothing is lost, and nothing is
    /// counted as a failure or as the death of a node.
    pub async fn stop_now(self) -> Drained {
        self.handle.stopper.stop_now();
        self.drain(Duration::ZERO).await
    }
}

/// Cuts the drain of a node short. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stopper(CancellationToken);

impl Stopper {
    /// What still runs is ended at once, without its grace, and handed back. The drain then ends within three seconds, also when
    /// the store does not answer: whoever finds the session over hands back what it held. Without a drain it is remembered for
    /// the next one.
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

/// What the present term is, for whoever asks.
struct CurrentSession(Mutex<Now>);

struct Now {
    session: SessionId,
    worker_sets: Vec<WorkerSet>,
    trouble: Option<String>,
}

impl Now {
    fn of(term: &NodeSession) -> Self {
        Self { session: term.session, worker_sets: term.worker_sets.clone(), trouble: None }
    }
}

impl CurrentSession {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Goes from term to term.
struct Supervisor {
    deps: SessionDeps,
    finishing: JoinHandle<()>,
    present: Arc<CurrentSession>,
    /// How long a drain may take, once somebody wishes it.
    wished: watch::Receiver<Option<Duration>>,
    /// Cancelled when the drain is to end at once.
    hurry: CancellationToken,
    health: StoreHealth,
}

impl Supervisor {
    async fn serve(mut self, first: NodeSession) -> Drained {
        let _over = EndOnDrop(self.deps.lifecycle.clone());
        let drained = self.go_from_term_to_term(first).await;
        let hurry = self.hurry.clone();
        // Whoever has a store last closes it.
        let closing = tokio::task::spawn_blocking(move || drop(self));
        tokio::select! {
            _ = tokio::time::timeout(CLOSE_PATIENCE, closing) => {}
            () = hurry.cancelled() => {}
        }
        drained
    }

    async fn go_from_term_to_term(&mut self, first: NodeSession) -> Drained {
        let mut term = Some(first);
        while let Some(mut present) = term {
            let timeout = tokio::select! {
                timeout = wish(&mut self.wished) => timeout,
                () = self.deps.lifecycle.lost() => {
                    if self.health.gone().is_some() {
                        // Nobody died: whoever finds the store again hands its work back.
                        let depart = self.deps.parts.store.depart(present.session);
                        let _ = tokio::time::timeout(STOP_PATIENCE, depart).await;
                    }
                    let too_late = self.too_late(present.session);
                    tokio::select! {
                        () = present.stop() => {}
                        () = too_late => {}
                    }
                    term = self.come_back().await;
                    continue;
                }
            };
            let too_late = self.too_late(present.session);
            let mut drained = Drained::default();
            tokio::select! {
                () = self.go(&mut present, timeout, &mut drained) => {}
                // What the store has not taken by now is handed back by whoever finds the session over.
                () = too_late => self.finishing.abort(),
            }
            self.deps.lifecycle.end();
            present.end().await;
            return drained;
        }
        // Fenced, and not wanted any more.
        self.deps.lifecycle.rest();
        wish(&mut self.wished).await;
        self.deps.lifecycle.end();
        let _ = self.flush().await;
        Drained::default()
    }

    /// Ends the work of a term, has its results written, and leaves.
    async fn go(&mut self, term: &mut NodeSession, timeout: Duration, drained: &mut Drained) {
        let hurry = self.hurry.clone();
        term.wind_down(timeout, &hurry, drained).await;
        // One that is fenced meanwhile says nothing any more.
        if self.flush().await == Flushed::Written {
            tokio::select! {
                () = term.leave(&hurry) => {}
                () = self.deps.lifecycle.lost() => {}
            }
        }
    }

    /// Waits until there is a hurry, notes that the node stops on purpose, and waits as long as a stop may take.
    fn too_late(&self, session: SessionId) -> impl Future<Output = ()> + use<> {
        let (hurry, store) = (self.hurry.clone(), Arc::clone(&self.deps.parts.store));
        async move {
            hurry.cancelled().await;
            let until = Instant::now() + STOP_PATIENCE;
            // Where even this is not written, the death of the node is counted.
            let _ = tokio::time::timeout_at(until, store.depart(session)).await;
            tokio::time::sleep_until(until).await;
        }
    }

    /// Joins anew, however often it takes; `None` when the node is to drain instead, or the store is gone.
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
                    Ok(term) => {
                        *self.present.lock() = Now::of(&term);
                        return Some(term);
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

    /// Another term, or why there is none yet.
    async fn begin(&self) -> Result<NodeSession, String> {
        // What was done under the old session is offered first: once it is found dead, nobody takes it any more.
        if self.deps.finisher.pending() > 0 {
            return Err("results of the lost session wait to be written".to_owned());
        }
        NodeSession::begin(&self.deps, Join::Again).await.map_err(|refused| refused.to_string())
    }

    /// Waits until what was reported is written. A node that is fenced meanwhile gives it up.
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

/// What became of the last reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// They are on disk.
    Written,
    /// The session was lost: what is not on disk is run again.
    GivenUp,
}

/// However the supervisor ends, all parts see that the node is over.
struct EndOnDrop(NodeLifecycle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Waits until somebody wishes a drain.
async fn wish(wished: &mut watch::Receiver<Option<Duration>>) -> Duration {
    loop {
        if let Some(timeout) = *wished.borrow_and_update() {
            return timeout;
        }
        if wished.changed().await.is_err() {
            // Nobody is left who could; the supervisor is about to be ended.
            std::future::pending::<()>().await;
        }
    }
}
