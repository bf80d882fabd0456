//! Queries: list, show, events, survey.

use std::ops::ControlFlow;
use std::time::Duration;

use ostler_core::{
    Attempt, AttemptEnd, Ending, SessionId, State, Step, TaskId, Timestamp, Worker, WorkerId, WorkerState,
};
use ostler_store::calls::{EventKind, Kinds};
use ostler_store::gates::{KeyRecord, MAX_KEYS_SHOWN};
use ostler_store::views::{
    Cursor, Event, Filter, LaneRecord, LaneTotals, LeaseFilter, Liveness, NodeRecord, Page, QueueRecord,
    Survey, TaskDetail, TaskRef, WorkerRecord,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::node_commands;
use crate::counts::{counts_from, recent_from};
use crate::row::{FoundTask, Uid, find, for_each};
use crate::shared_tx::{RowRef, text, unreadable};
use crate::tx::{SETTINGS, Sql, read_queue};
use ostler_sql::codec::failure_from;
use ostler_sql::dependents::AFTER;
use ostler_sql::gate_codec::gate_from;
use ostler_sql::gates::shut_from;
use ostler_sql::phase::ran_from;
use ostler_sql::queue::settings_from;

/// Rows that one list call scans, so that a rare match in a million rows does not block a reader.
const MAX_SCAN: usize = 20_000;

pub(crate) fn list(
    conn: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
    is_alive: impl Fn(SessionId) -> bool,
) -> Sql<Page> {
    let below = after.map_or(i64::MAX, |cursor| cursor.0);
    let phases: &str = match filter.state {
        None => "",
        Some(ostler_core::StateName::Queued) => "AND t.phase < 3 ",
        Some(ostler_core::StateName::Claimed) => "AND t.phase = 3 ",
        Some(ostler_core::StateName::Running) => "AND t.phase = 4 ",
        Some(ostler_core::StateName::Completed) => "AND t.phase = 5 ",
        Some(ostler_core::StateName::Failed) => "AND t.phase = 6 ",
        Some(ostler_core::StateName::Cancelled) => "AND t.phase = 7 ",
    };
    let stale = |found: &FoundTask| match (filter.lease, found.task.state) {
        (LeaseFilter::Any, _) => true,
        (LeaseFilter::Stale, State::Claimed { session } | State::Running { session, .. }) => {
            !is_alive(session)
        }
        (
            LeaseFilter::Stale,
            State::Queued { .. } | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. },
        ) => false,
    };
    let mut tasks = Vec::new();
    let mut next = None;
    let mut last = after;
    let mut scanned = 0;
    for_each(conn, &format!("WHERE t.id < ?1 {phases}ORDER BY t.id DESC"), [below], |found| {
        if scanned == MAX_SCAN {
            next = last;
            return ControlFlow::Break(());
        }
        scanned += 1;
        let matches = filter.matches(&found.task) && stale(&found);
        if matches && tasks.len() == limit {
            next = last;
            return ControlFlow::Break(());
        }
        if matches {
            tasks.push(found.task);
        }
        if matches || tasks.len() < limit {
            last = Some(Cursor(found.slot));
        }
        ControlFlow::Continue(())
    })?;
    Ok(Page { tasks, next })
}

pub(crate) fn show(conn: &Connection, which: &TaskRef) -> Sql<Option<TaskDetail>> {
    let found = match which {
        TaskRef::Id(id) => find(conn, "WHERE t.uid = ?1", [Uid::of(id.0)])?,
        TaskRef::Key { queue, key } => find(
            conn,
            "WHERE t.id = (SELECT u.task FROM unique_key u JOIN queue q ON q.id = u.queue WHERE q.name = ?1 AND u.key = ?2)",
            params![queue, key],
        )?,
    };
    let Some(FoundTask { slot, task, .. }) = found else { return Ok(None) };
    let (attempts, steps, after) = (attempts(conn, slot)?, steps(conn, slot)?, after(conn, slot)?);
    Ok(Some(TaskDetail { task, attempts, steps, after }))
}

/// The tasks that a task still waits for, the oldest first.
fn after(conn: &Connection, slot: i64) -> Sql<Vec<TaskId>> {
    let mut statement = conn.prepare_cached(text(AFTER))?;
    statement.query_map([slot], |row| row.get::<_, Uid>(0).map(|uid| TaskId(uid.id())))?.collect()
}

fn attempts(conn: &Connection, slot: i64) -> Sql<Vec<Attempt>> {
    let mut statement = conn.prepare_cached(
        "SELECT number, token, session, worker, started_at, finished_at, ending, failure FROM attempt
         WHERE task = ?1 ORDER BY number",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let ending: Option<String> = row.get(6)?;
        let end = match ending.as_deref().and_then(Ending::named) {
            Some(ending) => Some(AttemptEnd {
                finished_at: Timestamp::from_millis(row.get(5)?),
                ending,
                failure: failure_from(row.get(7)?).map_err(unreadable)?.map(|failed| failed.failure),
            }),
            None => None,
        };
        Ok(Attempt {
            number: row.get(0)?,
            token: row.get(1)?,
            session: SessionId(row.get::<_, Uid>(2)?.id()),
            worker: WorkerId(row.get::<_, Uid>(3)?.id()),
            started_at: Timestamp::from_millis(row.get(4)?),
            end,
        })
    };
    let mut attempts: Vec<Attempt> = statement.query_map([slot], read)?.collect::<Sql<_>>()?;
    attempts.extend(last_attempt(conn, slot)?);
    Ok(attempts)
}

