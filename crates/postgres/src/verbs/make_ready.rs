//! Make ready: what is due next, and the locks that it needs.

use std::time::Duration;

use ostler_core::Timestamp;
use ostler_sql::dependents::NEXT_FREED;
use ostler_sql::gates;
use ostler_sql::make_ready::{NEXT_DUE, NEXT_LATE, next_of};

use crate::conn::{Conn, get, most};
use crate::fault::Sql;
use crate::inbox::any_waits;
use crate::locks::{LockTarget, Locks, Mode};
use crate::tx::NOW;

/// How long to wait before inbox rows of a full queue are tried again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// When there is something to do next. In the past: now.
pub(crate) async fn next(conn: &Conn, now: Timestamp) -> Sql<Option<Timestamp>> {
    let first = async |sql: &str| get::<Option<i64>>(&conn.one(sql, &[]).await?, 0);
    let (due, late) = (first(NEXT_DUE).await?, first(NEXT_LATE).await?);
    let (freed, keys) = (first(NEXT_FREED).await?, first(gates::NEXT_DUE).await?);
    Ok(next_of(due, late, freed, keys, now))
}

/// The work that is due.
pub(crate) struct DueWork {
    pub(crate) now: Timestamp,
    /// When there is something to do next.
    pub(crate) next: Option<Timestamp>,
    /// The locks for what is due now; `None`: nothing is.
    pub(crate) locks: Option<Locks>,
    /// Whether the inbox has rows that wait for room in their queue.
    pub(crate) waits: bool,
}

/// Checks whether anything is due.
pub(crate) async fn work(conn: &Conn, now: Option<i64>, batch: usize) -> Sql<DueWork> {
    let now = Timestamp::from_millis(get(&conn.one(NOW, &[&now]).await?, 0)?);
    let (next, waits) = (next(conn, now).await?, any_waits(conn).await?);
    let locks = match next {
        Some(next) if next <= now => Some(locks(conn, now, batch).await?),
        Some(_) | None => None,
    };
    Ok(DueWork { now, next, locks, waits })
}

/// The locks that are needed, as far as a query without locks can tell.
async fn locks(conn: &Conn, now: Timestamp, batch: usize) -> Sql<Locks> {
    let rows = conn
        .rows(
            "SELECT DISTINCT q.name, false FROM (
                (SELECT queue FROM ostler.task WHERE late_at < $1 AND phase < 3 ORDER BY late_at, id LIMIT $2)
                UNION ALL
                (SELECT queue FROM ostler.task WHERE phase = 1 AND why <> 7 AND run_at <= $1 ORDER BY run_at, id LIMIT $2)
             ) t JOIN ostler.queue q ON q.id = t.queue
             UNION
             SELECT DISTINCT q.name, true
             FROM (SELECT queue FROM ostler.limits WHERE shut_until <= $1 ORDER BY shut_until, key LIMIT $2) k
             JOIN ostler.queue q ON q.id = k.queue",
            &[&now.millis(), &most(batch)],
        )
        .await?;
    let mut locks = Locks::none();
    for row in &rows {
        let mode = if get(row, 1)? { Mode::Exclusive } else { Mode::Shared };
        locks.add(LockTarget::Queue(get(row, 0)?), mode);
    }
    Ok(locks)
}
