//! The transaction, as the verbs that both SQL stores share see it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::BytesMut;
use ostler_core::{Gate, Id, SessionId, State, StateName, TaskId, Timestamp, VirtualTime};
use ostler_sql::claim::{ClaimLanes, ClaimTx, ReadyTask};
use ostler_sql::outbox::NewEntry;
use ostler_sql::{FoundTask, Mishaps, Phase, QueueRow, Value};
use ostler_store::calls::{NewTask, Retention};
use ostler_store::views::{LaneTotals, QueueSettings};
use ostler_store::{Check, Checks};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::Tx;
use crate::conn::{Conn, get};
use crate::fault::{Abort, Sql};
use crate::locks::{LockTarget, Locks, Mode};
use crate::param::Param;
use crate::row::{OwnedRow, Uid, find};
use crate::verbs::{claim, enqueue, jobs, prune};

/// A parameter of a shared statement. Numbers take the width of their column.
#[derive(Debug)]
struct PgValue<'a>(Value<'a>);

impl ToSql for PgValue<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => match *ty {
                Type::INT2 => i16::try_from(number)?.to_sql(ty, out),
                Type::INT4 => i32::try_from(number)?.to_sql(ty, out),
                _ => number.to_sql(ty, out),
            },
            Value::Bool(truth) => truth.to_sql(ty, out),
            Value::Text(text) => text.to_sql(ty, out),
            Value::Bytes(bytes) => bytes.to_sql(ty, out),
            Value::Id(id) => Uid::of(id).to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl Param for PgValue<'_> {
    fn sql_type(&self) -> Type {
        match self.0 {
            // The server infers it.
            Value::Null => Type::UNKNOWN,
            Value::Int(_) => Type::INT8,
            Value::Bool(_) => Type::BOOL,
            Value::Text(_) => Type::TEXT,
            Value::Bytes(_) => Type::BYTEA,
            Value::Id(_) => Type::UUID,
        }
    }
}

fn values<'a>(params: &[Value<'a>]) -> Vec<PgValue<'a>> {
    params.iter().copied().map(PgValue).collect()
}

fn references<'a>(values: &'a [PgValue<'_>]) -> Vec<&'a (dyn Param + Sync)> {
    values.iter().map(|value| value as &(dyn Param + Sync)).collect()
}

impl ostler_sql::Snapshot for Conn {
    type Error = Abort;
    type Row = OwnedRow;

    async fn rows(&self, sql: &'static str, params: &[Value<'_>]) -> Sql<Vec<OwnedRow>> {
        let values = values(params);
        let rows = self.rows(sql, &references(&values)).await?;
        Ok(rows.into_iter().map(OwnedRow).collect())
    }

    async fn row(&self, sql: &'static str, params: &[Value<'_>]) -> Sql<Option<OwnedRow>> {
        Ok(ostler_sql::Snapshot::rows(self, sql, params).await?.into_iter().next())
    }

    fn is_unreadable(error: &Abort) -> bool {
        matches!(error, Abort::Foreign(_))
    }
}

impl ostler_sql::Snapshot for Tx {
    type Error = Abort;
    type Row = OwnedRow;

    async fn rows(&self, sql: &'static str, params: &[Value<'_>]) -> Sql<Vec<OwnedRow>> {
        ostler_sql::Snapshot::rows(&self.conn, sql, params).await
    }

    async fn row(&self, sql: &'static str, params: &[Value<'_>]) -> Sql<Option<OwnedRow>> {
        ostler_sql::Snapshot::row(&self.conn, sql, params).await
    }

    fn is_unreadable(error: &Abort) -> bool {
        Conn::is_unreadable(error)
    }
}

impl ostler_sql::Tx for Tx {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn checks(&self) -> Checks {
        self.checks
    }