/// Reads the attempt that is stored in the task's own row.
fn last_attempt(conn: &Connection, slot: i64) -> Sql<Option<Attempt>> {
    let read = |row: &rusqlite::Row<'_>| {
        let (worker, session) = ran_from(&row.get::<_, [u8; 32]>(0)?).map_err(unreadable)?;
        let time = |column| row.get(column).map(Timestamp::from_millis);
        let end = AttemptEnd { finished_at: time(4)?, ending: Ending::Success, failure: None };
        let (number, token) = (row.get(1)?, row.get(2)?);
        Ok(Attempt { number, token, session, worker, started_at: time(3)?, end: Some(end) })
    };
    conn.prepare_cached(
        "SELECT ran, runs, token, started_at, finished_at FROM task WHERE id = ?1 AND ran IS NOT NULL",
    )?
    .query_row([slot], read)
    .optional()
}

fn steps(conn: &Connection, slot: i64) -> Sql<Vec<Step>> {
    let mut statement = conn.prepare_cached(
        "SELECT name, value, saved_at, token FROM step WHERE task = ?1 ORDER BY place, name",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Step {
            name: row.get(0)?,
            value: row.get(1)?,
            saved_at: Timestamp::from_millis(row.get(2)?),
            token: row.get(3)?,
        })
    };
    statement.query_map([slot], read)?.collect()
}

/// Returns events of one kind, or of all. Other kinds are skipped without being read.
pub(crate) fn events(
    conn: &Connection,
    task: TaskId,
    kind: Option<EventKind>,
    after: u64,
    limit: usize,
) -> Sql<Vec<Event>> {
    let mut statement = conn.prepare_cached(
        "SELECT e.number, e.at, e.token, e.kind, e.data FROM event e
         WHERE e.task = (SELECT id FROM task WHERE uid = ?1) AND e.number > ?2 AND (?4 IS NULL OR e.kind = ?4)
         ORDER BY e.number LIMIT ?3",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let kind = usize::try_from(row.get::<_, i64>(3)?).ok().and_then(|at| EventKind::ALL.get(at).copied());
        Ok(Event {
            number: row.get(0)?,
            at: Timestamp::from_millis(row.get(1)?),
            token: row.get(2)?,
            kind: kind.unwrap_or(EventKind::Log),
            data: row.get(4)?,
        })
    };
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let kind = kind.map(EventKind::code);
    statement.query_map(params![Uid::of(task.0), after, limit, kind], read)?.collect()
}

/// Counts the tasks that a claim could take now, up to `limit`.
pub(crate) fn backlog(
    conn: &Connection,
    queue: &str,
    kinds: &Kinds,
    limit: usize,
    now: Timestamp,
) -> Sql<usize> {
    let Some(queue) = read_queue(conn, queue)? else { return Ok(0) };
    let leased = match queue.settings.concurrency {
        Some(_) => conn
            .prepare_cached("SELECT coalesce(sum(claimed + running), 0) FROM lane WHERE queue = ?1")?
            .query_row([queue.id], |row| row.get(0))?,
        None => 0,
    };
    let most = queue.settings.places_for(limit, &queue.gate, leased, now);
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

pub(crate) fn survey(conn: &Connection, now: Timestamp, is_alive: impl Fn(SessionId) -> bool) -> Sql<Survey> {
    let lanes = lanes(conn)?;
    let queues = queues(conn, &lanes, now)?;
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
    let mut statement = conn.prepare_cached(&format!(
        "SELECT name, gate, (SELECT coalesce(max(high_water), 0) FROM lane WHERE queue = queue.id), {SETTINGS}
         FROM queue ORDER BY name"
    ))?;
    let read = |row: &rusqlite::Row<'_>| {
        let settings = settings_from(&RowRef(row), 3)?;
        let gate = gate_from(row.get(1)?);
        let has_breaker = settings.queue_rules().breaker.is_some() || gate.breaker.is_some();
        let name: String = row.get(0)?;
        let leased = |lane: &LaneRecord| lane.counts.claimed + lane.counts.running;
        let leased = lanes.iter().filter(|lane| lane.queue == name).map(leased).sum();
        Ok(QueueRecord {
            name,
            high_water: row.get(2)?,
            shut: settings.shut(&gate, leased, now),
            settings,
            held_until: gate.held_until.filter(|until| *until > now),
            breaker: has_breaker.then(|| gate.breaker_state()),
        })
    };
    statement.query_map([], read)?.collect()
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
        "SELECT uid, name, pid, version, ttl_ms, settings, joined_at, id FROM session WHERE ended_at IS NULL ORDER BY id",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let session = SessionId(row.get::<_, Uid>(0)?.id());
        let ttl = Duration::from_millis(u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0));
        Ok(NodeRecord {
            session,
            name: row.get(1)?,
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
            w.task_started_at, w.last_seen
         FROM worker w JOIN session s ON s.id = w.session ORDER BY w.session, w.place",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let state =
            usize::try_from(row.get::<_, i64>(4)?).ok().and_then(|at| WorkerState::ALL.get(at).copied());
        let task: Option<Uid> = row.get(9)?;
        let since: Option<i64> = row.get(10)?;
        let worker = Worker {
            id: WorkerId(row.get::<_, Uid>(1)?.id()),
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
        Ok(WorkerRecord { session: SessionId(row.get::<_, Uid>(0)?.id()), worker, last_seen })
    };
    statement.query_map([], read)?.collect()
}
