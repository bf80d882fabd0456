//! A task as a row, and back.

use bytes::BytesMut;
use ostler_core::{Id, Priority};
pub(crate) use ostler_sql::phase::{Mishaps, Phase, ordinal, ran_bytes, why_code};
pub(crate) use ostler_sql::task::{BY_ROW, FoundTask};
use ostler_sql::{Cell, Unreadable};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::conn::{Conn, get};
use crate::fault::{Abort, Sql, with_source};

/// The sixteen bytes of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

/// The task in a row.
pub(crate) async fn find(conn: &Conn, slot: i64) -> Sql<Option<FoundTask>> {
    conn.row(BY_ROW, &[&slot]).await?.map(|row| found_from(&row)).transpose()
}

/// A task from its row.
pub(crate) fn found_from(row: &Row) -> Sql<FoundTask> {
    ostler_sql::task::found_from(&RowRef(row))
}

/// The head start that a column keeps.
pub(crate) fn priority(points: i16) -> Priority {
    Priority::new(i64::from(points)).unwrap_or_default()
}

/// The head start as a column keeps it.
pub(crate) fn points(priority: Priority) -> i16 {
    i16::try_from(priority.points()).unwrap_or_default()
}

/// A row that [`ostler_sql`] can read.
pub(crate) struct RowRef<'a>(pub(crate) &'a Row);

/// A row that [`ostler_sql`] can keep.
pub(crate) struct OwnedRow(pub(crate) Row);

impl ostler_sql::Row for RowRef<'_> {
    type Error = Abort;

    fn cell(&self, at: usize) -> Sql<Cell<'_>> {
        cell(self.0, at)
    }

    fn unreadable(error: Unreadable) -> Abort {
        error.into()
    }
}

impl ostler_sql::Row for OwnedRow {
    type Error = Abort;

    fn cell(&self, at: usize) -> Sql<Cell<'_>> {
        cell(&self.0, at)
    }

    fn unreadable(error: Unreadable) -> Abort {
        error.into()
    }
}

fn cell(row: &Row, at: usize) -> Sql<Cell<'_>> {
    let Some(column) = row.columns().get(at) else {
        return Err(Abort::Foreign(format!("there is no column {at}")));
    };
    Ok(match *column.type_() {
        Type::INT8 => int(get::<Option<i64>>(row, at)?),
        Type::INT4 => int(get::<Option<i32>>(row, at)?),
        Type::INT2 => int(get::<Option<i16>>(row, at)?),
        Type::BOOL => int(get::<Option<bool>>(row, at)?),
        Type::UUID => {
            let raw = row
                .try_get::<_, Option<RawUuid<'_>>>(at)
                .map_err(|error| Abort::Foreign(with_source(&error)))?;
            raw.map_or(Cell::Null, |RawUuid(bytes)| Cell::Bytes(bytes))
        }
        Type::BYTEA => {
            let raw =
                row.try_get::<_, Option<&[u8]>>(at).map_err(|error| Abort::Foreign(with_source(&error)))?;
            raw.map_or(Cell::Null, Cell::Bytes)
        }
        _ => {
            let text =
                row.try_get::<_, Option<&str>>(at).map_err(|error| Abort::Foreign(with_source(&error)))?;
            text.map_or(Cell::Null, Cell::Text)
        }
    })
}

fn int<N: Into<i64>>(number: Option<N>) -> Cell<'static> {
    number.map_or(Cell::Null, |number| Cell::Int(number.into()))
}

/// The bytes of an id, where the driver has them.
struct RawUuid<'a>(&'a [u8]);

impl<'a> FromSql<'a> for RawUuid<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    accepts!(UUID);
}