    async fn exec(&self, sql: &'static str, params: &[Value<'_>]) -> Sql<u64> {
        let values = values(params);
        self.conn.exec(sql, &references(&values)).await
    }

    async fn queue(&mut self, name: &str) -> Sql<Option<&mut QueueRow>> {
        Self::queue(self, name)
    }

    async fn queue_or_new(&mut self, name: &str) -> Sql<&mut QueueRow> {
        Self::queue_or_new(self, name).await
    }

    async fn lane(&mut self, queue: &str, kind: &str) -> Sql<i64> {
        Self::lane(self, queue, kind).await
    }

    async fn set_gate(&mut self, queue: &str, gate: Gate) -> Sql<()> {
        Self::set_gate(self, queue, gate).await
    }

    async fn set_clock(&mut self, queue: &str, clock: VirtualTime) -> Sql<()> {
        Self::set_clock(self, queue, clock).await
    }

    async fn set_settings(&mut self, queue: &str, settings: &QueueSettings) -> Sql<()> {
        Self::set_settings(self, queue, settings).await
    }

    async fn queued(&mut self, queue: &str) -> Sql<u64> {
        Self::queued(self, queue).await
    }

    async fn leased_of_account(&mut self, account: &str) -> Sql<u64> {
        Self::leased_of_account(self, account).await
    }

    async fn live_session(&mut self, session: SessionId, check: Check) -> Sql<Option<i64>> {
        Self::live_session(self, session, check).await
    }

    fn exclusive(&self, queue: &str) -> Sql<()> {
        self.exclusive(queue)
    }

    fn locked(&self, queues: &BTreeSet<String>) -> Sql<()> {
        let mut needs = Locks::none();
        for queue in queues {
            if Self::locked(self, queue).is_err() {
                needs.add(LockTarget::Queue(queue.clone()), Mode::Shared);
            }
        }
        if needs.is_empty() { Ok(()) } else { Err(Abort::Needs(needs)) }
    }

    async fn lock_by_id(&self, ids: &[TaskId]) -> Sql<HashMap<TaskId, (i64, Phase)>> {
        let slots = self.hold(ids).await?;
        let held: Vec<i64> = slots.values().copied().collect();
        let rows = self.conn.rows("SELECT id, phase FROM ostler.task WHERE id = ANY($1)", &[&held]).await?;
        let mut phases = HashMap::with_capacity(rows.len());
        for row in &rows {
            phases.insert(get::<i64>(row, 0)?, Phase::from_code(get(row, 1)?)?);
        }
        Ok(slots.into_iter().filter_map(|(id, slot)| Some((id, (slot, *phases.get(&slot)?)))).collect())
    }

    async fn insert_edges(&self, slot: i64, others: &[i64], on_failed: i16) -> Sql<()> {
        self.conn
            .exec(
                "INSERT INTO ostler.edge(task, after, on_failed) SELECT $1, other, $3 FROM unnest($2::bigint[]) AS n(other)",
                &[&slot, &others, &on_failed],
            )
            .await?;
        self.conn
            .exec(
                "UPDATE ostler.task SET trouble = trouble | $2 WHERE id = ANY($1) AND trouble >= 0",
                &[&others, &Mishaps::AWAITED],
            )
            .await?;
        Ok(())
    }

    async fn lock(&self, ids: &[TaskId]) -> Sql<HashMap<TaskId, i64>> {
        self.hold(ids).await
    }

    async fn read(&self, slot: i64) -> Sql<Option<FoundTask>> {
        find(&self.conn, slot).await
    }

    async fn has_task(&self, id: TaskId) -> Sql<bool> {
        enqueue::exists(self, id).await
    }

    async fn enqueue(&mut self, task: &NewTask) -> Sql<()> {
        enqueue::run(self, std::slice::from_ref(task)).await?;
        Ok(())
    }

    async fn take(&self, slot: i64) -> Sql<Option<FoundTask>> {
        Self::take(self, slot).await
    }

    async fn has_tasks(&mut self, queue: &str) -> Sql<bool> {
        jobs::has_tasks(self, queue).await
    }

    async fn old_jobs(&mut self, keep: &Retention) -> Sql<Vec<(Id, String)>> {
        // The counts of this transaction decide which queues are empty.
        self.flush_lanes().await?;
        jobs::old(&self.conn, keep, self.now).await
    }

    async fn drop_queue(&mut self, name: &str) -> Sql<()> {
        jobs::drop_queue(self, name).await
    }

    fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>) {
        Self::count(self, lane, from, to);
    }

    fn count_pruned(&mut self, lane: i64, state: StateName) {
        Self::count_pruned(self, lane, state);
    }

    async fn stored(&self) -> Sql<[u64; 3]> {
        prune::stored(&self.conn).await
    }

    fn count_run(&mut self, lane: i64, took: Duration) {
        Self::count_run(self, lane, took);
    }

    async fn add_to_outbox(&mut self, entry: NewEntry) -> Sql<()> {
        self.add_entry(entry);
        Ok(())
    }

    async fn session_name(&mut self, id: i64) -> Sql<SessionId> {
        Self::session_name(self, id).await
    }

    fn tally(&mut self, lane: i64) -> &mut LaneTotals {
        Self::tally(self, lane)
    }

    fn ring(&mut self) {
        Self::ring(self);
    }

    fn ring_control(&mut self) {
        self.ring_control();
    }

    fn changed(&mut self) {
        Self::changed(self);
    }

    fn frees(&mut self) {
        Self::frees(self);
    }

    fn has_freed(&mut self) -> bool {
        Self::has_freed(self)
    }
}

impl ClaimTx for Tx {
    async fn leased(&mut self, queue: &str) -> Sql<u64> {
        Self::leased(self, queue).await
    }

    async fn best(
        &self,
        lanes: &ClaimLanes,
        wanted: usize,
        late: &[(ReadyTask, State)],
    ) -> Sql<Vec<ReadyTask>> {
        claim::best(self, lanes, wanted, late).await
    }

    async fn take_ready(&self, tasks: &[ReadyTask], session: i64) -> Sql<()> {
        claim::take(self, tasks, session).await
    }
}
