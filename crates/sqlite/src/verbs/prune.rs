//! Prune by retention, after which the cached sessions may be gone.

use ostler_sql::poll_now;
use ostler_store::calls::{Pruned, Retention};

use crate::tx::{Sql, Tx};

pub(crate) fn retention(tx: &mut Tx<'_>, keep: &Retention) -> Sql<Pruned> {
    let pruned = poll_now(ostler_sql::prune::retention(tx, keep))?;
    tx.forget_sessions();
    Ok(pruned)
}
