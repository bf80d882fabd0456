//! Tellings: noted in the transaction that ends an attempt, taken by sessions, removed when they were told.

use std::collections::HashMap;

use ostler_core::{EndKind, Outcome, SessionId, State, TaskId, Timestamp, end_kind};
use ostler_store::Check;
use ostler_store::calls::EventKind;
use ostler_store::outbox::{Ack, OutboxAnswer, OutboxEntry, OutboxFilter};
use tokio_postgres::Row;

use crate::conn::{Conn, big, get, get_u32, get_u64, int, most};
use crate::fault::{Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{Uid, from_ordinal, ordinal};
use crate::tx::Tx;
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

/// An end that is to be told, before it is written.
pub(crate) struct NewEntry {
    lane: i64,
    slot: i64,
    attempt: u32,
    what: EndKind,
    at: Timestamp,
    failure: Option<String>,
    run_at: Option<i64>,
}

/// Notes the end, if its queue wants it told.
pub(crate) fn note(tx: &mut Tx, tell: OutboxFilter, end: &OutboxInput<'_>) {
    let Some(what) = end_kind(end.state, end.outcome).filter(|what| tell.has(*what)) else { return };
    let run_at = match end.state {
        State::Queued { run_at, .. } => Some(run_at.millis()),
        State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    let failure = end.outcome.and_then(Outcome::failure).map(|failure| failure_text(failure, tx.now, tx.now));
    let (lane, slot, attempt, at) = (end.lane, end.slot, end.attempt, tx.now);
    tx.tell(NewEntry { lane, slot, attempt, what, at, failure, run_at });
}

/// Writes what was noted, in order.
pub(crate) async fn write(conn: &Conn, noted: &[NewEntry]) -> Sql<()> {
    if noted.is_empty() {
        return Ok(());
    }
    let lanes: Vec<i64> = noted.iter().map(|noted| noted.lane).collect();
    let slots: Vec<i64> = noted.iter().map(|noted| noted.slot).collect();
    let attempts: Vec<i32> = noted.iter().map(|noted| int(noted.attempt)).collect();
    let whats: Vec<i16> = noted.iter().map(|noted| ordinal(&EndKind::ALL, &noted.what)).collect();
    let ats: Vec<i64> = noted.iter().map(|noted| noted.at.millis()).collect();
    let failures: Vec<Option<&str>> = noted.iter().map(|noted| noted.failure.as_deref()).collect();
    let run_ats: Vec<Option<i64>> = noted.iter().map(|noted| noted.run_at).collect();
    conn.exec(
        "INSERT INTO ostler.telling(queue, lane, task, attempt, what, at, failure, run_at)
         SELECT (SELECT l.queue FROM ostler.lane l WHERE l.id = n.lane), n.lane, n.task, n.attempt, n.what, n.at, n.failure, n.run_at
         FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::smallint[], $5::bigint[], $6::text[], $7::bigint[])
            WITH ORDINALITY AS n(lane, task, attempt, what, at, failure, run_at, place)
         ORDER BY n.place",
        &[&lanes, &slots, &attempts, &whats, &ats, &failures, &run_ats],
    )
    .await?;
    Ok(())
}

fn codes(wants: OutboxFilter) -> Vec<i16> {
    EndKind::ALL.iter().filter(|what| wants.has(**what)).map(|what| ordinal(&EndKind::ALL, what)).collect()
}

/// Whose locks are needed.
pub(crate) fn locks(session: SessionId) -> Locks {
    Locks::none().and(LockTarget::Session(session), Mode::Shared)
}

/// What a session asks for.
pub(crate) struct OutboxQuery {
    pub(crate) session: SessionId,
    pub(crate) queue: String,
    pub(crate) wants: OutboxFilter,
    pub(crate) limit: usize,
}

pub(crate) async fn take(tx: &mut Tx, asks: &OutboxQuery) -> Sql<OutboxAnswer> {
    let Some(session) = tx.live_session(asks.session, Check::HearSession).await? else {
        return Ok(OutboxAnswer::SessionEnded);
    };
    // Somebody else may be taking some at the same time: those are theirs.
    let rows = tx
        .conn
        .rows(
            "SELECT g.number, t.uid, l.kind, g.attempt, g.what, g.at, g.failure, g.run_at
             FROM ostler.telling g JOIN ostler.task t ON t.id = g.task JOIN ostler.lane l ON l.id = g.lane
             WHERE g.queue = (SELECT id FROM ostler.queue WHERE name = $1) AND g.what = ANY($2) AND g.session IS NULL
             ORDER BY g.number LIMIT $3 FOR UPDATE OF g SKIP LOCKED",
            &[&asks.queue, &codes(asks.wants), &most(asks.limit)],
        )
        .await?;
    let mut tellings = Vec::with_capacity(rows.len());
    for row in &rows {
        // What cannot be understood stays; it must not keep the others from being told.
        tellings.extend(readable(telling(row, &asks.queue))?);
    }
    let numbers: Vec<i64> = tellings.iter().map(|telling| big(telling.number)).collect();
    tx.conn
        .exec("UPDATE ostler.telling SET session = $2 WHERE number = ANY($1)", &[&numbers, &session])
        .await?;
    Ok(OutboxAnswer::Entries(tellings))
}

fn telling(row: &Row, queue: &str) -> Sql<OutboxEntry> {
    Ok(OutboxEntry {
        number: get_u64(row, 0)?,
        queue: queue.to_owned(),
        task: TaskId(get::<Uid>(row, 1)?.id()),
        kind: get(row, 2)?,
        attempt: get_u32(row, 3)?,
        what: from_ordinal(&EndKind::ALL, get(row, 4)?)?,
        at: Timestamp::from_millis(get(row, 5)?),
        failure: failure_from(get(row, 6)?)?.map(|failed| failed.failure),
        run_at: get::<Option<i64>>(row, 7)?.map(Timestamp::from_millis),
    })
}

pub(crate) async fn ack(tx: &mut Tx, session: SessionId, deliveries: &[Ack]) -> Sql<()> {
    let numbers: Vec<i64> =
        deliveries.iter().filter_map(|delivery| i64::try_from(delivery.number).ok()).collect();
    let whoever = tx.checks.pass(Check::ToldTaken, false);
    let rows = tx
        .conn
        .rows(
            "DELETE FROM ostler.telling WHERE number = ANY($1)
                AND ($3 OR session = (SELECT id FROM ostler.session WHERE uid = $2)) RETURNING number, task",
            &[&numbers, &Uid::of(session.0), &whoever],
        )
        .await?;
    let mut removed = HashMap::with_capacity(rows.len());
    for row in &rows {
        removed.insert(get_u64(row, 0)?, get::<i64>(row, 1)?);
    }
    for Ack { number, warning } in deliveries {
        // What is named twice is told once.
        if let (Some(task), Some(warning)) = (removed.remove(number), warning) {
            warn(tx, task, warning).await?;
        }
    }
    Ok(())
}

/// Appends a warning to the events of a task, whoever has its lease. The row is held: events are numbered one after the other.
async fn warn(tx: &Tx, task: i64, warning: &str) -> Sql<()> {
    tx.hold_slots(&[task]).await?;
    tx.conn
        .exec(
            "INSERT INTO ostler.event(task, number, at, token, kind, data)
             SELECT id, (SELECT coalesce(max(number), 0) + 1 FROM ostler.event WHERE task = $1), $2, token, $3, $4
             FROM ostler.task WHERE id = $1",
            &[&task, &tx.now.millis(), &ordinal(&EventKind::ALL, &EventKind::Warning), &warning],
        )
        .await?;
    Ok(())
}

/// A session ends: what it had taken and not told is for others.
pub(crate) async fn free(tx: &mut Tx, session: i64) -> Sql<()> {
    let freed =
        tx.conn.exec("UPDATE ostler.telling SET session = NULL WHERE session = $1", &[&session]).await?;
    if freed > 0 {
        tx.ring();
    }
    Ok(())
}
