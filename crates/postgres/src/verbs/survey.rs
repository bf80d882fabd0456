//! Survey: queries about the system as a whole: queues, counts, nodes and workers.

use std::collections::HashMap;
use std::time::Duration;

use ostler_core::{Gate, SessionId, TaskId, Timestamp, Worker, WorkerId, WorkerState};
use ostler_store::accounts::{AccountRecord, AccountUse};
use ostler_store::calls::Kinds;
use ostler_store::gates::{KeyRecord, MAX_KEYS_SHOWN};
use ostler_store::queue_records::{FoundQueue, queue_records};
use ostler_store::views::{
    LaneRecord, Liveness, NodeRecord, QueueRecord, QueueSettings, Survey, WorkerRecord,
};
use tokio_postgres::Row;

use super::node_commands;
use crate::conn::{Conn, get, get_u64, get_u64_opt, most};
use crate::counts::counted;
use crate::fault::{Abort, Sql};
use crate::queue::{SETTINGS, settings_from};
use crate::row::{RowRef, Uid};
use crate::tx::{LEASED, NOW};
use ostler_sql::budgets;
use ostler_sql::gate_codec::gate_from;
use ostler_sql::gates::shut_from;

/// The caller's time if given, otherwise the server's.
pub(crate) async fn now(conn: &Conn, given: Option<i64>) -> Sql<Timestamp> {
    Ok(Timestamp::from_millis(get(&conn.one(NOW, &[&given]).await?, 0)?))
}

pub(crate) async fn survey(conn: &Conn, given: Option<i64>) -> Sql<Survey> {
    let now = now(conn, given).await?;
    let (lanes, highs) = lanes(conn).await?;
    let mut queues = queues(conn, &lanes, &highs, now).await?;
    budgets::survey(conn, &mut queues, now).await?;
    Ok(Survey {
        lanes,
        keys: keys(conn, &queues, now).await?,
        queues,
        nodes: nodes(conn, now).await?,
        workers: workers(conn).await?,
    })
}

/// The accounts that have state or are used by a queue.
pub(crate) async fn accounts(conn: &Conn, given: Option<i64>) -> Sql<Vec<AccountRecord>> {
    let now = now(conn, given).await?;
    accounts_at(conn, now).await
}

async fn accounts_at(conn: &Conn, now: Timestamp) -> Sql<Vec<AccountRecord>> {
    let rows = conn
        .rows(
            "SELECT q.account, q.name, (coalesce(sum(l.claimed + l.running), 0) + coalesce((SELECT sum(d.claimed + d.running)
                FROM ostler.lane_delta d JOIN ostler.lane o ON o.id = d.lane WHERE o.queue = q.id), 0))::bigint
             FROM ostler.queue q LEFT JOIN ostler.lane l ON l.queue = q.id WHERE q.account IS NOT NULL GROUP BY q.id",
            &[],
        )
        .await?;
    let read =
        |row: &Row| Ok(AccountUse { account: get(row, 0)?, queue: get(row, 1)?, leased: get_u64(row, 2)? });
    let uses = rows.iter().map(read).collect::<Sql<Vec<AccountUse>>>()?;
    Ok(AccountRecord::all(ostler_sql::accounts::list(conn).await?, uses, now))
}

/// The lanes, and the high-water mark of each queue.
async fn lanes(conn: &Conn) -> Sql<(Vec<LaneRecord>, HashMap<String, u64>)> {
    let mut highs = HashMap::new();
    let mut counts = counted(conn, None).await?;
    let rows = conn
        .rows(
            "SELECT q.name, l.kind, l.id FROM ostler.lane l JOIN ostler.queue q ON q.id = l.queue ORDER BY q.name, l.kind",
            &[],
        )
        .await?;
    let read = |row: &Row| {
        let counted = counts.remove(&get(row, 2)?).unwrap_or_default();
        let queue: String = get(row, 0)?;
        highs.insert(queue.clone(), counted.high_water);
        Ok(LaneRecord {
            queue,
            kind: get(row, 1)?,
            counts: counted.counts,
            tally: counted.tally,
            recent_ms: counted.recent_ms,
        })
    };
    let lanes = rows.iter().map(read).collect::<Sql<_>>()?;
    Ok((lanes, highs))
}

