//! Executes recycle commands for the workers of this node and writes the replies.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::Store;
use ostler_store::node_commands::{Reply, WorkerChoice};
use tokio::sync::mpsc;

use crate::telemetry::Telemetry;
use crate::worker_sets::WorkerSets;
use crate::workers::RecycleReport;

/// How often a reply is offered to an unavailable store.
const TRIES: usize = 20;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// A command to recycle workers of a pool.
#[derive(Debug)]
pub(crate) struct RecycleRequest {
    pub(crate) number: u64,
    pub(crate) pool: String,
    pub(crate) who: WorkerChoice,
}

pub(crate) struct Recycler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) worker_sets: WorkerSets,
    pub(crate) requests: mpsc::Receiver<RecycleRequest>,
    pub(crate) telemetry: Telemetry,
}

impl Recycler {
    /// Runs until the heartbeat, which sends the commands, has stopped.
    pub(crate) async fn serve(mut self) {
        while let Some(RecycleRequest { number, pool, who }) = self.requests.recv().await {
            let workers = self.worker_sets.all().into_iter().find(|workers| workers.pool() == pool);
            let RecycleReport { recycled, busy } =
                workers.map(|workers| workers.recycle(who)).unwrap_or_default();
            recycled.iter().for_each(|worker| self.telemetry.worker_recycled(&pool, *worker));
            self.answer(Reply { number, recycled, busy }).await;
        }
    }

    /// Writes the reply for the waiting caller. Workers are recycled whether it is written or not.
    async fn answer(&self, answer: Reply) {
        for _ in 0..TRIES {
            match self.store.reply(self.session, answer.clone()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(_) => return,
            }
        }
    }
}
