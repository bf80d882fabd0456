//! Survey: counts, queues, nodes and workers; and the number of claimable tasks.

use std::time::Duration;

use ostler_core::{SessionId, TaskId, Timestamp, Worker, WorkerId, WorkerState};
use ostler_store::accounts::{AccountRecord, AccountUse};
use ostler_store::calls::Kinds;
use ostler_store::gates::{KeyRecord, MAX_KEYS_SHOWN};
use ostler_store::queue_records::{FoundQueue, queue_records};
use ostler_store::views::{LaneRecord, LaneTotals, Liveness, NodeRecord, QueueRecord, Survey, WorkerRecord};
use rusqlite::{Connection, params};

use super::node_commands;
use crate::counts::{counts_from, recent_from};
use crate::row::Uid;
use crate::shared_tx::{ReadView, RowRef};
use crate::tx::{LEASED, SETTINGS, Sql, read_queue};
use ostler_sql::budgets;
use ostler_sql::gate_codec::gate_from;
use ostler_sql::gates::shut_from;
use ostler_sql::poll_now;
use ostler_sql::queue::settings_from;

/// Counts the tasks that a claim could take now, up to `limit`.
pub(crate) fn backlog(
    conn: &Connection,
    queue: &str,
    kinds: &Kinds,
    limit: usize,
    now: Timestamp,
) -> Sql<usize> {
    let Some(queue) = read_queue(conn, queue)? else { return Ok(0) };
    if queue.settings.paused.is_some() {
        return Ok(0);
    }
    let pool = queue.settings.serving_queue(&queue.name);
    let pool = pool.map(|pool| read_queue(conn, pool)).transpose()?.flatten();
    if queue.settings.is_charged() {
        let pool = pool.as_ref().map(|pool| pool.settings.clone()).unwrap_or_default();
        if poll_now(budgets::is_shut(&ReadView(conn), &queue.name, &queue.settings, &pool, now))? {
            return Ok(0);
        }
    }
    let mut most = limit;
    for limited in [Some(&queue), pool.as_ref()].into_iter().flatten() {
        let leased = match limited.settings.concurrency {
            Some(_) => leased(conn, &limited.name)?,
            None => 0,
        };
        most = limited.settings.places_for(most, &limited.gate, leased, now);
    }
    if let Some(name) = &queue.settings.account {
        let account = accounts(conn, now)?.into_iter().find(|account| account.name == *name);
        most = account.map_or(most, |account| account.places_for(most, now));
    }
    let mut statement = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM task INDEXED BY ready WHERE lane = ?1 AND phase = 0 LIMIT ?2)",
    )?;
    let mut found = 0;
    for (lane, _) in queue.lanes.iter().filter(|(_, kind)| kinds.has(kind)) {
        let left = i64::try_from(most - found).unwrap_or(i64::MAX);
        found += statement.query_row(params![lane, left], |row| row.get::<_, usize>(0))?;
    }
    Ok(found)
}

/// The leased tasks of a queue, and of the queues that its pool serves besides.
fn leased(conn: &Connection, queue: &str) -> Sql<u64> {
    let mut statement = conn.prepare_cached(LEASED)?;
    let lanes = statement.query_map([queue], |row| row.get::<_, u64>(1))?;
    lanes.sum()
}

/// The accounts that have state or are used by a queue.
pub(crate) fn accounts(conn: &Connection, now: Timestamp) -> Sql<Vec<AccountRecord>> {
    let mut statement = conn.prepare_cached(
        "SELECT q.account, q.name, coalesce((SELECT sum(claimed + running) FROM lane l WHERE l.queue = q.id), 0)
         FROM queue q INDEXED BY account_queue WHERE q.account IS NOT NULL",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(AccountUse { account: row.get(0)?, queue: row.get(1)?, leased: row.get(2)? })
    };
    let uses = statement.query_map([], read)?.collect::<Sql<Vec<AccountUse>>>()?;
    Ok(AccountRecord::all(poll_now(ostler_sql::accounts::list(&ReadView(conn)))?, uses, now))
}

pub(crate) fn survey(conn: &Connection, now: Timestamp, is_alive: impl Fn(SessionId) -> bool) -> Sql<Survey> {
    let lanes = lanes(conn)?;
    let mut queues = queues(conn, &lanes, now)?;
    poll_now(budgets::survey(&ReadView(conn), &mut queues, now))?;
    Ok(Survey {
        lanes,
        keys: keys(conn, &queues, now)?,
        queues,
        nodes: nodes(conn, is_alive)?,
        workers: workers(conn)?,
    })
}

fn lanes(conn: &Connection) -> Sql<Vec<LaneRecord>> {
    let mut statement = conn.prepare_cached(
        "SELECT q.name, l.kind, l.queued, l.claimed, l.running, l.completed, l.failed, l.cancelled,
            l.attempts, l.retried, l.replayed_failed, l.replayed_cancelled, l.recent
         FROM lane l JOIN queue q ON q.id = l.queue ORDER BY q.name, l.kind",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(LaneRecord {
            queue: row.get(0)?,
            kind: row.get(1)?,
            counts: counts_from(row, 2)?,
            tally: LaneTotals {
                attempts: row.get(8)?,
                retried: row.get(9)?,
                replayed_failed: row.get(10)?,
                replayed_cancelled: row.get(11)?,
            },
            recent_ms: recent_from(&row.get::<_, Vec<u8>>(12)?),
        })
    };
    statement.query_map([], read)?.collect()
}

