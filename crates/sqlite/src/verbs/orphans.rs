//! Sweeps rows that belong to no task. No verb leaves any: a task goes with all that belongs to it, in one transaction. Only
//! somebody who edits the file by hand can.

use std::time::Duration;

use rusqlite::params;

use crate::tx::{Sql, Tx};

/// What can belong to a task that is gone, and when it was written.
const TABLES: [(&str, &str); 3] = [("step", "saved_at"), ("attempt", "started_at"), ("event", "at")];

/// Removes up to so many of them that are older than this. It looks at every row: for whoever asks, not for every minute.
pub(crate) fn sweep(tx: &mut Tx<'_>, older: Duration, batch: usize) -> Sql<usize> {
    let cutoff = tx.now.before(older).millis();
    let mut removed = 0;
    for (table, written) in TABLES {
        let second = if table == "step" { "name" } else { "number" };
        let left = i64::try_from(batch - removed).unwrap_or(i64::MAX);
        removed += tx
            .prepare(&format!(
                "DELETE FROM {table} WHERE (task, {second}) IN (
                    SELECT task, {second} FROM {table} AS lost
                    WHERE {written} < ?1 AND NOT EXISTS (SELECT 1 FROM task WHERE id = lost.task) LIMIT ?2
                 )"
            ))?
            .execute(params![cutoff, left])?;
    }
    Ok(removed)
}
