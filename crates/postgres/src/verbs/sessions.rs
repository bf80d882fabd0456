//! Node sessions and the workers they report. A session lives until `expires_at`; every renewal extends that.

use std::collections::HashSet;

use ostler_core::{SessionId, TaskId, Worker, WorkerState};
use ostler_sql::gone_workers;
use ostler_store::calls::{Fenced, NewSession, Renewed};
use ostler_store::{Check, Checks, LeaseRef, MAX_UNNAMED};

use super::finish::queues_of;
use super::node_commands;
use crate::backend::Backend;
use crate::conn::{Conn, big, get, get_u64};
use crate::fault::Sql;
use crate::liveness::Renewal;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{Uid, ordinal};
use crate::tx::Tx;

pub(crate) async fn join(tx: &Tx, node: &NewSession) -> Sql<Fenced> {
    let ttl_ms = i64::try_from(node.ttl.as_millis()).unwrap_or(i64::MAX);
    let inserted = tx
        .conn
        .exec(
            "INSERT INTO ostler.session(uid, name, pid, version, ttl_ms, settings, joined_at, expires_at, host)
             VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT(uid) DO NOTHING",
            &[
                &Uid::of(node.id.0),
                &node.name,
                &i64::from(node.pid),
                &node.version,
                &ttl_ms,
                &node.settings,
                &tx.now.millis(),
                &tx.now.after(node.ttl).millis(),
                &node.host,
            ],
        )
        .await?;
    Ok(if inserted == 0 { Fenced::Lost } else { Fenced::Recorded })
}

/// Renews a session, and returns the state of the leases that it holds, or believes it holds, and its pending node
/// commands. The renewal is a statement of its own: it waits only for a transaction that ends the session. It records its
/// connection if the end of that counts as the node's death.
pub(crate) async fn renew(
    conn: &Conn,
    checks: Checks,
    renewal: &Renewal,
    heartbeat: Option<Backend>,
) -> Sql<Renewed> {
    let whatever = checks.pass(Check::RenewSession, false);
    let row = conn
        .row(
            "WITH clock AS (SELECT coalesce($2::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now)
             UPDATE ostler.session s SET expires_at = clock.now + s.ttl_ms, renewals = s.renewals + 1,
                heart_pid = $4, heart_since = $5, heart_server = $6
             FROM clock
             WHERE s.uid = $1 AND ($3 OR (s.ended_at IS NULL AND s.expires_at >= clock.now)) RETURNING s.id",
            &[
                &Uid::of(renewal.session.0),
                &renewal.now,
                &whatever,
                &heartbeat.map(|heartbeat| heartbeat.pid),
                &heartbeat.map(|heartbeat| heartbeat.since),
                &heartbeat.map(|heartbeat| heartbeat.server),
            ],
        )
        .await?;
    let Some(row) = row else { return Ok(Renewed::Ended) };
    let number: i64 = get(&row, 0)?;
    let rows = conn
        .rows(
            "SELECT uid, token, id, cancel_at IS NOT NULL FROM ostler.task WHERE phase IN (3, 4) AND session = $1 ORDER BY id",
            &[&number],
        )
        .await?;
    let mut known: HashSet<(TaskId, u64)> = HashSet::with_capacity(rows.len());
    let named: HashSet<(TaskId, u64)> = renewal.held.iter().map(|lease| (lease.task, lease.token)).collect();
    let (mut cancelled, mut unnamed) = (Vec::new(), Vec::new());
    for row in &rows {
        let (task, token) = (TaskId(get::<Uid>(row, 0)?.id()), get_u64(row, 1)?);
        known.insert((task, token));
        if !named.contains(&(task, token)) && unnamed.len() < MAX_UNNAMED {
            unnamed.push(LeaseRef { task, token, row: get(row, 2)? });
        }
        if get(row, 3)? {
            cancelled.push(task);
        }
    }
    let lost = renewal
        .held
        .iter()
        .filter(|lease| !known.contains(&(lease.task, lease.token)))
        .map(|lease| lease.task)
        .collect();
    Ok(Renewed::Held { cancelled, lost, unnamed, commands: node_commands::of(conn, number).await? })
}

