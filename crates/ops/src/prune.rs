//! Pruning: removes finished tasks past their retention, and rows without a task.

use std::collections::HashSet;
use std::time::Duration;

use ostler_core::TaskId;
use ostler_store::calls::{Prune, Retention};
use ostler_store::{MAX_MAINTENANCE_BATCH, MAX_PAGE, Store};
use ostler_wire::action::PrunedTasks;

use crate::error::OpsError;

/// Removes everything that `keep` does not keep, and orphaned rows older than `strays`. In batches, so that nodes can write in
/// between. Each batch removes rows, so it ends.
///
/// # Errors
/// When the store cannot be written. What earlier batches removed stays removed.
pub async fn prune(store: &dyn Store, keep: Retention, strays: Duration) -> Result<PrunedTasks, OpsError> {
    let mut removed = PrunedTasks::default();
    for what in [Prune::Retention(keep), Prune::Orphans { older: strays, batch: MAX_MAINTENANCE_BATCH }] {
        loop {
            let batch = store.prune(what.clone()).await?;
            removed.add(batch);
            if !batch.more {
                break;
            }
        }
    }
    Ok(removed)
}

/// Those of these tasks that the store does not have any more, asked in batches.
///
/// # Errors
/// When the store cannot be read.
pub async fn gone(store: &dyn Store, tasks: Vec<TaskId>) -> Result<HashSet<TaskId>, OpsError> {
    let mut gone: HashSet<TaskId> = tasks.iter().copied().collect();
    for batch in tasks.chunks(MAX_PAGE) {
        for found in store.existing(batch.to_vec()).await? {
            gone.remove(&found);
        }
    }
    Ok(gone)
}