async fn queues(
    conn: &Conn,
    lanes: &[LaneRecord],
    highs: &HashMap<String, u64>,
    now: Timestamp,
) -> Sql<Vec<QueueRecord>> {
    let accounts = accounts_at(conn, now).await?;
    let sql = format!("SELECT q.name, q.gate, {SETTINGS} FROM ostler.queue q ORDER BY q.name");
    let read = |row: &Row| {
        let name: String = get(row, 0)?;
        let high_water = highs.get(&name).copied().unwrap_or(0);
        Ok(FoundQueue { name, high_water, settings: settings_from(row, 2)?, gate: gate_from(get(row, 1)?) })
    };
    let found = conn.rows(&sql, &[]).await?.iter().map(read).collect::<Sql<_>>()?;
    Ok(queue_records(found, lanes, &accounts, now))
}

pub(crate) async fn settings(conn: &Conn, name: &str) -> Sql<QueueSettings> {
    let row = conn.row(&format!("SELECT {SETTINGS} FROM ostler.queue q WHERE q.name = $1"), &[&name]).await?;
    row.map_or_else(|| Ok(QueueSettings::default()), |row| settings_from(&row, 0))
}

/// The queue and kinds to count.
pub(crate) struct Backlog<'a> {
    pub(crate) queue: &'a str,
    pub(crate) kinds: &'a Kinds,
    pub(crate) limit: usize,
    pub(crate) now: Option<i64>,
}

/// A queue with its limits.
struct LimitedQueue {
    id: i64,
    gate: Gate,
    settings: QueueSettings,
}

async fn limited(conn: &Conn, name: &str) -> Sql<Option<LimitedQueue>> {
    let sql = format!("SELECT q.id, q.gate, {SETTINGS} FROM ostler.queue q WHERE q.name = $1");
    let Some(row) = conn.row(&sql, &[&name]).await? else { return Ok(None) };
    let (id, gate, settings) = (get(&row, 0)?, gate_from(get(&row, 1)?), settings_from(&row, 2)?);
    Ok(Some(LimitedQueue { id, gate, settings }))
}

/// The leased tasks of a queue, and of the queues that its pool serves besides.
async fn leased(conn: &Conn, queue: &str) -> Sql<u64> {
    let rows = conn.rows(LEASED, &[&queue]).await?;
    rows.iter().map(|row| get_u64(row, 1)).sum()
}

/// Counts the tasks that a claim could take now, up to the limit.
pub(crate) async fn backlog(conn: &Conn, asked: &Backlog<'_>) -> Sql<usize> {
    let Some(LimitedQueue { id: queue, gate, settings }) = limited(conn, asked.queue).await? else {
        return Ok(0);
    };
    if settings.paused.is_some() {
        return Ok(0);
    }
    let now = Timestamp::from_millis(get(&conn.one(NOW, &[&asked.now]).await?, 0)?);
    let pool = match settings.serving_queue(asked.queue) {
        Some(name) => limited(conn, name).await?.map(|pool| (name, pool)),
        None => None,
    };
    if settings.is_charged() {
        let pool = pool.as_ref().map(|(_, pool)| pool.settings.clone()).unwrap_or_default();
        if budgets::is_shut(conn, asked.queue, &settings, &pool, now).await? {
            return Ok(0);
        }
    }
    let mut most_of_all = asked.limit;
    let pool = pool.as_ref().map(|(name, pool)| (*name, &pool.settings, &pool.gate));
    for (name, settings, gate) in [(asked.queue, &settings, &gate)].into_iter().chain(pool) {
        let leased = match settings.concurrency {
            Some(_) => leased(conn, name).await?,
            None => 0,
        };
        most_of_all = settings.places_for(most_of_all, gate, leased, now);
    }
    if let Some(name) = &settings.account {
        let account = accounts_at(conn, now).await?.into_iter().find(|account| account.name == *name);
        most_of_all = account.map_or(most_of_all, |account| account.places_for(most_of_all, now));
    }
    let mut lanes: Vec<i64> = Vec::new();
    for row in &conn.rows("SELECT id, kind FROM ostler.lane WHERE queue = $1", &[&queue]).await? {
        if asked.kinds.has(&get::<String>(row, 1)?) {
            lanes.push(get(row, 0)?);
        }
    }
    // Each lane is scanned in its part of the index of ready tasks, and for at most that many rows.
    let sql = "SELECT count(*) FROM unnest($1::bigint[]) AS n(lane) CROSS JOIN LATERAL (
            SELECT 1 FROM ostler.task t WHERE t.lane = n.lane AND t.phase = 0 LIMIT $2) found";
    let found: i64 = get(&conn.one(sql, &[&lanes, &most(most_of_all)]).await?, 0)?;
    Ok(usize::try_from(found).unwrap_or(0).min(most_of_all))
}

