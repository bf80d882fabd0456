//! What the end of a task leads to goes on in batches: one verb sees to [`MAX_CASCADE`](crate::MAX_CASCADE) tasks that waited for
//! it, and `make_ready` to the others. A node does that by itself; a caller without one does it here.

use crate::bounds::MAX_MAINTENANCE_BATCH;
use crate::contract::Store;
use crate::error::Error;

/// Bites at most: a million tasks. What is left over then is seen to by the next node.
const MAX_BITES: usize = 100;

/// Sees to all tasks that wait for ended ones, so that the answer to a cancel is also true of those.
///
/// # Errors
/// When the store cannot be written.
pub async fn see_to_dependents(store: &dyn Store) -> Result<(), Error> {
    for _ in 0..MAX_BITES {
        let made = store.make_ready(MAX_MAINTENANCE_BATCH).await?;
        // Tasks whose time is over come first, and may have taken up the batch.
        if made.freed == 0 && made.expired < MAX_MAINTENANCE_BATCH {
            return Ok(());
        }
    }
    Ok(())
}
