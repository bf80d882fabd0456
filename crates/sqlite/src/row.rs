//! A task as a row, and back.

use std::time::Duration;

use ostler_core::Id;
pub(crate) use ostler_sql::phase::{Mishaps, Phase, ordinal, ran_bytes, why_code};
pub(crate) use ostler_sql::task::{BY_ROW, FoundTask, found_from};
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::shared_tx::{RowRef, text, unreadable};

/// The TTL of a session, in milliseconds.
pub(crate) fn ttl_from(row: &Row<'_>, at: usize) -> rusqlite::Result<Duration> {
    Ok(Duration::from_millis(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0)))
}

/// The phase of a task, from its column.
pub(crate) fn phase_at(row: &Row<'_>, at: usize) -> rusqlite::Result<Phase> {
    Phase::from_code(row.get(at)?).map_err(unreadable)
}

/// The entry at an ordinal that a row names.
pub(crate) fn from_ordinal<T: Copy>(all: &[T], at: i64) -> rusqlite::Result<T> {
    ostler_sql::phase::from_ordinal(all, at).map_err(unreadable)
}

/// The sixteen bytes of an id.
pub(crate) struct Uid([u8; 16]);

impl Uid {
    pub(crate) const fn of(id: Id) -> Self {
        Self(id.to_bytes())
    }

    pub(crate) const fn id(&self) -> Id {
        Id::from_bytes(self.0)
    }
}

impl ToSql for Uid {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Uid {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        <[u8; 16]>::column_result(value).map(Self)
    }
}

/// The task in a row.
pub(crate) fn find(conn: &Connection, slot: i64) -> rusqlite::Result<Option<FoundTask>> {
    conn.prepare_cached(text(BY_ROW))?.query_row([slot], found).optional()
}

fn found(row: &Row<'_>) -> rusqlite::Result<FoundTask> {
    found_from(&RowRef(row))
}
