//! Rows of a store that is being moved: written to the tables, and read back for comparison.

use ostler_core::Id;
use ostler_store::Error;
use ostler_store::transfer::{Column, Kind, Record, RecordKey, Table, Value};
use tokio_postgres::Row;

use crate::conn::{Conn, get, most, quoted};
use crate::fault::{Abort, Sql};
use crate::param::Param;
use crate::row::Uid;

/// A statement parameter.
type Parameter = Box<dyn Param + Sync + Send>;

/// Reads rows of a table above a key.
pub(super) async fn read(
    conn: &Conn,
    table: Table,
    after: Option<&RecordKey>,
    limit: usize,
) -> Sql<Vec<Record>> {
    let key = &table.columns()[..table.key()];
    let names = list(key, |column| quoted(column.name));
    let (above, bound) = match after {
        None => (String::new(), Vec::new()),
        Some(after) => {
            let places: Vec<String> = key
                .iter()
                .enumerate()
                .map(|(at, column)| format!("${}::{}", at + 1, sent(column.kind)))
                .collect();
            let bound = key.iter().zip(&after.0).map(|(column, value)| one(column.kind, value)).collect();
            (format!("WHERE ({names}) > ({})", places.join(", ")), bound)
        }
    };
    let sql = format!(
        "SELECT {} FROM ostler.{} {above} ORDER BY {names} LIMIT {}",
        list(table.columns(), shown),
        quoted(table.name()),
        most(limit)
    );
    let rows = conn.rows(&sql, &borrowed(&bound)).await?;
    rows.iter().map(|row| values(row, table.columns()).map(Record)).collect()
}

/// Returns the last key of a table.
pub(super) async fn last(conn: &Conn, table: Table) -> Sql<Option<RecordKey>> {
    let key = &table.columns()[..table.key()];
    let sql = format!(
        "SELECT {} FROM ostler.{} ORDER BY {} LIMIT 1",
        list(key, shown),
        quoted(table.name()),
        list(key, |column| format!("{} DESC", quoted(column.name)))
    );
    conn.row(&sql, &[]).await?.map(|row| values(&row, key).map(RecordKey)).transpose()
}

/// Inserts rows.
pub(super) async fn put(conn: &Conn, table: Table, records: &[Record]) -> Sql<()> {
    let columns = table.columns();
    for record in records {
        refuse_zeros(table, record)?;
    }
    let arrays: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| format!("${}::{}[]", at + 1, sent(column.kind)))
        .collect();
    let (besides, from) = besides(table);
    let sql = format!(
        "INSERT INTO ostler.{}({}{besides}) OVERRIDING SYSTEM VALUE SELECT {}{from} FROM unnest({}) AS r({})",
        quoted(table.name()),
        list(columns, |column| quoted(column.name)),
        list(columns, taken),
        arrays.join(", "),
        list(columns, |column| quoted(column.name)),
    );
    let many = |(at, column): (usize, &Column)| many(column.kind, records.iter().map(|record| &record.0[at]));
    let bound: Vec<Parameter> = columns.iter().enumerate().map(many).collect();
    conn.exec(&sql, &borrowed(&bound)).await?;
    Ok(())
}

/// Columns that only this store has, and the source of their values.
const fn besides(table: Table) -> (&'static str, &'static str) {
    match table {
        Table::Task => (", queue", ", (SELECT l.queue FROM ostler.lane l WHERE l.id = r.lane)"),
        // All sessions have ended.
        Table::Session => (", expires_at", ", r.joined_at"),
        Table::Queue
        | Table::Lane
        | Table::Limits
        | Table::UnusedKey
        | Table::UniqueKey
        | Table::Edge
        | Table::Freed
        | Table::Attempt
        | Table::Step
        | Table::Event
        | Table::Chunk
        | Table::Conversation
        | Table::Outbox
        | Table::Schedule
        | Table::Job
        | Table::GoneWorker
        | Table::CallBreaker
        | Table::Account
        | Table::Spending
        | Table::Spent => ("", ""),
    }
}

