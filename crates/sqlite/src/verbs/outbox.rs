//! Tellings: noted in the transaction that ends an attempt, taken by sessions, removed when they were told.

use ostler_core::{EndKind, Outcome, SessionId, State, TaskId, Timestamp, end_kind};
use ostler_store::Check;
use ostler_store::calls::EventKind;
use ostler_store::outbox::{Ack, OutboxAnswer, OutboxEntry, OutboxFilter};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::fault::readable;
use crate::row::{Uid, from_ordinal, ordinal};
use crate::shared_tx::unreadable;
use crate::tx::{Sql, Tx};
use ostler_sql::codec::{failure_from, failure_text};

/// A task that came to where it stands.
pub(crate) struct OutboxInput<'a> {
    pub(crate) lane: i64,
    pub(crate) slot: i64,
    /// How many attempts have begun.
    pub(crate) attempt: u32,
    pub(crate) state: &'a State,
    /// How the attempt ended, if one did.
    pub(crate) outcome: Option<&'a Outcome>,
}

/// Notes the end, if its queue wants it told.
pub(crate) fn note(tx: &mut Tx<'_>, tell: OutboxFilter, end: &OutboxInput<'_>) -> Sql<()> {
    let Some(what) = end_kind(end.state, end.outcome).filter(|what| tell.has(*what)) else { return Ok(()) };
    let run_at = match end.state {
        State::Queued { run_at, .. } => Some(run_at.millis()),
        State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    let failure = end.outcome.and_then(Outcome::failure).map(|failure| failure_text(failure, tx.now, tx.now));
    tx.prepare(
        "INSERT INTO telling(queue, lane, task, attempt, what, at, failure, run_at)
         VALUES((SELECT queue FROM lane WHERE id = ?1), ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        end.lane,
        end.slot,
        end.attempt,
        ordinal(&EndKind::ALL, &what),
        tx.now.millis(),
        failure,
        run_at
    ])?;
    tx.ring();
    Ok(())
}

/// Whether the queue has anything of this that no session has taken.
pub(crate) fn any(conn: &Connection, queue: &str, wants: OutboxFilter) -> Sql<bool> {
    let mut statement = conn.prepare_cached(
        "SELECT 1 FROM telling INDEXED BY untold
         WHERE queue = (SELECT id FROM queue WHERE name = ?1) AND what = ?2 AND session IS NULL LIMIT 1",
    )?;
    for what in EndKind::ALL.iter().filter(|what| wants.has(**what)) {
        if statement.exists(params![queue, ordinal(&EndKind::ALL, what)])? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn take(
    tx: &mut Tx<'_>,
    session: SessionId,
    queue: &str,
    wants: OutboxFilter,
    limit: usize,
) -> Sql<OutboxAnswer> {
    let Some(session) = tx.live_session(session, Check::HearSession)? else {
        return Ok(OutboxAnswer::SessionEnded);
    };
    let Some(found) = tx.queue(queue)? else { return Ok(OutboxAnswer::Entries(Vec::new())) };
    let id = found.id;
    let mut tellings = Vec::new();
    for what in EndKind::ALL.iter().filter(|what| wants.has(**what)) {
        let mut statement = tx.prepare(
            "SELECT g.number, t.uid, l.kind, g.attempt, g.what, g.at, g.failure, g.run_at
             FROM telling g INDEXED BY untold JOIN task t ON t.id = g.task JOIN lane l ON l.id = g.lane
             WHERE g.queue = ?1 AND g.what = ?2 AND g.session IS NULL ORDER BY g.number",
        )?;
        let mut rows = statement.query(params![id, ordinal(&EndKind::ALL, what)])?;
        let enough = tellings.len() + limit;
        while tellings.len() < enough
            && let Some(row) = rows.next()?
        {
            // What cannot be understood stays; it must not keep the others from being told.
            tellings.extend(readable(telling(row, queue))?);
        }
    }
    tellings.sort_by_key(|telling| telling.number);
    tellings.truncate(limit);
    let mut take = tx.prepare("UPDATE telling SET session = ?2 WHERE number = ?1")?;
    for telling in &tellings {
        take.execute(params![telling.number, session])?;
    }
    Ok(OutboxAnswer::Entries(tellings))
}

fn telling(row: &Row<'_>, queue: &str) -> Sql<OutboxEntry> {
    Ok(OutboxEntry {
        number: row.get(0)?,
        queue: queue.to_owned(),
        task: TaskId(row.get::<_, Uid>(1)?.id()),
        kind: row.get(2)?,
        attempt: row.get(3)?,
        what: from_ordinal(&EndKind::ALL, row.get(4)?)?,
        at: Timestamp::from_millis(row.get(5)?),
        failure: failure_from(row.get(6)?).map_err(unreadable)?.map(|failed| failed.failure),
        run_at: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_millis),
    })
}

pub(crate) fn ack(tx: &mut Tx<'_>, session: SessionId, deliveries: &[Ack]) -> Sql<()> {
    let session: Option<i64> = tx
        .prepare("SELECT id FROM session WHERE uid = ?1")?
        .query_row([Uid::of(session.0)], |row| row.get(0))
        .optional()?;
    let mut taken_by = tx.prepare("SELECT session, task FROM telling WHERE number = ?1")?;
    let mut remove = tx.prepare("DELETE FROM telling WHERE number = ?1")?;
    for Ack { number, warning } in deliveries {
        let Ok(number) = i64::try_from(*number) else { continue };
        let taken: Option<(Option<i64>, i64)> =
            taken_by.query_row([number], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((taken, task)) = taken else { continue };
        let mine = taken.is_some() && taken == session;
        if tx.checks.pass(Check::ToldTaken, mine) {
            remove.execute([number])?;
            if let Some(warning) = warning {
                warn(tx, task, warning)?;
            }
        }
    }
    Ok(())
}

/// Appends a warning to the events of a task, whoever holds it.
fn warn(tx: &Tx<'_>, task: i64, warning: &str) -> Sql<()> {
    tx.prepare(
        "INSERT INTO event(task, number, at, token, kind, data)
         SELECT id, (SELECT coalesce(max(number), 0) + 1 FROM event WHERE task = ?1), ?2, token, ?3, ?4
         FROM task WHERE id = ?1",
    )?
    .execute(params![task, tx.now.millis(), ordinal(&EventKind::ALL, &EventKind::Warning), warning])?;
    Ok(())
}

/// A session ends: what it had taken and not told is for others.
pub(crate) fn free(tx: &mut Tx<'_>, session: i64) -> Sql<()> {
    let freed = tx
        .prepare("UPDATE telling INDEXED BY taken SET session = NULL WHERE session = ?1")?
        .execute([session])?;
    if freed > 0 {
        tx.ring();
    }
    Ok(())
}