/// The locks needed to end a session: it can do nothing in the meantime, and the queues of its tasks are locked.
pub(crate) async fn leave_locks(conn: &Conn, session: SessionId) -> Sql<Locks> {
    let rows = conn
        .rows(
            "SELECT id FROM ostler.task
             WHERE phase IN (3, 4) AND session = (SELECT id FROM ostler.session WHERE uid = $1)",
            &[&Uid::of(session.0)],
        )
        .await?;
    let slots = rows.iter().map(|row| get(row, 0)).collect::<Sql<Vec<i64>>>()?;
    let queues = if slots.is_empty() { Locks::none() } else { queues_of(conn, &slots).await? };
    Ok(queues.and(LockTarget::Session(session), Mode::Exclusive))
}

/// Records that a session's node is shutting down on purpose. One statement, like a renewal. False: the session has
/// ended.
pub(crate) async fn depart(conn: &Conn, session: SessionId) -> Sql<bool> {
    let noted = conn
        .exec(
            "UPDATE ostler.session SET departed = true WHERE uid = $1 AND ended_at IS NULL",
            &[&Uid::of(session.0)],
        )
        .await?;
    Ok(noted > 0)
}

pub(crate) async fn report(
    tx: &mut Tx,
    session: SessionId,
    workers: &[Worker],
    closed: &[Worker],
) -> Sql<Fenced> {
    let Some(id) = tx.live_session(session, Check::ReportSession).await? else { return Ok(Fenced::Lost) };
    tx.conn.exec("DELETE FROM ostler.worker WHERE session = $1", &[&id]).await?;
    let ids: Vec<Uid> = workers.iter().map(|worker| Uid::of(worker.id.0)).collect();
    let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
    let pools: Vec<&str> = workers.iter().map(|worker| worker.pool.as_str()).collect();
    let pids: Vec<Option<i64>> = workers.iter().map(|worker| worker.pid.map(i64::from)).collect();
    let states: Vec<i16> = workers.iter().map(|worker| ordinal(&WorkerState::ALL, &worker.state)).collect();
    let memory: Vec<Option<i64>> = workers.iter().map(|worker| worker.memory_bytes.map(big)).collect();
    let started: Vec<i64> = workers.iter().map(|worker| worker.started_at.millis()).collect();
    let done: Vec<i64> = workers.iter().map(|worker| big(worker.done)).collect();
    let failed: Vec<i64> = workers.iter().map(|worker| big(worker.failed)).collect();
    let tasks: Vec<Option<Uid>> =
        workers.iter().map(|worker| worker.task.map(|(task, _)| Uid::of(task.0))).collect();
    let since: Vec<Option<i64>> =
        workers.iter().map(|worker| worker.task.map(|(_, since)| since.millis())).collect();
    tx.conn
        .exec(
            "INSERT INTO ostler.worker(session, place, id, pool, pid, state, memory_bytes, started_at, done, failed, task,
                task_started_at, last_seen, name)
             SELECT $1, n.place, n.id, n.pool, n.pid, n.state, n.memory, n.started, n.done, n.failed, n.task, n.since, $2, n.name
             FROM unnest($3::uuid[], $4::text[], $5::bigint[], $6::smallint[], $7::bigint[], $8::bigint[], $9::bigint[],
                $10::bigint[], $11::uuid[], $12::bigint[], $13::text[])
                WITH ORDINALITY AS n(id, pool, pid, state, memory, started, done, failed, task, since, name, place)",
            &[
                &id,
                &tx.now.millis(),
                &ids,
                &pools,
                &pids,
                &states,
                &memory,
                &started,
                &done,
                &failed,
                &tasks,
                &since,
                &names,
            ],
        )
        .await?;
    gone_workers::closed(tx, id, closed).await?;
    Ok(Fenced::Recorded)
}