/// PostgreSQL text cannot contain U+0000.
fn refuse_zeros(table: Table, record: &Record) -> Sql<()> {
    let has_zero = |value: &Value| match value {
        Value::Text(text) => text.contains('\0'),
        Value::Nothing | Value::Number(_) | Value::Bytes(_) | Value::Numbers(_) => false,
    };
    let Some(at) = record.0.iter().position(has_zero) else { return Ok(()) };
    let sentence = format!(
        "PostgreSQL cannot store the character U+0000, which is in \"{}\" of the table \"{}\" at {}: remove that task, or \
         prune it, and move again",
        table.columns()[at].name,
        table.name(),
        record.key(table)
    );
    Err(Abort::Refused(Error::invalid(sentence)))
}

fn list(columns: &[Column], one: impl Fn(&Column) -> String) -> String {
    columns.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The type in which a value is sent. A column may have a narrower one.
const fn sent(kind: Kind) -> &'static str {
    match kind {
        Kind::Number | Kind::Flag => "bigint",
        // A list is sent as text: the elements of an array of arrays would need one length.
        Kind::Text | Kind::Numbers => "text",
        Kind::Id => "uuid",
        Kind::Bytes => "bytea",
    }
}

/// Converts a sent value to the type of its column.
fn taken(column: &Column) -> String {
    let name = quoted(column.name);
    match column.kind {
        Kind::Number | Kind::Text | Kind::Id | Kind::Bytes => format!("r.{name}"),
        Kind::Flag => format!("r.{name} <> 0"),
        Kind::Numbers => format!("r.{name}::bigint[]"),
    }
}

/// Converts a column to the one type of its kind.
fn shown(column: &Column) -> String {
    let name = quoted(column.name);
    match column.kind {
        Kind::Number => format!("{name}::bigint"),
        Kind::Flag => format!("{name}::integer::bigint"),
        Kind::Text | Kind::Id | Kind::Bytes | Kind::Numbers => name,
    }
}

fn values(row: &Row, columns: &[Column]) -> Sql<Vec<Value>> {
    let value = |(at, column): (usize, &Column)| {
        let found = match column.kind {
            Kind::Number | Kind::Flag => get::<Option<i64>>(row, at)?.map(Value::Number),
            Kind::Text => get::<Option<String>>(row, at)?.map(Value::Text),
            Kind::Id => get::<Option<Uid>>(row, at)?.map(|uid| Value::Bytes(uid.id().to_bytes().to_vec())),
            Kind::Bytes => get::<Option<Vec<u8>>>(row, at)?.map(Value::Bytes),
            Kind::Numbers => get::<Option<Vec<i64>>>(row, at)?.map(Value::Numbers),
        };
        Ok(found.unwrap_or(Value::Nothing))
    };
    columns.iter().enumerate().map(value).collect()
}

fn one(kind: Kind, value: &Value) -> Parameter {
    match kind {
        Kind::Number | Kind::Flag => Box::new(number(value)),
        Kind::Text | Kind::Numbers => Box::new(text(value)),
        Kind::Id => Box::new(uid(value)),
        Kind::Bytes => Box::new(bytes(value)),
    }
}

fn many<'a>(kind: Kind, values: impl Iterator<Item = &'a Value>) -> Parameter {
    match kind {
        Kind::Number | Kind::Flag => Box::new(values.map(number).collect::<Vec<_>>()),
        Kind::Text | Kind::Numbers => Box::new(values.map(text).collect::<Vec<_>>()),
        Kind::Id => Box::new(values.map(uid).collect::<Vec<_>>()),
        Kind::Bytes => Box::new(values.map(bytes).collect::<Vec<_>>()),
    }
}

fn borrowed(parameters: &[Parameter]) -> Vec<&(dyn Param + Sync)> {
    parameters.iter().map(|parameter| parameter.as_ref() as &(dyn Param + Sync)).collect()
}

const fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Nothing | Value::Text(_) | Value::Bytes(_) | Value::Numbers(_) => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Numbers(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            Some(format!("{{{}}}", numbers.join(",")))
        }
        Value::Nothing | Value::Number(_) | Value::Bytes(_) => None,
    }
}

fn uid(value: &Value) -> Option<Uid> {
    match value {
        Value::Bytes(bytes) => {
            bytes.as_slice().try_into().ok().map(|sixteen| Uid::of(Id::from_bytes(sixteen)))
        }
        Value::Nothing | Value::Number(_) | Value::Text(_) | Value::Numbers(_) => None,
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        Value::Nothing | Value::Number(_) | Value::Text(_) | Value::Numbers(_) => None,
    }
}
