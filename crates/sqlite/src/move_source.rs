//! Move source: a store that is being moved to another place. Which verbs are still served, and which records are copied
//! out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{Id, SessionId};
use ostler_store::transfer::{
    Departure, Kind, MAX_BATCH_BYTES, MoveId, MoveSide, MoveSource, MoveStage, Record, RecordKey, Table,
    Value,
};
use ostler_store::{Clock, Error, ErrorKind, MAX_MAINTENANCE_BATCH, Store};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::counts::recent_from;
use crate::fault::fault;
use crate::integrity::require;
use crate::open::{OpenFile, resolve};
use crate::row::{Uid, from_ordinal, ordinal};
use crate::store::Sqlite;
use crate::tx::{Sql, Tx};
use ostler_sql::poll_now;

/// Verbs on behalf of a session or its leases. They stay admitted: running attempts may finish, and once the sessions
/// have ended, each of these verbs is refused by its fence and writes nothing. A claim finds nothing.
const FENCED: [&str; 11] = [
    "claim",
    "start",
    "finish",
    "append",
    "save_step",
    "leave",
    "reply",
    "report",
    "take_outbox",
    "ack_outbox",
    "command",
];
/// Running attempts may go on to ask their breakers, which are copied when none runs any more.
const ASKED: [&str; 1] = ["call_breaker"];
/// Verbs of the move itself.
const OURS: [&str; 4] = ["set_out", "freeze", "go", "stay"];

/// Whether a verb is still served.
pub(crate) fn admits(stage: MoveStage, verb: &str) -> bool {
    let fenced = || FENCED.contains(&verb) || OURS.contains(&verb);
    match stage {
        MoveStage::Staying => true,
        // The death of a node during the move is detected as usual.
        MoveStage::Leaving => fenced() || ASKED.contains(&verb) || verb == "expire",
        MoveStage::Frozen | MoveStage::Gone => fenced(),
    }
}

/// The error for a caller that is no longer served.
pub(crate) fn refusal(departure: &Departure, path: &Path) -> Error {
    let (path, target) = (path.display(), &departure.target);
    match departure.stage {
        MoveStage::Staying | MoveStage::Leaving | MoveStage::Frozen => Error::new(
            ErrorKind::Moving,
            format!(
                "{path} is moving to {target}, and accepts no new tasks: use the new store when the move is done"
            ),
        ),
        MoveStage::Gone => Error::new(
            ErrorKind::Moved,
            format!(
                "{path} has moved to {target}, and is no longer used: name the new store with --store, OSTLER_STORE or in \
                 ostler.toml"
            ),
        ),
    }
}

/// Refuses a store that has moved.
pub(crate) fn refuse_gone(opened: &OpenFile) -> Result<(), Error> {
    match read(&opened.writer).map_err(fault)? {
        Some(departure) if departure.stage == MoveStage::Gone => Err(refusal(&departure, &opened.path)),
        Some(_) | None => Ok(()),
    }
}

/// Reads the record of the move.
pub(crate) fn read(conn: &Connection) -> Sql<Option<Departure>> {
    conn.prepare_cached("SELECT uid, round, stage, target FROM departure")?
        .query_row([], |row| {
            let id = MoveId { id: row.get::<_, Uid>(0)?.id(), round: row.get(1)? };
            Ok(Departure { id, stage: from_ordinal(&MoveStage::ALL, row.get(2)?)?, target: row.get(3)? })
        })
        .optional()
}

/// A store that is being moved, for the code that moves it.
pub struct SqliteSource {
    store: Sqlite,
}

