//! Store maintenance: expires dead nodes, makes due tasks ready, prunes, and reports workers and their trouble. Safe to run on all
//! nodes at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Failure, SessionId, Worker};
use ostler_store::calls::{Prune, Retention};
use ostler_store::{Clock, MAX_GONE_WORKERS, Store};
use tokio::sync::watch;

use crate::lifecycle::NodeState;
use crate::telemetry::Telemetry;
use crate::worker_sets::WorkerSets;
use crate::workers::WorkerSet;

/// Rows per batch.
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
    pub(crate) heartbeat: Duration,
    pub(crate) retention: Retention,
    pub(crate) worker_sets: WorkerSets,
    pub(crate) state: watch::Receiver<NodeState>,
    pub(crate) telemetry: Telemetry,
}

/// What the store knows of the workers, and what it is still to be told.
struct Reported {
    workers: Vec<Worker>,
    /// Closed workers that are not reported yet.
    closed: VecDeque<Worker>,
    at: Duration,
}

impl Maintenance {
    /// Runs until the node is fenced or has ended, including during a drain.
    pub(crate) async fn serve(mut self) {
        let mut pruned_at = self.clock.uptime();
        let mut reported = Reported { workers: Vec::new(), closed: VecDeque::new(), at: self.clock.uptime() };
        let mut troubles = Vec::new();
        loop {
            if matches!(*self.state.borrow_and_update(), NodeState::Ended | NodeState::Fenced) {
                return;
            }
            // Failures are retried in the next round; `store_health.rs` reports an unavailable store.
            let _ = self.store.expire(BITE).await;
            let pause = self.make_ready().await;
            if self.clock.uptime().saturating_sub(pruned_at) >= PRUNE_EVERY {
                pruned_at = self.clock.uptime();
                self.prune().await;
            }
            self.report(&mut reported).await;
            self.report_trouble(&mut troubles);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = self.state.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Makes due tasks ready, and returns how long to wait for the next.
    async fn make_ready(&self) -> Duration {
        let Ok(made) = self.store.make_ready(BITE).await else { return self.every };
        let Some(next) = made.next.filter(|next| next.since(self.clock.now()) < self.every) else {
            return self.every;
        };
        // Soon by the clock of this node; the clock of the store decides.
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

    /// Reports the trouble that pools have with their workers, once while it lasts.
    fn report_trouble(&self, said: &mut Vec<(String, Failure)>) {
        let trouble = |workers: &WorkerSet| Some((workers.pool().to_owned(), workers.trouble()?));
        let found: Vec<(String, Failure)> = self.worker_sets.all().iter().filter_map(trouble).collect();
        for (queue, failure) in found.iter().filter(|trouble| !said.contains(trouble)) {
            self.telemetry.pool_trouble(queue, &failure.message);
        }
        *said = found;
    }

    /// Reports the workers when they have changed and, while one is busy, at every heartbeat: so readers of the tables see
    /// that the node holds its leases.
    async fn report(&self, reported: &mut Reported) {
        let workers: Vec<Worker> = self.worker_sets.all().iter().flat_map(WorkerSet::workers).collect();
        let is_due = self.clock.uptime().saturating_sub(reported.at) >= self.heartbeat
            && workers.iter().any(|worker| worker.task.is_some());
        reported.closed.extend(self.worker_sets.take_closed());
        let excess = reported.closed.len().saturating_sub(MAX_GONE_WORKERS);
        reported.closed.drain(..excess);
        if !is_due && workers == reported.workers && reported.closed.is_empty() {
            return;
        }
        let closed = reported.closed.iter().cloned().collect();
        if self.store.report(self.session, workers.clone(), closed).await.is_ok() {
            *reported = Reported { workers, closed: VecDeque::new(), at: self.clock.uptime() };
        }
    }
}
