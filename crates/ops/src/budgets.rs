//! Budgets of queues: one is refused while it is not known what the work of the queue costs, because it would limit nothing.

use ostler_core::Budget;
use ostler_store::Store;
use ostler_store::calls::QueueChange;
use ostler_store::views::{Liveness, NodeRecord};

use crate::error::{OpsError, Refusal};

/// Sets the budget of a queue that the pool of `pool` serves: another queue for a job, else the queue itself.
///
/// # Errors
/// When the cost of its work is not known, the budget limits nothing, or the store cannot be written.
pub async fn set(store: &dyn Store, queue: &str, pool: &str, budget: Budget) -> Result<(), OpsError> {
    check(store, &[queue, pool]).await?;
    store.configure(queue, vec![QueueChange::Budget(Some(budget))]).await?;
    Ok(())
}

/// Refuses a budget for queues for which a live node has a pool whose work has no known cost.
///
/// # Errors
/// When there is such a node, or the store cannot be read.
pub async fn check(store: &dyn Store, queues: &[&str]) -> Result<(), OpsError> {
    let nodes = store.survey().await?.nodes;
    let is_alive = |node: &&NodeRecord| node.liveness == Liveness::Alive;
    let why =
        nodes.iter().filter(is_alive).find_map(|node| queues.iter().find_map(|queue| node.unpriced(queue)));
    Ok(check_priced(why)?)
}

/// Refuses a budget for work whose cost is not known. `unpriced` says why not.
///
/// # Errors
/// When there is a reason.
pub fn check_priced(unpriced: Option<String>) -> Result<(), Refusal> {
    unpriced.map_or(Ok(()), |why| Err(Refusal::Unpriced(why)))
}
