//! Handles to a running node: what can be asked of it, drains that can be taken back, and pools that come and go.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_core::{SessionId, TaskId};
use ostler_store::Store;
use ostler_store::node_commands::ResumeAnswer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::config::{InvalidConfig, PoolConfig, TakeOver};
use crate::finisher::ReportCount;
use crate::lifecycle::{Leaving, NodeLifecycle, NodeState};
use crate::node::{Drained, Stopper};
use crate::pool_requests::{AddPoolError, PoolRequest};
use crate::session::{Join, bring_settings};
use crate::sessions::CurrentSession;
use crate::sizes::Sizes;
use crate::store_health::StoreHealth;
use crate::telemetry::Telemetry;
use crate::workers::{Reservation, WorkerSet};

/// How often a draining node is checked for work that has ended without a report.
const LOOK: Duration = Duration::from_millis(50);

/// How the wait of a drain that can be taken back ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainWait {
    /// Nothing runs any more, the time has passed, or the drain has become final: the owner ends the node with
    /// [`Node::drain`](crate::Node::drain).
    Over {
        /// What is left of the time.
        left: Duration,
    },
    /// The drain was taken back: the node claims tasks again.
    TakenBack,
}

/// A handle to a running node. Clones refer to the same node, and do not keep it alive.
#[derive(Clone)]
pub struct NodeHandle {
    pub(crate) requests: mpsc::Sender<PoolRequest>,
    /// The node closes its store when it ends.
    pub(crate) store: Weak<dyn Store>,
    pub(crate) present: Arc<CurrentSession>,
    pub(crate) lifecycle: NodeLifecycle,
    pub(crate) reports: ReportCount,
    pub(crate) stopper: Stopper,
    pub(crate) sizes: Sizes,
    pub(crate) health: StoreHealth,
    pub(crate) telemetry: Telemetry,
}

impl NodeHandle {
    /// The current session; a new one after the node was fenced and rejoined.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.present.session()
    }

    /// Watches the lifecycle state. A drain command shows up here: the owner of the node then waits with [`drained`](Self::drained), and
    /// drains the node unless the drain is taken back.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.lifecycle.watch()
    }

    /// Begins a drain that can be taken back: claims no more tasks, and hands back those without a worker. Running attempts go on, and
    /// workers stay. A drain command has the same effect.
    pub fn begin_drain(&self) {
        self.lifecycle.drain();
    }

    /// Takes a drain back, by [`begin_drain`](Self::begin_drain) or by command, unless it is final: the node claims tasks again.
    #[must_use]
    pub fn resume(&self) -> ResumeAnswer {
        self.lifecycle.resume()
    }

    /// Waits, during a drain that can be taken back, until nothing runs here, or for as long as `timeout`. Ends nothing.
    pub async fn drained(&self, timeout: Duration) -> DrainWait {
        let began = Instant::now();
        let mut is_announced = false;
        let (mut leaving, mut ends) = (self.lifecycle.leaving(), self.reports.subscribe());
        loop {
            ends.mark_unchanged();
            let left = timeout.saturating_sub(began.elapsed());
            let leaving_now = *leaving.borrow_and_update();
            match leaving_now {
                Leaving::Revocable if is_announced => {}
                Leaving::Revocable => {
                    is_announced = true;
                    self.telemetry.node_draining(timeout, self.running());
                }
                Leaving::No => {
                    if is_announced {
                        self.telemetry.node_resumed();
                    }
                    return DrainWait::TakenBack;
                }
                Leaving::ForGood => return DrainWait::Over { left },
            }
            if left.is_zero() || self.occupied() == 0 {
                return DrainWait::Over { left };
            }
            tokio::select! {
                _ = ends.changed() => {}
                _ = leaving.changed() => {}
                () = self.stopper.stopped() => return DrainWait::Over { left },
                () = tokio::time::sleep(LOOK.min(left)) => {}
            }
        }
    }

    /// Changes whenever this node has written outcomes: a hint to query again.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.reports.subscribe()
    }

    /// The number of running attempts.
    #[must_use]
    pub fn running(&self) -> usize {
        self.present.lock().worker_sets.all().iter().map(WorkerSet::running).sum()
    }

    /// The maximum number of workers of all pools together, as configured or resized.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.sizes.most()
    }

    /// The number of tasks that this node runs, has claimed, has reserved a worker for, or has yet to write the outcome of.
    #[must_use]
    pub fn occupied(&self) -> usize {
        // In this order: a report is queued before its worker is free.
        let workers: usize = self.present.lock().worker_sets.all().iter().map(WorkerSet::occupied).sum();
        workers.saturating_add(usize::try_from(self.reports.pending()).unwrap_or(usize::MAX))
    }

    /// How many workers of the pool of this queue are free, as configured or resized. None without such a pool.
    #[must_use]
    pub fn free_workers(&self, queue: &str) -> usize {
        self.present.lock().worker_sets.of(queue).map_or(0, |workers| workers.free())
    }

    /// Reserves a worker of the pool of this queue for a task that is about to be enqueued; `None` if none is free. A
    /// reservation lets no other caller reserve the worker; tasks that are in the queue already may still take it.
    #[must_use]
    pub fn reserve(&self, queue: &str, task: TaskId) -> Option<Reservation> {
        self.present.lock().worker_sets.of(queue)?.reserve(task)
    }

    /// Current problems as sentences: workers that fail to start, and why a fenced node has not rejoined yet.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let now = self.present.lock();
        let sets = now.worker_sets.all();
        let workers = sets.iter().filter_map(WorkerSet::trouble).map(|failure| failure.message);
        workers.chain(now.trouble.clone()).collect()
    }

    /// The health of the store. If the store [is gone](StoreHealth::gone) because it was replaced, damaged or moved, the
    /// node has stopped its work and its state is `Draining`; its owner must drain it.
    #[must_use]
    pub fn store_health(&self) -> StoreHealth {
        self.health.clone()
    }

    /// What the node has counted, and where its owner reports tasks that it submits by itself.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Returns a handle that cuts a drain short.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Adds a pool: applies the settings of its queue and begins to claim. A node that is about to rejoin begins then. The
    /// pool stays, across sessions, until it is removed or the node ends. Nodes that start later do not compare their
    /// settings of this queue with it.
    ///
    /// # Errors
    /// When the node cannot have it; nothing has been claimed then.
    pub async fn add_pool(&self, pool: PoolConfig, take_over: TakeOver) -> Result<(), AddPoolError> {
        self.ask(|answer| PoolRequest::Check(Box::new(pool.clone()), answer)).await?;
        let (session, store) = (self.present.session(), self.store.upgrade().ok_or(AddPoolError::Ended)?);
        bring_settings(store.as_ref(), session, std::slice::from_ref(&pool), take_over, Join::First).await?;
        drop(store);
        self.ask(|answer| PoolRequest::Add(Box::new(pool), answer)).await
    }

    async fn ask(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<(), InvalidConfig>>) -> PoolRequest,
    ) -> Result<(), AddPoolError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| AddPoolError::Ended)?;
        Ok(answered.await.map_err(|_| AddPoolError::Ended)??)
    }

    /// Removes the pool of this queue: it claims no more, running attempts may finish, and the rest is handed back after
    /// `timeout`. Its workers are closed. `None` if the node has no such pool or has ended.
    pub async fn remove_pool(&self, queue: &str, timeout: Duration) -> Option<Drained> {
        let (drained, answered) = oneshot::channel();
        let request = PoolRequest::Remove { queue: queue.to_owned(), timeout, drained };
        self.requests.send(request).await.ok()?;
        answered.await.ok()?
    }
}
