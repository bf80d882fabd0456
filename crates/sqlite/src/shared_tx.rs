//! The transaction, as the verbs that both SQL stores share see it. Every future here is ready at once.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::future::{Future, ready};
use std::time::Duration;

use ostler_core::{Gate, Id, SessionId, State, StateName, TaskId, Timestamp, VirtualTime};
use ostler_sql::claim::{ClaimLanes, ClaimTx, ReadyTask};
use ostler_sql::dialect::for_sqlite;
use ostler_sql::outbox::NewEntry;
use ostler_sql::{Cell, FoundTask, Mishaps, Phase, QueueRow, Unreadable, Value};
use ostler_store::calls::{NewTask, Retention};
use ostler_store::views::{LaneTotals, QueueSettings};
use ostler_store::{Check, Checks};
use rusqlite::types::{FromSqlError, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use smallvec::SmallVec;

use crate::fault::is_foreign_row;
use crate::row::{Uid, find};
use crate::tx::{FastMap, Sql, Tx};
use crate::verbs::{claim, enqueue, jobs, outbox};

/// A parameter of a shared statement.
struct SqliteValue<'a>(Value<'a>);

impl ToSql for SqliteValue<'_> {
    fn to_sql(&self) -> Sql<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Int(number) => number.into(),
            Value::Bool(truth) => truth.into(),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Value::Id(id) => ToSqlOutput::Owned(id.to_bytes().to_vec().into()),
        })
    }
}

/// The driver's error for a value that Ostler never writes.
pub(crate) fn unreadable(error: Unreadable) -> rusqlite::Error {
    FromSqlError::Other(Box::new(error)).into()
}

fn cell(value: ValueRef<'_>) -> Sql<Cell<'_>> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        ValueRef::Text(text) => {
            Cell::Text(std::str::from_utf8(text).map_err(|error| unreadable(Unreadable(error.to_string())))?)
        }
        ValueRef::Blob(bytes) => Cell::Bytes(bytes),
        ValueRef::Real(_) => {
            return Err(unreadable(Unreadable("no column holds a floating-point number".to_owned())));
        }
    })
}

/// A row that [`ostler_sql`] can read.
pub(crate) struct RowRef<'a, 'b>(pub(crate) &'a Row<'b>);

impl ostler_sql::Row for RowRef<'_, '_> {
    type Error = rusqlite::Error;

    fn cell(&self, at: usize) -> Sql<Cell<'_>> {
        cell(self.0.get_ref(at)?)
    }

    fn unreadable(error: Unreadable) -> rusqlite::Error {
        unreadable(error)
    }
}

/// A row that [`ostler_sql`] can keep.
pub(crate) struct OwnedRow(SmallVec<[rusqlite::types::Value; 4]>);

impl ostler_sql::Row for OwnedRow {
    type Error = rusqlite::Error;

    fn cell(&self, at: usize) -> Sql<Cell<'_>> {
        let value = self.0.get(at).ok_or(rusqlite::Error::InvalidColumnIndex(at))?;
        cell(value.into())
    }

    fn unreadable(error: Unreadable) -> rusqlite::Error {
        unreadable(error)
    }
}

impl OwnedRow {
    fn of(row: &Row<'_>) -> Sql<Self> {
        (0..row.as_ref().column_count()).map(|at| row.get(at)).collect::<Sql<_>>().map(Self)
    }
}

/// The statement as SQLite reads it. Each text is translated once in a thread.
pub(crate) fn text(sql: &'static str) -> &'static str {
    thread_local! {
        static TEXTS: RefCell<FastMap<(*const u8, usize), &'static str>> = RefCell::default();
    }
    TEXTS.with_borrow_mut(|texts| {
        *texts.entry((sql.as_ptr(), sql.len())).or_insert_with(|| for_sqlite(sql).leak())
    })
}

fn rows(conn: &Connection, sql: &'static str, params: &[Value<'_>]) -> Sql<Vec<OwnedRow>> {
    let mut statement = conn.prepare_cached(text(sql))?;
    let mut rows = statement.query(params_from_iter(params.iter().copied().map(SqliteValue)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(OwnedRow::of(row)?);
    }
    Ok(found)
}

/// The first row. Its statement is not run any further.
fn first_row(conn: &Connection, sql: &'static str, params: &[Value<'_>]) -> Sql<Option<OwnedRow>> {
    let mut statement = conn.prepare_cached(text(sql))?;
    let mut rows = statement.query(params_from_iter(params.iter().copied().map(SqliteValue)))?;
    rows.next()?.map(OwnedRow::of).transpose()
}

