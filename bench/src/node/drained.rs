//! How fast a node drains a queue of tasks that run in children.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::TaskId;
use ostler_runtime::{Ids, Node, NodeConfig, NodeDeps, PoolConfig};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::NewTask;
use ostler_store::{MAX_BATCH, Stats, Store, SystemClock};

use crate::Error;
use crate::load::QUEUE;

/// Tasks for each worker before the measurement, so that all of them are up.
const WARM: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// Enqueues `tasks` tasks of this kind in a new store, and returns how many a node with this pool completes per second.
pub(crate) async fn drained(path: &Path, kind: &str, tasks: usize, pool: PoolConfig) -> Result<f64, Error> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(path, Arc::new(SystemClock), Options::default())?);
    let ids = ostler::ids()?;
    let warm = WARM * pool.size.max;
    let parts = NodeDeps { store: Arc::clone(&store), clock: Arc::new(SystemClock), ids: Arc::clone(&ids) };
    let node = Node::start(parts, NodeConfig::new("bench", vec![pool])).await?;
    enqueue(store.as_ref(), &ids, kind, warm).await?;
    completed(&node, store.as_ref(), warm).await?;
    let begun = Instant::now();
    enqueue(store.as_ref(), &ids, kind, tasks).await?;
    completed(&node, store.as_ref(), warm + tasks).await?;
    let rate = tasks as f64 / begun.elapsed().as_secs_f64();
    node.drain(PATIENCE).await;
    Ok(rate)
}

async fn enqueue(store: &dyn Store, ids: &Ids, kind: &str, tasks: usize) -> Result<(), Error> {
    let all: Vec<NewTask> = (0..tasks).map(|_| NewTask::new(TaskId(ids()), QUEUE, kind, "null")).collect();
    for some in all.chunks(MAX_BATCH) {
        store.enqueue(some.to_vec()).await?;
    }
    Ok(())
}

async fn completed(node: &Node, store: &dyn Store, tasks: usize) -> Result<(), Error> {
    let mut ends = node.ends();
    let waiting = async {
        loop {
            ends.mark_unchanged();
            if Stats::of(&store.survey().await?, Some(QUEUE)).tasks.completed >= tasks as u64 {
                return Ok::<(), Error>(());
            }
            ends.changed().await?;
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(done) => done,
        Err(_) => {
            let now = Stats::of(&store.survey().await?, Some(QUEUE)).tasks;
            Err(format!("{tasks} tasks do not get done within {PATIENCE:?}: {now:?}").into())
        }
    }
}
