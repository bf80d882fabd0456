//! Does what somebody orders about the workers of this node, and says what became of it.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::Store;
use ostler_store::node_commands::{Reply, WorkerChoice};
use tokio::sync::mpsc;

use crate::workers::{RecycleReport, WorkerSet};

/// How often an answer is offered to a store that is away.
const TRIES: usize = 20;
/// How long it is waited in between.
const PAUSE: Duration = Duration::from_millis(250);

/// An order to recycle workers of a pool.
#[derive(Debug)]
pub(crate) struct RecycleRequest {
    pub(crate) number: u64,
    pub(crate) pool: String,
    pub(crate) who: WorkerChoice,
}

/// Recycles workers by order.
pub(crate) struct Recycler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) worker_sets: Vec<WorkerSet>,
    pub(crate) orders: mpsc::Receiver<RecycleRequest>,
}

impl Recycler {
    /// Goes on until nobody hears orders any more.
    pub(crate) async fn serve(mut self) {
        while let Some(RecycleRequest { number, pool, who }) = self.orders.recv().await {
            let workers = self.worker_sets.iter().find(|workers| workers.pool() == pool);
            let RecycleReport { recycled, busy } =
                workers.map(|workers| workers.recycle(who)).unwrap_or_default();
            self.answer(Reply { number, recycled, busy }).await;
        }
    }

    /// Whoever asked waits for it; the workers go whether it is written or not.
    async fn answer(&self, answer: Reply) {
        for _ in 0..TRIES {
            match self.store.reply(self.session, answer.clone()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(_) => return,
            }
        }
    }
}