impl SqliteSource {
    /// Opens the store at `path`, even if it has moved.
    ///
    /// # Errors
    /// If there is no store, or it cannot be opened.
    pub fn open(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let path: PathBuf = resolve(path.as_ref())?;
        require(&path)?;
        Ok(Self { store: Sqlite::open_leaving(&path, clock)? })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    async fn mark(&self, verb: &'static str, stage: MoveStage) -> Result<(), Error> {
        self.store.writer.write(verb, move |tx| set_stage(tx, stage)).await
    }
}

fn set_stage(tx: &mut Tx<'_>, stage: MoveStage) -> Sql<()> {
    tx.prepare("UPDATE departure SET stage = ?1")?.execute([ordinal(&MoveStage::ALL, &stage)])?;
    tx.forget_departure();
    Ok(())
}

fn set_out(tx: &mut Tx<'_>, id: MoveId, target: &str) -> Sql<()> {
    tx.prepare(
        "INSERT INTO departure(one, uid, round, stage, target) VALUES(1, ?1, ?2, ?3, ?4)
         ON CONFLICT(one) DO UPDATE SET uid = excluded.uid, round = excluded.round, stage = excluded.stage,
            target = excluded.target",
    )?
    .execute(params![
        Uid::of(id.id),
        id.round,
        ordinal(&MoveStage::ALL, &MoveStage::Leaving),
        target
    ])?;
    tx.forget_departure();
    // Nodes waiting for work learn of it at their next renewal.
    tx.ring_control();
    Ok(())
}

/// Ends all sessions. Returns their ids, and how many tasks were handed back.
fn freeze(tx: &mut Tx<'_>) -> Sql<(Vec<SessionId>, u64)> {
    let leased: i64 = count_leased(tx.conn)?;
    let open: Vec<SessionId> = {
        let mut statement = tx.prepare("SELECT uid FROM session WHERE ended_at IS NULL ORDER BY id")?;
        let uids = statement.query_map([], |row| row.get::<_, Uid>(0).map(|uid| SessionId(uid.id())))?;
        uids.collect::<Sql<_>>()?
    };
    for session in &open {
        poll_now(ostler_sql::sessions::leave(tx, *session))?;
    }
    set_stage(tx, MoveStage::Frozen)?;
    // The nodes renew at once, and learn that they have to stop.
    tx.ring_control();
    Ok((open, u64::try_from(leased).unwrap_or(0)))
}

fn count_leased(conn: &Connection) -> Sql<i64> {
    conn.prepare_cached("SELECT count(*) FROM task INDEXED BY leased WHERE phase IN (3, 4)")?
        .query_row([], |row| row.get(0))
}

#[async_trait]
impl MoveSource for SqliteSource {
    async fn departure(&self) -> Result<Option<Departure>, Error> {
        self.store.readers.read(read).await
    }

    async fn leave(&self, id: MoveId, target: &str) -> Result<(), Error> {
        let target = target.to_owned();
        self.store.writer.write("set_out", move |tx| set_out(tx, id, &target)).await
    }

    async fn leased(&self) -> Result<u64, Error> {
        let leased = self.store.readers.read(count_leased).await?;
        Ok(u64::try_from(leased).unwrap_or(0))
    }

    async fn freeze(&self) -> Result<u64, Error> {
        // Dead nodes first: their tasks were lost, not handed back. Each full batch takes tasks from them, so the loop
        // terminates.
        while self.store.expire(MAX_MAINTENANCE_BATCH).await?.more {}
        let (sessions, handed_back) = self.store.writer.write("freeze", freeze).await?;
        for session in sessions {
            self.store.liveness.end(session);
        }
        Ok(handed_back)
    }

    async fn last_telling(&self) -> Result<i64, Error> {
        let last = |conn: &Connection| {
            conn.query_row(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'telling'",
                [],
                |row| row.get(0),
            )
        };
        self.store.readers.read(last).await
    }

    async fn go(&self) -> Result<(), Error> {
        self.mark("go", MoveStage::Gone).await
    }