/// The closed limit keys, up to the display limit.
async fn keys(conn: &Conn, queues: &[QueueRecord], now: Timestamp) -> Sql<Vec<KeyRecord>> {
    let rows = conn
        .rows(
            "SELECT q.name, l.key, l.gate, l.shut_why, l.shut_until FROM ostler.limits l JOIN ostler.queue q ON q.id = l.queue
             WHERE l.shut_until IS NOT NULL ORDER BY q.name, l.shut_until, l.key LIMIT $1",
            &[&most(MAX_KEYS_SHOWN)],
        )
        .await?;
    let mut records = Vec::new();
    for row in &rows {
        let Some(shut) = shut_from(&RowRef(row), 3)? else { continue };
        let (name, gate): (String, _) = (get(row, 0)?, gate_from(get(row, 2)?));
        let policy = queues.iter().find(|queue| queue.name == name);
        let has_breaker = policy.is_some_and(|queue| queue.settings.key_rules().breaker.is_some())
            || gate.breaker.is_some();
        records.push(KeyRecord {
            queue: name,
            key: get(row, 1)?,
            shut,
            held_until: gate.held_until.filter(|until| *until > now),
            breaker: has_breaker.then(|| gate.breaker_state()),
        });
    }
    Ok(records)
}

async fn nodes(conn: &Conn, now: Timestamp) -> Sql<Vec<NodeRecord>> {
    let rows = conn
        .rows(
            "SELECT uid, name, pid, version, ttl_ms, settings, joined_at, expires_at, id, host FROM ostler.session
             WHERE ended_at IS NULL ORDER BY id",
            &[],
        )
        .await?;
    let mut nodes = Vec::with_capacity(rows.len());
    for row in &rows {
        nodes.push(NodeRecord {
            session: SessionId(get::<Uid>(row, 0)?.id()),
            name: get(row, 1)?,
            host: get(row, 9)?,
            pid: pid(get(row, 2)?)?,
            version: get(row, 3)?,
            ttl: Duration::from_millis(get_u64(row, 4)?),
            settings: get(row, 5)?,
            joined_at: Timestamp::from_millis(get(row, 6)?),
            liveness: if get::<i64>(row, 7)? >= now.millis() { Liveness::Alive } else { Liveness::Overdue },
            replies: node_commands::answers(conn, get(row, 8)?).await?,
        });
    }
    Ok(nodes)
}

fn pid(number: i64) -> Sql<u32> {
    u32::try_from(number).map_err(|error| Abort::Foreign(error.to_string()))
}

async fn workers(conn: &Conn) -> Sql<Vec<WorkerRecord>> {
    let rows = conn
        .rows(
            "SELECT s.uid, w.id, w.pool, w.pid, w.state, w.memory_bytes, w.started_at, w.done, w.failed, w.task,
                w.task_started_at, w.last_seen, coalesce(r.tasks, 0), w.name
             FROM ostler.worker w JOIN ostler.session s ON s.id = w.session
             LEFT JOIN (SELECT a.worker, count(*) AS tasks
                 FROM ostler.task t JOIN ostler.attempt a ON a.task = t.id AND a.number = t.runs
                 WHERE t.phase IN (3, 4) AND a.finished_at IS NULL GROUP BY a.worker) r ON r.worker = w.id
             ORDER BY w.session, w.place",
            &[],
        )
        .await?;
    rows.iter().map(worker).collect()
}

fn worker(row: &Row) -> Sql<WorkerRecord> {
    let state = usize::try_from(get::<i16>(row, 4)?).ok().and_then(|at| WorkerState::ALL.get(at).copied());
    let task: Option<Uid> = get(row, 9)?;
    let since: Option<i64> = get(row, 10)?;
    let worker = Worker {
        id: WorkerId(get::<Uid>(row, 1)?.id()),
        name: get(row, 13)?,
        pool: get(row, 2)?,
        pid: get::<Option<i64>>(row, 3)?.map(pid).transpose()?,
        state: state.unwrap_or(WorkerState::Killed),
        memory_bytes: get_u64_opt(row, 5)?,
        started_at: Timestamp::from_millis(get(row, 6)?),
        done: get_u64(row, 7)?,
        failed: get_u64(row, 8)?,
        task: task.map(|task| (TaskId(task.id()), Timestamp::from_millis(since.unwrap_or(0)))),
    };
    let last_seen = Timestamp::from_millis(get(row, 11)?);
    let (session, tasks) = (SessionId(get::<Uid>(row, 0)?.id()), get_u64(row, 12)?);
    Ok(WorkerRecord { session, worker, tasks, last_seen })
}
