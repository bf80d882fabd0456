//! The sequence of a node's sessions: when one is lost, the work stops and the node rejoins with another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::SessionId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{InvalidConfig, PoolConfig};
use crate::lifecycle::{Leaving, NodeLifecycle};
use crate::node::Drained;
use crate::pool_requests::PoolRequest;
use crate::running_pool::LeavingPool;
use crate::session::{Join, NodeSession, SessionDeps};
use crate::store_health::StoreHealth;
use crate::worker_sets::WorkerSets;

/// First and longest pause after a failed join.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long an immediate stop may take to end the work and hand it back, however slow the store is.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// How long an ended node waits for its store to close, which may have to wait for the write lock.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The current session, shared with the handle.
pub(crate) struct CurrentSession(Mutex<Now>);

pub(crate) struct Now {
    pub(crate) session: SessionId,
    pub(crate) worker_sets: WorkerSets,
    /// Why the node has not rejoined yet.
    pub(crate) trouble: Option<String>,
}

impl Now {
    fn of(session: &NodeSession) -> Self {
        Self { session: session.session, worker_sets: session.worker_sets.clone(), trouble: None }
    }
}

impl CurrentSession {
    pub(crate) fn of(session: &NodeSession) -> Self {
        Self(Mutex::new(Now::of(session)))
    }

    pub(crate) fn session(&self) -> SessionId {
        self.lock().session
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one session after another.
pub(crate) struct Supervisor {
    pub(crate) deps: SessionDeps,
    pub(crate) finishing: JoinHandle<()>,
    pub(crate) present: Arc<CurrentSession>,
    pub(crate) requested: mpsc::Receiver<PoolRequest>,
    /// The timeout of the drain, once one is requested.
    pub(crate) wished: watch::Receiver<Option<Duration>>,
    /// Cancelled when the drain is to end immediately.
    pub(crate) hurry: CancellationToken,
    pub(crate) health: StoreHealth,
}

impl Supervisor {
    pub(crate) async fn serve(mut self, first: NodeSession) -> Drained {
        let _over = EndOnDrop(self.deps.lifecycle.clone());
        let drained = self.run_sessions(first).await;
        self.deps.telemetry.node_stopped(drained);
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
                Some(request) = self.requested.recv() => {
                    self.obey(Some(&mut present), request);
                    session = Some(present);
                    continue;
                }
                () = self.deps.lifecycle.lost() => {
                    if self.health.gone().is_some() {
                        // Not a death: when the store is found again, the tasks are requeued.
                        let depart = self.deps.parts.store.depart(present.session);
                        let _ = tokio::time::timeout(STOP_PATIENCE, depart).await;
                    } else {
                        self.deps.telemetry.node_fenced();
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

    /// Answers a request; without a session, for the next one. A node that is to drain takes no pool, and one that ends answers none.
    fn obey(&mut self, session: Option<&mut NodeSession>, request: PoolRequest) {
        let leaving = *self.deps.lifecycle.leaving().borrow();
        match (request, leaving) {
            (_, Leaving::ForGood) | (PoolRequest::Check(..) | PoolRequest::Add(..), Leaving::Revocable) => {}
            (PoolRequest::Check(pool, answer), Leaving::No) => {
                let _ = answer.send(self.admits(session, &pool));
            }
            (PoolRequest::Add(pool, answer), Leaving::No) => {
                let _ = answer.send(self.add_pool(session, *pool));
            }
            (PoolRequest::Remove { queue, timeout, drained }, Leaving::No | Leaving::Revocable) => {
                match self.remove_pool(session, &queue) {
                    Some(leaving) => drop(tokio::spawn(async move {
                        let _ = drained.send(Some(leaving.drain(timeout).await));
                    })),
                    None => drop(drained.send(None)),
                }
            }
        }
    }

    fn admits(&self, session: Option<&mut NodeSession>, pool: &PoolConfig) -> Result<(), InvalidConfig> {
        let queue = &pool.queue;
        if session.is_some_and(|session| session.pool(queue).is_some()) {
            return Err(InvalidConfig::new(format!("the node has a pool of queue \"{queue}\" already")));
        }
        let mut config = self.deps.config.clone();
        config.pools.push(pool.clone());
        config.check()
    }

    fn add_pool(
        &mut self,
        mut session: Option<&mut NodeSession>,
        pool: PoolConfig,
    ) -> Result<(), InvalidConfig> {
        self.admits(session.as_deref_mut(), &pool)?;
        if let Some(session) = session {
            session.add_pool(&self.deps, &pool);
        }
        self.deps.config.pools.push(pool);
        Ok(())
    }

    fn remove_pool(&mut self, session: Option<&mut NodeSession>, queue: &str) -> Option<LeavingPool> {
        self.deps.config.pools.retain(|pool| pool.queue != queue);
        self.deps.sizes.forget(queue);
        let session = session?;
        let (held, finisher) = (self.deps.lifecycle.held.clone(), self.deps.finisher.clone());
        let worker_sets = session.worker_sets.clone();
        Some(session.pool(queue)?.remove(held, finisher, worker_sets))
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
        let lifecycle = self.deps.lifecycle.clone();
        loop {
            if self.health.gone().is_some() || lifecycle.settle() {
                return None;
            }
            let refused = tokio::select! {
                biased;
                () = lifecycle.left() => continue,
                begun = self.begin() => match begun {
                    Ok(session) => {
                        *self.present.lock() = Now::of(&session);
                        self.deps.telemetry.node_rejoined(session.session);
                        return Some(session);
                    }
                    Err(refused) => refused,
                },
            };
            self.note_trouble(&refused);
            tokio::select! {
                () = lifecycle.left() => continue,
                () = tokio::time::sleep(pause) => {}
                Some(request) = self.requested.recv() => {
                    self.obey(None, request);
                    continue;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Keeps why the node cannot rejoin yet, and reports it if it is new.
    fn note_trouble(&self, refused: &str) {
        let before = self.present.lock().trouble.replace(refused.to_owned());
        if before.as_deref() != Some(refused) {
            self.deps.telemetry.node_not_rejoined(refused);
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
