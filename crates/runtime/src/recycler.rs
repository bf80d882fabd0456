//! Executes recycle commands for the workers of this node, and writes the replies to commands.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::Store;
use ostler_store::node_commands::{NodeAnswer, RecycleAnswer, Reply, WorkerChoice};
use tokio::sync::mpsc;

use crate::telemetry::Telemetry;
use crate::worker_sets::WorkerSets;
use crate::workers::RecycleReport;

/// How often a reply is offered to an unavailable store.
const TRIES: usize = 20;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// What the heartbeat leaves to be done, because it never waits for the store.
#[derive(Debug)]
pub(crate) enum CommandRequest {
    /// Recycle workers of a pool.
    Recycle { number: u64, pool: String, who: WorkerChoice },
    /// Write the reply to a command that is executed.
    Reply(Reply),
}

pub(crate) struct Recycler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) worker_sets: WorkerSets,
    pub(crate) requests: mpsc::Receiver<CommandRequest>,
    pub(crate) telemetry: Telemetry,
}

impl Recycler {
    /// Runs until the heartbeat, which sends the commands, has stopped.
    pub(crate) async fn serve(mut self) {
        while let Some(request) = self.requests.recv().await {
            let reply = match request {
                CommandRequest::Recycle { number, pool, who } => {
                    Reply { number, answer: NodeAnswer::Recycle(self.recycle(&pool, who)) }
                }
                CommandRequest::Reply(reply) => reply,
            };
            self.write(reply).await;
        }
    }

    fn recycle(&self, pool: &str, who: WorkerChoice) -> RecycleAnswer {
        let workers = self.worker_sets.all().into_iter().find(|workers| workers.pool() == pool);
        let RecycleReport { recycled, busy } =
            workers.map(|workers| workers.recycle(who)).unwrap_or_default();
        recycled.iter().for_each(|worker| self.telemetry.worker_recycled(pool, *worker));
        RecycleAnswer { recycled, busy }
    }

    /// Writes the reply for the waiting caller. What it says is done, whether it is written or not.
    async fn write(&self, reply: Reply) {
        for _ in 0..TRIES {
            match self.store.reply(self.session, reply.clone()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(_) => return,
            }
        }
    }
}
