//! Dependents of ended tasks, in batches: a verb processes [`MAX_CASCADE`](crate::MAX_CASCADE) tasks that depend on
//! the ones it ends, and `make_ready` the rest. A node calls that itself; a caller without a node does it here.

use crate::bounds::MAX_MAINTENANCE_BATCH;
use crate::contract::Store;
use crate::error::Error;

/// The maximum number of batches: a million tasks. The next node processes the rest.
const MAX_BITES: usize = 100;

/// Processes all dependents of ended tasks, so that the answer to a cancel is also true of those.
///
/// # Errors
/// When the store cannot be written.
pub async fn release_all_dependents(store: &dyn Store) -> Result<(), Error> {
    for _ in 0..MAX_BITES {
        let made = store.make_ready(MAX_MAINTENANCE_BATCH).await?;
        // Tasks that are too late come first, and may have used up the batch.
        if made.freed == 0 && made.expired < MAX_MAINTENANCE_BATCH {
            return Ok(());
        }
    }
    Ok(())
}