    async fn stay(&self) -> Result<(), Error> {
        self.mark("stay", MoveStage::Staying).await
    }
}

#[async_trait]
impl MoveSide for SqliteSource {
    async fn read(
        &self,
        table: Table,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, Error> {
        let after = after.cloned();
        self.store.readers.read(move |conn| records(conn, table, after.as_ref(), limit)).await
    }
}

/// Returns up to `limit` rows above a key.
fn records(conn: &Connection, table: Table, after: Option<&RecordKey>, limit: usize) -> Sql<Vec<Record>> {
    let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
    let key = names[..table.key()].join(", ");
    let above = match after {
        Some(after) => format!("WHERE ({key}) > ({})", vec!["?"; after.0.len()].join(", ")),
        None => String::new(),
    };
    let sql = format!("SELECT {} FROM {} {above} ORDER BY {key}", names.join(", "), table.name());
    let mut statement = conn.prepare_cached(&sql)?;
    let bound: &[Value] = after.map_or(&[], |after| &after.0);
    let mut rows = statement.query(params_from_iter(bound.iter().map(Bound)))?;
    let (mut found, mut weight) = (Vec::new(), 0);
    while found.len() < limit
        && weight < MAX_BATCH_BYTES
        && let Some(row) = rows.next()?
    {
        let record = record(row, table)?;
        weight += record.weight();
        found.push(record);
    }
    Ok(found)
}

fn record(row: &Row<'_>, table: Table) -> Sql<Record> {
    let value = |(at, kind): (usize, Kind)| {
        if row.get_ref(at)? == ValueRef::Null {
            return Ok(Value::Nothing);
        }
        Ok(match kind {
            Kind::Number | Kind::Flag => Value::Number(row.get(at)?),
            Kind::Text => Value::Text(row.get(at)?),
            Kind::Id => Value::Bytes(Id::to_bytes(row.get::<_, Uid>(at)?.id()).to_vec()),
            Kind::Bytes => Value::Bytes(row.get(at)?),
            Kind::Numbers => {
                let bytes: Vec<u8> = row.get(at)?;
                Value::Numbers(recent_from(&bytes).into_iter().map(i64::from).collect())
            }
        })
    };
    let kinds = table.columns().iter().map(|column| column.kind).enumerate();
    kinds.map(value).collect::<Sql<Vec<Value>>>().map(Record)
}

/// A key column, as a statement parameter.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Number(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            // Keys never contain these.
            Value::Nothing | Value::Numbers(_) => ValueRef::Null,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::schema::MIGRATIONS;

    /// Tables that stay behind: the record of the move itself, and tables that only live nodes and their attempts use.
    const STAYS: [&str; 4] = ["departure", "orders", "reservation", "worker"];
    /// Columns that stay behind: only a live node has use for them.
    const STAYS_OF_SESSION: [&str; 2] = ["expires_at", "host"];

    #[test]
    fn every_column_of_every_table_is_carried_or_named_here() {
        let conn = Connection::open_in_memory().expect("a database");
        MIGRATIONS.iter().for_each(|step| conn.execute_batch(step).expect("its tables"));
        let names = |sql: &str| -> BTreeSet<String> {
            let mut statement = conn.prepare(sql).expect("a statement");
            let rows = statement.query_map([], |row| row.get(0)).expect("rows");
            rows.collect::<Sql<_>>().expect("names")
        };
        let mut tables =
            names("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
        for table in Table::ALL {
            assert!(tables.remove(table.name()), "{} is a table", table.name());
            let there = names(&format!("SELECT name FROM pragma_table_info('{}')", table.name()));
            let carried: BTreeSet<String> =
                table.columns().iter().map(|column| column.name.to_owned()).collect();
            let stays = (table == Table::Session).then_some(STAYS_OF_SESSION.map(str::to_owned));
            let carried: BTreeSet<String> = carried.into_iter().chain(stays.into_iter().flatten()).collect();
            assert_eq!(there, carried, "the columns of {}", table.name());
        }
        assert_eq!(tables, STAYS.map(str::to_owned).into(), "what is not carried");
    }

    #[test]
    fn only_what_is_fenced_is_carried_out_when_nothing_may_change() {
        for verb in ["enqueue", "join", "configure", "prune", "fire", "put_job", "make_ready", "replay"] {
            for stage in [MoveStage::Leaving, MoveStage::Frozen, MoveStage::Gone] {
                assert!(!admits(stage, verb), "{verb} in {stage:?}");
            }
            assert!(admits(MoveStage::Staying, verb), "{verb}");
        }
        assert!(admits(MoveStage::Leaving, "expire") && !admits(MoveStage::Frozen, "expire"));
    }
}
