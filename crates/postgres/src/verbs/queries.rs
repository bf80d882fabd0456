//! Queries: list, show, events.

use std::collections::HashSet;

use ostler_core::{Attempt, AttemptEnd, Ending, SessionId, State, Step, TaskId, Timestamp, WorkerId};
use ostler_store::calls::EventKind;
use ostler_store::views::{Cursor, Event, Filter, LeaseFilter, Page, TaskDetail, TaskRef};
use tokio_postgres::Row;

use crate::conn::{Conn, big, get, get_u32, get_u64, most};
use crate::fault::Sql;
use crate::row::{FoundTask, Uid, find, find_text, found_from, ran_from};
use ostler_sql::codec::failure_from;
use ostler_sql::dependents::AFTER;

/// Rows that one list call scans, so that a rare match in a million rows does not occupy a connection.
const MAX_SCAN: usize = 20_000;
/// Rows read per statement.
const CHUNK: usize = 500;

pub(crate) struct List<'a> {
    pub(crate) filter: &'a Filter,
    pub(crate) after: Option<Cursor>,
    pub(crate) limit: usize,
    pub(crate) now: Option<i64>,
}

pub(crate) async fn list(conn: &Conn, asked: &List<'_>) -> Sql<Page> {
    let List { filter, after, limit, now } = *asked;
    let phases: &str = match filter.state {
        None => "",
        Some(ostler_core::StateName::Queued) => "AND t.phase < 3 ",
        Some(ostler_core::StateName::Claimed) => "AND t.phase = 3 ",
        Some(ostler_core::StateName::Running) => "AND t.phase = 4 ",
        Some(ostler_core::StateName::Completed) => "AND t.phase = 5 ",
        Some(ostler_core::StateName::Failed) => "AND t.phase = 6 ",
        Some(ostler_core::StateName::Cancelled) => "AND t.phase = 7 ",
    };
    let alive = match filter.lease {
        LeaseFilter::Any => HashSet::new(),
        LeaseFilter::Stale => alive(conn, now).await?,
    };
    let sql = find_text(&format!("WHERE t.id < $1 {phases}ORDER BY t.id DESC LIMIT $2"));
    let mut tasks = Vec::new();
    let mut last = after;
    let mut below = after.map_or(i64::MAX, |cursor| cursor.0);
    let mut scanned = 0;
    let chunk = CHUNK.min(limit + 1);
    loop {
        let rows = conn.rows(&sql, &[&below, &most(chunk)]).await?;
        let full = rows.len() == chunk;
        for row in &rows {
            if scanned == MAX_SCAN {
                return Ok(Page { tasks, next: last });
            }
            scanned += 1;
            let found = found_from(row)?;
            below = found.slot;
            let matches = filter.matches(&found.task) && is_wanted(filter.lease, &found, &alive);
            if matches && tasks.len() == limit {
                return Ok(Page { tasks, next: last });
            }
            if matches {
                tasks.push(found.task);
            }
            if matches || tasks.len() < limit {
                last = Some(Cursor(found.slot));
            }
        }
        if !full {
            return Ok(Page { tasks, next: None });
        }
    }
}

fn is_wanted(lease: LeaseFilter, found: &FoundTask, alive: &HashSet<SessionId>) -> bool {
    match (lease, found.task.state) {
        (LeaseFilter::Any, _) => true,
        (LeaseFilter::Stale, State::Claimed { session } | State::Running { session, .. }) => {
            !alive.contains(&session)
        }
        (
            LeaseFilter::Stale,
            State::Queued { .. } | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. },
        ) => false,
    }
}

/// The sessions that have renewed in time.
async fn alive(conn: &Conn, now: Option<i64>) -> Sql<HashSet<SessionId>> {
    let rows = conn
        .rows(
            "SELECT uid FROM ostler.session WHERE ended_at IS NULL
                AND expires_at >= coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)",
            &[&now],
        )
        .await?;
    rows.iter().map(|row| Ok(SessionId(get::<Uid>(row, 0)?.id()))).collect()
}

