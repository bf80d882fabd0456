//! Looks after the store: takes tasks from dead nodes, makes due ones ready, prunes, and reports who works on what. All of
//! it is safe on all nodes at once.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{SessionId, Worker};
use ostler_store::calls::{Prune, Retention};
use ostler_store::{Clock, Store};
use tokio::sync::watch;

use crate::lifecycle::NodeState;
use crate::workers::WorkerSet;

/// Rows in one batch.
const BITE: usize = 1_000;
/// How often finished tasks are pruned.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// The shortest pause between two rounds, however much is due.
const SHORTEST: Duration = Duration::from_millis(5);

pub(crate) struct Maintenance {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) session: SessionId,
    pub(crate) every: Duration,
    pub(crate) retention: Retention,
    pub(crate) worker_sets: Vec<WorkerSet>,
    pub(crate) state: watch::Receiver<NodeState>,
}

impl Maintenance {
    /// Goes on until the node has ended, also while it drains.
    pub(crate) async fn serve(mut self) {
        let mut pruned_at = self.clock.uptime();
        let mut reported: Vec<Worker> = Vec::new();
        loop {
            if matches!(*self.state.borrow_and_update(), NodeState::Ended | NodeState::Fenced) {
                return;
            }
            // What fails now is tried again in the next round; that the store is away is said by `store_health.rs`.
            let _ = self.store.expire(BITE).await;
            let pause = self.make_ready().await;
            if self.clock.uptime().saturating_sub(pruned_at) >= PRUNE_EVERY {
                pruned_at = self.clock.uptime();
                self.prune().await;
            }
            self.report(&mut reported).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = self.state.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Makes ready what is due, and answers how long to wait for what is due next.
    async fn make_ready(&self) -> Duration {
        let Ok(made) = self.store.make_ready(BITE).await else { return self.every };
        let Some(next) = made.next.filter(|next| next.since(self.clock.now()) < self.every) else {
            return self.every;
        };
        // Soon, by the clock of this node; that of the store decides.
        let Ok(now) = self.store.now().await else { return self.every };
        next.since(now).clamp(SHORTEST, self.every)
    }

    async fn prune(&self) {
        while let Ok(pruned) = self.store.prune(Prune::Retention(self.retention)).await {
            if !pruned.more {
                return;
            }
        }
    }

    async fn report(&self, reported: &mut Vec<Worker>) {
        let workers: Vec<Worker> = self.worker_sets.iter().flat_map(WorkerSet::workers).collect();
        if workers != *reported && self.store.report(self.session, workers.clone()).await.is_ok() {
            *reported = workers;
        }
    }
}
