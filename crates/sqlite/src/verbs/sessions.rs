//! Node sessions and the workers they report.

use std::collections::HashSet;

use ostler_core::{SessionId, TaskId, Worker, WorkerState};
use ostler_sql::{gone_workers, poll_now};
use ostler_store::calls::{Fenced, NewSession, Renewed};
use ostler_store::{Check, LeaseRef, MAX_UNNAMED};
use rusqlite::{Connection, params};

use super::node_commands;
use crate::row::{Uid, ordinal};
use crate::tx::{Sql, Tx};

pub(crate) fn join(tx: &mut Tx<'_>, node: &NewSession) -> Sql<Fenced> {
    let ttl_ms = i64::try_from(node.ttl.as_millis()).unwrap_or(i64::MAX);
    let inserted = tx
        .prepare(
            "INSERT INTO session(uid, name, pid, version, ttl_ms, settings, joined_at, expires_at, host)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(uid) DO NOTHING",
        )?
        .execute(params![
            Uid::of(node.id.0),
            node.name,
            node.pid,
            node.version,
            ttl_ms,
            node.settings,
            tx.now.millis(),
            tx.now.after(node.ttl).millis(),
            node.host
        ])?;
    if inserted == 0 {
        return Ok(Fenced::Lost);
    }
    // The session may have waited for its turn for longer than its TTL: the TTL counts from when it can act.
    tx.beat(node.id);
    Ok(Fenced::Recorded)
}

/// Whether the session is known and has not ended.
pub(crate) fn is_open(conn: &Connection, session: SessionId) -> Sql<bool> {
    conn.prepare_cached("SELECT 1 FROM session WHERE uid = ?1 AND ended_at IS NULL")?
        .exists([Uid::of(session.0)])
}

/// Returns the state of the leases that a session holds, or believes it holds, and its pending node commands.
pub(crate) fn news(conn: &Connection, session: SessionId, held: &[LeaseRef]) -> Sql<Renewed> {
    let mut statement = conn.prepare_cached(
        "SELECT t.uid, t.token, t.id, t.cancel_at IS NOT NULL FROM task t
         WHERE t.phase IN (3, 4) AND t.session = (SELECT id FROM session WHERE uid = ?1) ORDER BY t.id",
    )?;
    let leases: Vec<(LeaseRef, bool)> = statement
        .query_map([Uid::of(session.0)], |row| {
            let task = TaskId(row.get::<_, Uid>(0)?.id());
            Ok((LeaseRef { task, token: row.get(1)?, row: row.get(2)? }, row.get(3)?))
        })?
        .collect::<Sql<_>>()?;
    let known: HashSet<(TaskId, u64)> = leases.iter().map(|(lease, _)| (lease.task, lease.token)).collect();
    let named: HashSet<(TaskId, u64)> = held.iter().map(|lease| (lease.task, lease.token)).collect();
    let lost = held
        .iter()
        .filter(|lease| !known.contains(&(lease.task, lease.token)))
        .map(|lease| lease.task)
        .collect();
    let cancelled = leases.iter().filter(|(_, marked)| *marked).map(|(lease, _)| lease.task).collect();
    let unnamed = leases.iter().map(|(lease, _)| *lease);
    let unnamed =
        unnamed.filter(|lease| !named.contains(&(lease.task, lease.token))).take(MAX_UNNAMED).collect();
    Ok(Renewed::Held { cancelled, lost, unnamed, commands: node_commands::of(conn, session)? })
}

pub(crate) fn report(
    tx: &mut Tx<'_>,
    session: SessionId,
    workers: &[Worker],
    closed: &[Worker],
) -> Sql<Fenced> {
    let Some(id) = tx.live_session(session, Check::ReportSession)? else { return Ok(Fenced::Lost) };
    // For readers of the tables only: the session's file decides whether it is alive.
    tx.prepare("UPDATE session SET expires_at = ?2 + ttl_ms WHERE id = ?1")?
        .execute(params![id, tx.now.millis()])?;
    tx.prepare("DELETE FROM worker WHERE session = ?1")?.execute([id])?;
    let mut insert = tx.prepare(
        "INSERT INTO worker(session, place, id, pool, pid, state, memory_bytes, started_at, done, failed, task,
            task_started_at, last_seen, name) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    for (place, worker) in workers.iter().enumerate() {
        insert.execute(params![
            id,
            place as i64,
            Uid::of(worker.id.0),
            worker.pool,
            worker.pid,
            ordinal(&WorkerState::ALL, &worker.state),
            worker.memory_bytes,
            worker.started_at.millis(),
            worker.done,
            worker.failed,
            worker.task.map(|(task, _)| Uid::of(task.0)),
            worker.task.map(|(_, since)| since.millis()),
            tx.now.millis(),
            worker.name,
        ])?;
    }
    poll_now(gone_workers::closed(tx, id, closed))?;
    Ok(Fenced::Recorded)
}
