//! The outbox: entries are written with the end of an attempt, taken by sessions, and removed when acknowledged.

use ostler_core::{EndKind, EventBody, SessionId};
use ostler_sql::events::append_one;
use ostler_store::Check;
use ostler_store::outbox::{Ack, OutboxAnswer};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::readable;
use crate::row::{Uid, ordinal};
use crate::shared_tx::RowRef;
use crate::tx::{Sql, Tx};
use ostler_sql::outbox::{NewEntry, entry_from};
use ostler_sql::poll_now;

/// Inserts a new entry.
pub(crate) fn insert(tx: &mut Tx<'_>, entry: &NewEntry) -> Sql<()> {
    let NewEntry { subscriber, lane, slot, attempt, what, at, failure, run_at } = entry;
    tx.prepare(
        "INSERT INTO outbox(queue, subscriber, lane, task, attempt, what, at, failure, run_at)
         VALUES((SELECT queue FROM lane WHERE id = ?1), ?8, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        lane,
        slot,
        attempt,
        ordinal(&EndKind::ALL, what),
        at.millis(),
        failure,
        run_at,
        subscriber
    ])?;
    tx.ring();
    Ok(())
}

/// Whether the queue has entries for a subscriber that no session has taken.
pub(crate) fn any(conn: &Connection, queue: &str, subscriber: &str) -> Sql<bool> {
    conn.prepare_cached(
        "SELECT 1 FROM outbox INDEXED BY untaken
         WHERE queue = (SELECT id FROM queue WHERE name = ?1) AND subscriber = ?2 AND session IS NULL LIMIT 1",
    )?
    .exists(params![queue, subscriber])
}

pub(crate) fn take(
    tx: &mut Tx<'_>,
    session: SessionId,
    queue: &str,
    subscriber: &str,
    limit: usize,
) -> Sql<OutboxAnswer> {
    let Some(session) = tx.live_session(session, Check::HearSession)? else {
        return Ok(OutboxAnswer::SessionEnded);
    };
    let Some(found) = tx.queue(queue)? else { return Ok(OutboxAnswer::Entries(Vec::new())) };
    let id = found.id;
    let mut statement = tx.prepare(
        "SELECT g.number, t.uid, l.kind, g.attempt, g.what, g.at, g.failure, g.run_at, g.taken
         FROM outbox g INDEXED BY untaken JOIN task t ON t.id = g.task JOIN lane l ON l.id = g.lane
         WHERE g.queue = ?1 AND g.subscriber = ?2 AND g.session IS NULL ORDER BY g.number",
    )?;
    let mut rows = statement.query(params![id, subscriber])?;
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some(row) = rows.next()?
    {
        // An entry that cannot be read stays, and does not block the others.
        entries.extend(readable(entry_from(&RowRef(row), queue))?);
    }
    drop(rows);
    let mut take = tx.prepare("UPDATE outbox SET session = ?2, taken = taken + 1 WHERE number = ?1")?;
    for entry in &entries {
        take.execute(params![entry.number, session])?;
    }
    Ok(OutboxAnswer::Entries(entries))
}

pub(crate) fn ack(tx: &mut Tx<'_>, session: SessionId, deliveries: &[Ack]) -> Sql<()> {
    let session: Option<i64> = tx
        .prepare("SELECT id FROM session WHERE uid = ?1")?
        .query_row([Uid::of(session.0)], |row| row.get(0))
        .optional()?;
    let mut taken_by = tx.prepare("SELECT session, task FROM outbox WHERE number = ?1")?;
    let mut remove = tx.prepare("DELETE FROM outbox WHERE number = ?1")?;
    for Ack { number, warning } in deliveries {
        let Ok(number) = i64::try_from(*number) else { continue };
        let taken: Option<(Option<i64>, i64)> =
            taken_by.query_row([number], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((taken, task)) = taken else { continue };
        let mine = taken.is_some() && taken == session;
        if tx.checks.pass(Check::ToldTaken, mine) {
            remove.execute([number])?;
            if let Some(warning) = warning {
                poll_now(append_one(tx, task, &EventBody::warning(warning)))?;
            }
        }
    }
    Ok(())
}