pub(crate) async fn show(conn: &Conn, which: &TaskRef) -> Sql<Option<TaskDetail>> {
    let found = match which {
        TaskRef::Id(id) => find(conn, "WHERE t.uid = $1", &[&Uid::of(id.0)]).await?,
        TaskRef::Key { queue, key } => {
            let condition =
                "WHERE t.id = (SELECT k.task FROM ostler.unique_key k JOIN ostler.queue p ON p.id = k.queue
                WHERE p.name = $1 AND k.key = $2)";
            find(conn, condition, &[queue, key]).await?
        }
    };
    let Some(FoundTask { slot, task, .. }) = found else { return Ok(None) };
    let attempts = attempts(conn, slot).await?;
    let steps = steps(conn, slot).await?;
    let rows = conn.rows(AFTER, &[&slot]).await?;
    let after = rows.iter().map(|row| Ok(TaskId(get::<Uid>(row, 0)?.id()))).collect::<Sql<_>>()?;
    Ok(Some(TaskDetail { task, attempts, steps, after }))
}

async fn attempts(conn: &Conn, slot: i64) -> Sql<Vec<Attempt>> {
    let rows = conn
        .rows(
            "SELECT number, token, session, worker, started_at, finished_at, ending, failure FROM ostler.attempt
             WHERE task = $1 ORDER BY number",
            &[&slot],
        )
        .await?;
    let mut attempts = rows.iter().map(attempt).collect::<Sql<Vec<_>>>()?;
    attempts.extend(last_attempt(conn, slot).await?);
    Ok(attempts)
}

fn attempt(row: &Row) -> Sql<Attempt> {
    let ending: Option<String> = get(row, 6)?;
    let end = match ending.as_deref().and_then(Ending::named) {
        Some(ending) => Some(AttemptEnd {
            finished_at: Timestamp::from_millis(get(row, 5)?),
            ending,
            failure: failure_from(get(row, 7)?)?.map(|failed| failed.failure),
        }),
        None => None,
    };
    Ok(Attempt {
        number: get_u32(row, 0)?,
        token: get_u64(row, 1)?,
        session: SessionId(get::<Uid>(row, 2)?.id()),
        worker: WorkerId(get::<Uid>(row, 3)?.id()),
        started_at: Timestamp::from_millis(get(row, 4)?),
        end,
    })
}

/// Reads the attempt that is stored in the task's own row.
async fn last_attempt(conn: &Conn, slot: i64) -> Sql<Option<Attempt>> {
    let row = conn
        .row(
            "SELECT ran, runs, token, started_at, finished_at FROM ostler.task WHERE id = $1 AND ran IS NOT NULL",
            &[&slot],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (worker, session) = ran_from(&get::<Vec<u8>>(&row, 0)?)?;
    let time = |column| get(&row, column).map(Timestamp::from_millis);
    let end = AttemptEnd { finished_at: time(4)?, ending: Ending::Success, failure: None };
    let (number, token) = (get_u32(&row, 1)?, get_u64(&row, 2)?);
    Ok(Some(Attempt { number, token, session, worker, started_at: time(3)?, end: Some(end) }))
}

async fn steps(conn: &Conn, slot: i64) -> Sql<Vec<Step>> {
    let rows = conn
        .rows(
            "SELECT name, value, saved_at, token FROM ostler.step WHERE task = $1 ORDER BY place, name",
            &[&slot],
        )
        .await?;
    let read = |row: &Row| {
        Ok(Step {
            name: get(row, 0)?,
            value: get(row, 1)?,
            saved_at: Timestamp::from_millis(get(row, 2)?),
            token: get_u64(row, 3)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Selects the events of a task: those of one kind, or all.
pub(crate) struct Events {
    pub(crate) task: TaskId,
    pub(crate) kind: Option<EventKind>,
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// Events of other kinds are skipped without being read.
pub(crate) async fn events(conn: &Conn, asked: &Events) -> Sql<Vec<Event>> {
    let rows = conn
        .rows(
            "SELECT e.number, e.at, e.token, e.kind, e.data FROM ostler.event e
             WHERE e.task = (SELECT id FROM ostler.task WHERE uid = $1) AND e.number > $2
                AND ($4::smallint IS NULL OR e.kind = $4)
             ORDER BY e.number LIMIT $3",
            &[
                &Uid::of(asked.task.0),
                &big(asked.after),
                &most(asked.limit),
                &asked.kind.map(|kind| i16::from(kind.code())),
            ],
        )
        .await?;
    let read = |row: &Row| {
        let kind = usize::try_from(get::<i16>(row, 3)?).ok().and_then(|at| EventKind::ALL.get(at).copied());
        Ok(Event {
            number: get_u64(row, 0)?,
            at: Timestamp::from_millis(get(row, 1)?),
            token: get_u64(row, 2)?,
            kind: kind.unwrap_or(EventKind::Log),
            data: get(row, 4)?,
        })
    };
    rows.iter().map(read).collect()
}