/// A connection that reads one consistent snapshot.
pub(crate) struct ReadView<'a>(pub(crate) &'a Connection);

impl ostler_sql::Snapshot for ReadView<'_> {
    type Error = rusqlite::Error;
    type Row = OwnedRow;

    fn rows(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Sql<Vec<OwnedRow>>> + Send {
        ready(rows(self.0, sql, params))
    }

    fn row(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Sql<Option<OwnedRow>>> + Send {
        ready(first_row(self.0, sql, params))
    }

    fn is_unreadable(error: &rusqlite::Error) -> bool {
        is_foreign_row(error)
    }
}

impl Tx<'_> {
    fn exec_now(&self, sql: &'static str, params: &[Value<'_>]) -> Sql<u64> {
        let changed =
            self.prepare(text(sql))?.execute(params_from_iter(params.iter().copied().map(SqliteValue)))?;
        Ok(changed as u64)
    }

    fn find_by_id(&self, ids: &[TaskId]) -> Sql<HashMap<TaskId, (i64, Phase)>> {
        let mut find = self.prepare("SELECT id, phase FROM task WHERE uid = ?1")?;
        let mut found = HashMap::with_capacity(ids.len());
        for id in ids {
            let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i16>(1)?));
            if let Some((slot, phase)) = find.query_row([Uid::of(id.0)], read).optional()? {
                found.insert(*id, (slot, Phase::from_code(phase).map_err(unreadable)?));
            }
        }
        Ok(found)
    }

    fn stored_now(&self) -> Sql<[u64; 3]> {
        self.prepare(
            "SELECT coalesce(sum(completed - pruned_completed), 0), coalesce(sum(failed - pruned_failed), 0),
                coalesce(sum(cancelled - pruned_cancelled), 0) FROM lane",
        )?
        .query_row([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
    }

    fn insert_edges_now(&self, slot: i64, others: &[i64], on_failed: i16) -> Sql<()> {
        let mut insert = self.prepare("INSERT INTO edge(task, after, on_failed) VALUES(?1, ?2, ?3)")?;
        let mut mark =
            self.prepare("UPDATE task SET trouble = trouble | ?2 WHERE id = ?1 AND trouble >= 0")?;
        for other in others {
            insert.execute(params![slot, other, on_failed])?;
            mark.execute(params![other, Mishaps::AWAITED])?;
        }
        Ok(())
    }
}

impl ostler_sql::Snapshot for Tx<'_> {
    type Error = rusqlite::Error;
    type Row = OwnedRow;

    fn rows(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Sql<Vec<OwnedRow>>> + Send {
        ready(rows(self.conn, sql, params))
    }

    fn row(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Sql<Option<OwnedRow>>> + Send {
        ready(first_row(self.conn, sql, params))
    }

    fn is_unreadable(error: &rusqlite::Error) -> bool {
        is_foreign_row(error)
    }
}

impl ostler_sql::Tx for Tx<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn checks(&self) -> Checks {
        self.checks
    }

    fn exec(&self, sql: &'static str, params: &[Value<'_>]) -> impl Future<Output = Sql<u64>> + Send {
        ready(self.exec_now(sql, params))
    }

    fn queue(&mut self, name: &str) -> impl Future<Output = Sql<Option<&mut QueueRow>>> + Send {
        ready(Tx::queue(self, name))
    }

    fn queue_or_new(&mut self, name: &str) -> impl Future<Output = Sql<&mut QueueRow>> + Send {
        ready(Tx::queue_or_new(self, name))
    }

    fn lane(&mut self, queue: &str, kind: &str) -> impl Future<Output = Sql<i64>> + Send {
        ready(Tx::lane(self, queue, kind))
    }

    fn set_gate(&mut self, queue: &str, gate: Gate) -> impl Future<Output = Sql<()>> + Send {
        ready(Tx::set_gate(self, queue, gate))
    }

    fn set_clock(&mut self, queue: &str, clock: VirtualTime) -> impl Future<Output = Sql<()>> + Send {
        ready(Tx::set_clock(self, queue, clock))
    }

    fn set_settings(
        &mut self,
        queue: &str,
        settings: &QueueSettings,
    ) -> impl Future<Output = Sql<()>> + Send {
        ready(Tx::set_settings(self, queue, settings))
    }

    fn queued(&mut self, queue: &str) -> impl Future<Output = Sql<u64>> + Send {
        ready(Tx::queued(self, queue))
    }

    fn leased_of_account(&mut self, account: &str) -> impl Future<Output = Sql<u64>> + Send {
        ready(Tx::leased_of_account(self, account))
    }

    fn live_session(
        &mut self,
        session: SessionId,
        check: Check,
    ) -> impl Future<Output = Sql<Option<i64>>> + Send {
        ready(Tx::live_session(self, session, check))
    }

    fn exclusive(&self, _: &str) -> Sql<()> {
        Ok(())
    }

    fn locked(&self, _: &BTreeSet<String>) -> Sql<()> {
        Ok(())
    }

    fn lock_by_id(&self, ids: &[TaskId]) -> impl Future<Output = Sql<HashMap<TaskId, (i64, Phase)>>> + Send {
        ready(self.find_by_id(ids))
    }

    fn insert_edges(
        &self,
        slot: i64,
        others: &[i64],
        on_failed: i16,
    ) -> impl Future<Output = Sql<()>> + Send {
        ready(self.insert_edges_now(slot, others, on_failed))
    }

    fn lock(&self, ids: &[TaskId]) -> impl Future<Output = Sql<HashMap<TaskId, i64>>> + Send {
        let found = self.find_by_id(ids);
        ready(found.map(|found| found.into_iter().map(|(id, (slot, _))| (id, slot)).collect()))
    }

    fn read(&self, slot: i64) -> impl Future<Output = Sql<Option<FoundTask>>> + Send {
        ready(find(self.conn, slot))
    }

    fn has_task(&self, id: TaskId) -> impl Future<Output = Sql<bool>> + Send {
        ready(enqueue::exists(self, id))
    }

    fn enqueue(&mut self, task: &NewTask) -> impl Future<Output = Sql<()>> + Send {
        ready(enqueue::run(self, std::slice::from_ref(task)).map(drop))
    }

    fn take(&self, slot: i64) -> impl Future<Output = Sql<Option<FoundTask>>> + Send {
        ready(find(self.conn, slot))
    }

    fn has_tasks(&mut self, queue: &str) -> impl Future<Output = Sql<bool>> + Send {
        ready(jobs::has_tasks(self, queue))
    }

    fn old_jobs(&mut self, keep: &Retention) -> impl Future<Output = Sql<Vec<(Id, String)>>> + Send {
        ready(jobs::old(self, keep.completed.max(keep.failed)))
    }

    fn drop_queue(&mut self, name: &str) -> impl Future<Output = Sql<()>> + Send {
        ready(jobs::drop_queue(self, name))
    }

    fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>) {
        Tx::count(self, lane, from, to);
    }

    fn count_pruned(&mut self, lane: i64, state: StateName) {
        Tx::count_pruned(self, lane, state);
    }

    fn stored(&self) -> impl Future<Output = Sql<[u64; 3]>> + Send {
        ready(self.stored_now())
    }

    fn count_run(&mut self, lane: i64, took: Duration) {
        Tx::count_run(self, lane, took);
    }

    fn add_to_outbox(&mut self, entry: NewEntry) -> impl Future<Output = Sql<()>> + Send {
        ready(outbox::insert(self, &entry))
    }

    fn session_name(&mut self, id: i64) -> impl Future<Output = Sql<SessionId>> + Send {
        ready(Tx::session_name(self, id))
    }

    fn tally(&mut self, lane: i64) -> &mut LaneTotals {
        Tx::tally(self, lane)
    }

    fn ring(&mut self) {
        Tx::ring(self);
    }

    fn ring_control(&mut self) {
        self.ring_control();
    }

    fn changed(&mut self) {
        Tx::changed(self);
    }

    fn frees(&mut self) {
        Tx::frees(self);
    }

    fn has_freed(&mut self) -> bool {
        Tx::has_freed(self)
    }
}

impl ClaimTx for Tx<'_> {
    fn leased(&mut self, queue: &str) -> impl Future<Output = Sql<u64>> + Send {
        ready(Tx::leased(self, queue))
    }

    fn best(
        &self,
        lanes: &ClaimLanes,
        wanted: usize,
        late: &[(ReadyTask, State)],
    ) -> impl Future<Output = Sql<Vec<ReadyTask>>> + Send {
        ready(claim::best(self, lanes, wanted, late))
    }

    fn take_ready(&self, tasks: &[ReadyTask], session: i64) -> impl Future<Output = Sql<()>> + Send {
        ready(claim::take(self, tasks, session))
    }
}