fn queues(conn: &Connection, lanes: &[LaneRecord], now: Timestamp) -> Sql<Vec<QueueRecord>> {
    let accounts = accounts(conn, now)?;
    let mut statement = conn.prepare_cached(&format!(
        "SELECT name, gate, (SELECT coalesce(max(high_water), 0) FROM lane WHERE queue = queue.id), {SETTINGS}
         FROM queue ORDER BY name"
    ))?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(FoundQueue {
            name: row.get(0)?,
            high_water: row.get(2)?,
            settings: settings_from(&RowRef(row), 3)?,
            gate: gate_from(row.get(1)?),
        })
    };
    let found = statement.query_map([], read)?.collect::<Sql<_>>()?;
    Ok(queue_records(found, lanes, &accounts, now))
}

/// The closed limit keys, up to the display limit.
fn keys(conn: &Connection, queues: &[QueueRecord], now: Timestamp) -> Sql<Vec<KeyRecord>> {
    let mut statement = conn.prepare_cached(
        "SELECT key, gate, shut_why, shut_until FROM limits INDEXED BY shut
         WHERE queue = (SELECT id FROM queue WHERE name = ?1) AND shut_until IS NOT NULL ORDER BY shut_until, key LIMIT ?2",
    )?;
    let mut records = Vec::new();
    for queue in queues {
        let policy = queue.settings.key_rules().breaker;
        let left = MAX_KEYS_SHOWN - records.len();
        let mut rows = statement.query(params![queue.name, left as i64])?;
        while let Some(row) = rows.next()? {
            let Some(shut) = shut_from(&RowRef(row), 2)? else { continue };
            let gate = gate_from(row.get(1)?);
            let has_breaker = policy.is_some() || gate.breaker.is_some();
            records.push(KeyRecord {
                queue: queue.name.clone(),
                key: row.get(0)?,
                shut,
                held_until: gate.held_until.filter(|until| *until > now),
                breaker: has_breaker.then(|| gate.breaker_state()),
            });
        }
    }
    Ok(records)
}

fn nodes(conn: &Connection, is_alive: impl Fn(SessionId) -> bool) -> Sql<Vec<NodeRecord>> {
    let mut statement = conn.prepare_cached(
        "SELECT uid, name, pid, version, ttl_ms, settings, joined_at, id, host FROM session WHERE ended_at IS NULL ORDER BY id",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let session = SessionId(row.get::<_, Uid>(0)?.id());
        let ttl = Duration::from_millis(u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0));
        Ok(NodeRecord {
            session,
            name: row.get(1)?,
            host: row.get(8)?,
            pid: row.get(2)?,
            version: row.get(3)?,
            ttl,
            settings: row.get(5)?,
            joined_at: Timestamp::from_millis(row.get(6)?),
            liveness: if is_alive(session) { Liveness::Alive } else { Liveness::Overdue },
            replies: node_commands::answers(conn, row.get(7)?)?,
        })
    };
    statement.query_map([], read)?.collect()
}

fn workers(conn: &Connection) -> Sql<Vec<WorkerRecord>> {
    let mut statement = conn.prepare_cached(
        "SELECT s.uid, w.id, w.pool, w.pid, w.state, w.memory_bytes, w.started_at, w.done, w.failed, w.task,
            w.task_started_at, w.last_seen, coalesce(r.tasks, 0), w.name
         FROM worker w JOIN session s ON s.id = w.session
         LEFT JOIN (SELECT a.worker, count(*) AS tasks FROM task t JOIN attempt a ON a.task = t.id AND a.number = t.runs
             WHERE t.phase IN (3, 4) AND a.finished_at IS NULL GROUP BY a.worker) r ON r.worker = w.id
         ORDER BY w.session, w.place",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let state =
            usize::try_from(row.get::<_, i64>(4)?).ok().and_then(|at| WorkerState::ALL.get(at).copied());
        let task: Option<Uid> = row.get(9)?;
        let since: Option<i64> = row.get(10)?;
        let worker = Worker {
            id: WorkerId(row.get::<_, Uid>(1)?.id()),
            name: row.get(13)?,
            pool: row.get(2)?,
            pid: row.get(3)?,
            state: state.unwrap_or(WorkerState::Killed),
            memory_bytes: row.get(5)?,
            started_at: Timestamp::from_millis(row.get(6)?),
            done: row.get(7)?,
            failed: row.get(8)?,
            task: task.map(|task| (TaskId(task.id()), Timestamp::from_millis(since.unwrap_or(0)))),
        };
        let last_seen = Timestamp::from_millis(row.get(11)?);
        let (session, tasks) = (SessionId(row.get::<_, Uid>(0)?.id()), row.get(12)?);
        Ok(WorkerRecord { session, worker, tasks, last_seen })
    };
    statement.query_map([], read)?.collect()
}
