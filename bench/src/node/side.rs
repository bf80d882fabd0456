//! A node with a no-op handler, fed by a producer in the same process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ostler_core::TaskId;
use ostler_exec::Inline;
use ostler_runtime::{Ids, Node, NodeConfig, NodeDeps, PoolConfig};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::NewTask;
use ostler_store::{Stats, Store, SystemClock};
use tokio::sync::Notify;

use crate::Error;
use crate::load::{KIND, PAYLOAD, QUEUE, Tally};

/// Tasks per enqueue.
const BATCH: usize = 128;
/// The maximum number of waiting tasks: how far the producer gets ahead.
const AHEAD: u64 = 2_048;
/// How long tasks may take to complete after the last enqueue.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct NodeSide {
    store: Arc<Sqlite>,
    node: Node,
    ids: Ids,
    seen: Arc<Seen>,
}

/// Counters of the handler.
#[derive(Default)]
struct Seen {
    runs: AtomicU64,
    changed: Notify,
}

impl NodeSide {
    pub(super) async fn start(path: &Path, workers: usize) -> Result<Self, Error> {
        let store = Arc::new(Sqlite::open(path, Arc::new(SystemClock), Options::default())?);
        let seen = Arc::new(Seen::default());
        let counted = Arc::clone(&seen);
        let executor = Inline::new().handle(KIND, move |_, _| {
            counted.runs.fetch_add(1, Ordering::Relaxed);
            counted.changed.notify_one();
            async { Ok(Some("null".to_owned())) }
        });
        let ids = ostler::ids()?;
        let shared: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
        let parts = NodeDeps { store: shared, clock: Arc::new(SystemClock), ids: Arc::clone(&ids) };
        let pool = PoolConfig::new(QUEUE, Arc::new(executor), workers);
        let node = Node::start(parts, NodeConfig::new("bench", vec![pool])).await?;
        Ok(Self { store, node, ids, seen })
    }

    /// Runs tasks outside the measurement.
    pub(super) async fn warm_up(&self, tasks: usize) -> Result<(), Error> {
        let before = self.completed().await?;
        let mut put = 0;
        while put < tasks {
            self.enqueue().await?;
            put += BATCH;
        }
        self.wait_for(before + put as u64).await
    }

    /// Enqueues for about this long, and waits until all of it is durably completed.
    pub(super) async fn run(&self, about: Duration) -> Result<Tally, Error> {
        let before = self.completed().await?;
        let runs_before = self.seen.runs.load(Ordering::Relaxed);
        let begun = Instant::now();
        let mut put = 0;
        while put == 0 || begun.elapsed() < about {
            self.enqueue().await?;
            put += BATCH as u64;
            while put.saturating_sub(self.seen.runs.load(Ordering::Relaxed) - runs_before) > AHEAD {
                self.seen.changed.notified().await;
            }
        }
        self.wait_for(before + put).await?;
        let took = begun.elapsed();
        let completed = self.completed().await? - before;
        if completed != put {
            return Err(format!("the node completed {completed} tasks, not {put}").into());
        }
        Ok(Tally { done: usize::try_from(put)?, took })
    }

    pub(super) async fn end(self) {
        self.node.drain(PATIENCE).await;
    }

    async fn enqueue(&self) -> Result<(), Error> {
        let task = |_| NewTask::new(TaskId((self.ids)()), QUEUE, KIND, PAYLOAD);
        self.store.enqueue((0..BATCH).map(task).collect()).await?;
        Ok(())
    }

    async fn completed(&self) -> Result<u64, Error> {
        Ok(Stats::of(&self.store.survey().await?, Some(QUEUE)).tasks.completed)
    }

    /// Waits until this many are completed; the node signals each finished task.
    async fn wait_for(&self, completed: u64) -> Result<(), Error> {
        let mut ends = self.node.ends();
        let waiting = async {
            loop {
                ends.mark_unchanged();
                if self.completed().await? >= completed {
                    return Ok::<(), Error>(());
                }
                ends.changed().await?;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| "the node does not get done")?
    }
}
