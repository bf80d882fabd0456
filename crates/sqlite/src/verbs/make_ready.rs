//! Make ready: what is due next.

use ostler_core::Timestamp;
use ostler_sql::dependents::NEXT_FREED;
use ostler_sql::gates;
use ostler_sql::make_ready::{NEXT_DUE, NEXT_LATE, next_of};
use rusqlite::Connection;

use crate::shared_tx::text;
use crate::tx::Sql;

/// When there is something to do next. In the past: now.
pub(crate) fn next(conn: &Connection, now: Timestamp) -> Sql<Option<Timestamp>> {
    let first = |sql: &str| conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, Option<i64>>(0));
    let (due, late) = (first(text(NEXT_DUE))?, first(text(NEXT_LATE))?);
    let (freed, keys) = (first(text(NEXT_FREED))?, first(text(gates::NEXT_DUE))?);
    Ok(next_of(due, late, freed, keys, now))
}
