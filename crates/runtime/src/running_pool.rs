//! A running pool of a session: how its end is awaited, and how it is removed while the node goes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::finisher::Finisher;
use crate::leases::{HeldLeases, StopReason};
use crate::node::Drained;
use crate::pool::Pool;
use crate::telemetry::Telemetry;
use crate::worker_sets::WorkerSets;
use crate::workers::WorkerSet;

/// How long a removed pool waits until its last reports are written. The node goes on to write them.
const LAST_REPORTS: Duration = Duration::from_secs(5);

pub(crate) struct RunningPool {
    workers: WorkerSet,
    grace: Duration,
    ending: CancellationToken,
    /// Cancelled when no more of its attempts will finish.
    over: CancellationToken,
    drained: watch::Receiver<Option<Drained>>,
    task: Arc<AbortOnDropHandle<()>>,
}

impl RunningPool {
    /// Starts to claim. `over` stops the delivery of its outcomes.
    pub(crate) fn start(pool: Pool, grace: Duration, over: CancellationToken, telemetry: Telemetry) -> Self {
        let (workers, ending) = (pool.workers(), pool.ending());
        let (result, drained) = watch::channel(None);
        let queue = workers.pool().to_owned();
        let serve = async move {
            let drained = pool.serve().await;
            telemetry.pool_stopped(&queue, drained);
            result.send_replace(Some(drained));
        };
        let task = Arc::new(AbortOnDropHandle::new(tokio::spawn(serve)));
        Self { workers, grace, ending, over, drained, task }
    }

    pub(crate) fn queue(&self) -> &str {
        self.workers.pool()
    }

    /// Waits until its last attempt has ended.
    pub(crate) async fn ended(&mut self) -> Drained {
        // A pool that panicked or was aborted drops its sender, last of all, and has nothing to report.
        let ended = self.drained.wait_for(Option::is_some).await;
        ended.map(|drained| drained.unwrap_or_default()).unwrap_or_default()
    }

    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    /// Whether it was removed and has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.ending.is_cancelled() && self.task.is_finished()
    }

    /// Claims no more. The caller drains what is returned.
    pub(crate) fn remove(
        &self,
        held: HeldLeases,
        finisher: Finisher,
        worker_sets: WorkerSets,
    ) -> LeavingPool {
        self.workers.close();
        self.ending.cancel();
        let pool = Self {
            workers: self.workers.clone(),
            grace: self.grace,
            ending: self.ending.clone(),
            over: self.over.clone(),
            drained: self.drained.clone(),
            task: Arc::clone(&self.task),
        };
        LeavingPool { pool, held, finisher, worker_sets }
    }
}

/// A pool that claims no more and is drained, while the others go on.
pub(crate) struct LeavingPool {
    pool: RunningPool,
    held: HeldLeases,
    finisher: Finisher,
    worker_sets: WorkerSets,
}

impl LeavingPool {
    /// Waits for running attempts, hands the rest back after `timeout`, and waits until their reports are written.
    pub(crate) async fn drain(mut self, timeout: Duration) -> Drained {
        let drained = match tokio::time::timeout(timeout, self.pool.ended()).await {
            Ok(drained) => drained,
            Err(_) => {
                self.held.stop_tasks(&self.pool.workers.tasks(), StopReason::HandBack);
                // An executor answers within two grace periods. Attempts that do not are left behind.
                let in_time = tokio::time::timeout(self.pool.grace * 3, self.pool.ended()).await;
                in_time.unwrap_or_else(|_| self.pool.workers.drained())
            }
        };
        self.pool.abort();
        self.pool.ended().await;
        let _ = tokio::time::timeout(LAST_REPORTS, self.finisher.written_so_far()).await;
        self.pool.over.cancel();
        self.worker_sets.remove(self.pool.queue());
        drained
    }
}
