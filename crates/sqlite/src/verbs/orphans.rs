//! Orphans: sweeps rows that belong to no task. No verb leaves any, because a task is removed with all its rows in one
//! transaction. Only edits of the file by hand can.

use std::time::Duration;

use rusqlite::params;

use crate::tx::{Sql, Tx};

/// Tables whose rows may outlive their task, with the column of their timestamp.
const TABLES: [(&str, &str); 3] = [("step", "saved_at"), ("attempt", "started_at"), ("event", "at")];

/// Removes up to `batch` orphans older than `older`. Scans every row: for use on request, not periodically.
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
