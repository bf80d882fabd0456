//! Lists schedules.

use ostler_sql::schedules::{LIST, record};
use ostler_store::schedules::ScheduleRecord;
use rusqlite::Connection;

use crate::fault::readable;
use crate::shared_tx::{RowRef, text};
use crate::tx::Sql;

/// Lists all schedules. One that cannot be read is skipped, so that it does not hide the others.
pub(crate) fn list(conn: &Connection) -> Sql<Vec<ScheduleRecord>> {
    let mut statement = conn.prepare_cached(text(LIST))?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.extend(readable(record(&RowRef(row)))?);
    }
    Ok(all)
}
