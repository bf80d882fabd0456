//! Statistics of one pool, in the shapes that other pools have: `PoolStats`, `get_pool_stats` and `worker_heartbeat`.

use ostler_core::Timestamp;
use ostler_store::Store;
use ostler_store::views::{NodeRecord, Survey};
use ostler_wire::pool_stats::{NodeHeartbeat, PoolStats, WorkerPoolStats};

use crate::error::{Missing, OpsError, Refusal};

/// Workers, tasks and the mean duration of a pool, as a Go program has them in `PoolStats`.
///
/// # Errors
/// When neither a queue nor a worker has this name.
pub async fn pool_stats(store: &dyn Store, pool: &str) -> Result<PoolStats, OpsError> {
    Ok(PoolStats::new(&known(store, pool).await?, pool))
}

/// Workers by name, as a Python program gets them from `get_pool_stats`.
///
/// # Errors
/// When neither a queue nor a worker has this name.
pub async fn worker_pool_stats(store: &dyn Store, pool: &str) -> Result<WorkerPoolStats, OpsError> {
    Ok(WorkerPoolStats::new(&known(store, pool).await?, pool))
}

/// The processes of a node, by id or name, as a `worker_heartbeat` has them.
///
/// # Errors
/// When no such node is running, or several have the name.
pub async fn heartbeat(store: &dyn Store, node: &str, now: Timestamp) -> Result<NodeHeartbeat, OpsError> {
    let survey = store.survey().await?;
    let is_meant = |record: &&NodeRecord| record.session.to_string() == node || record.name == node;
    let found: Vec<&NodeRecord> = survey.nodes.iter().filter(is_meant).collect();
    match found.as_slice() {
        [one] => Ok(NodeHeartbeat::new(&survey, one, now)),
        [] => Err(Missing::Node(node.to_owned()).into()),
        several => {
            let nodes = several.iter().map(|record| record.session).collect();
            Err(Refusal::SeveralNodes { name: node.to_owned(), nodes }.into())
        }
    }
}

async fn known(store: &dyn Store, pool: &str) -> Result<Survey, OpsError> {
    let survey = store.survey().await?;
    let is_queue = survey.queues.iter().any(|queue| queue.name == pool);
    let has_tasks = survey.lanes.iter().any(|lane| lane.queue == pool);
    let has_workers = survey.workers.iter().any(|record| record.worker.pool == pool);
    if is_queue || has_tasks || has_workers {
        Ok(survey)
    } else {
        Err(Missing::Queue(pool.to_owned()).into())
    }
}
