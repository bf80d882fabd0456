//! The outbox: entries are written with the commit that ends an attempt, taken by sessions, and removed when acknowledged.

use std::collections::HashMap;

use ostler_core::{EndKind, EventBody, SessionId};
use ostler_sql::events::append_one;
use ostler_store::Check;
use ostler_store::outbox::{Ack, OutboxAnswer};

use crate::conn::{Conn, big, get, get_u64, int, most};
use crate::fault::{Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{RowRef, Uid, ordinal};
use crate::tx::Tx;
use ostler_sql::outbox::{NewEntry, entry_from};

/// Writes new entries, in order.
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
    let subscribers: Vec<&str> = noted.iter().map(|noted| noted.subscriber.as_str()).collect();
    conn.exec(
        "INSERT INTO ostler.outbox(queue, subscriber, lane, task, attempt, what, at, failure, run_at)
         SELECT (SELECT l.queue FROM ostler.lane l WHERE l.id = n.lane), n.subscriber, n.lane, n.task, n.attempt, n.what, n.at,
            n.failure, n.run_at
         FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::smallint[], $5::bigint[], $6::text[], $7::bigint[], $8::text[])
            WITH ORDINALITY AS n(lane, task, attempt, what, at, failure, run_at, subscriber, place)
         ORDER BY n.place",
        &[&lanes, &slots, &attempts, &whats, &ats, &failures, &run_ats, &subscribers],
    )
    .await?;
    Ok(())
}

/// The locks for taking entries.
pub(crate) fn locks(session: SessionId) -> Locks {
    Locks::none().and(LockTarget::Session(session), Mode::Shared)
}

/// A session's request for entries.
pub(crate) struct OutboxQuery {
    pub(crate) session: SessionId,
    pub(crate) queue: String,
    pub(crate) subscriber: String,
    pub(crate) limit: usize,
}

pub(crate) async fn take(tx: &mut Tx, asks: &OutboxQuery) -> Sql<OutboxAnswer> {
    let Some(session) = tx.live_session(asks.session, Check::HearSession).await? else {
        return Ok(OutboxAnswer::SessionEnded);
    };
    // Entries that another session is taking at the same time are skipped.
    let rows = tx
        .conn
        .rows(
            "SELECT g.number, t.uid, l.kind, g.attempt, g.what, g.at, g.failure, g.run_at, g.taken
             FROM ostler.outbox g JOIN ostler.task t ON t.id = g.task JOIN ostler.lane l ON l.id = g.lane
             WHERE g.queue = (SELECT id FROM ostler.queue WHERE name = $1) AND g.subscriber = $2 AND g.session IS NULL
             ORDER BY g.number LIMIT $3 FOR UPDATE OF g SKIP LOCKED",
            &[&asks.queue, &asks.subscriber, &most(asks.limit)],
        )
        .await?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in &rows {
        // An entry that cannot be read stays, and does not block the others.
        entries.extend(readable(entry_from(&RowRef(row), &asks.queue))?);
    }
    let numbers: Vec<i64> = entries.iter().map(|entry| big(entry.number)).collect();
    tx.conn
        .exec(
            "UPDATE ostler.outbox SET session = $2, taken = taken + 1 WHERE number = ANY($1)",
            &[&numbers, &session],
        )
        .await?;
    Ok(OutboxAnswer::Entries(entries))
}

pub(crate) async fn ack(tx: &mut Tx, session: SessionId, deliveries: &[Ack]) -> Sql<()> {
    let numbers: Vec<i64> =
        deliveries.iter().filter_map(|delivery| i64::try_from(delivery.number).ok()).collect();
    let any_session = tx.checks.pass(Check::ToldTaken, false);
    let rows = tx
        .conn
        .rows(
            "DELETE FROM ostler.outbox WHERE number = ANY($1)
                AND ($3 OR session = (SELECT id FROM ostler.session WHERE uid = $2)) RETURNING number, task",
            &[&numbers, &Uid::of(session.0), &any_session],
        )
        .await?;
    let mut removed = HashMap::with_capacity(rows.len());
    for row in &rows {
        removed.insert(get_u64(row, 0)?, get::<i64>(row, 1)?);
    }
    for Ack { number, warning } in deliveries {
        // An entry named twice is acknowledged once.
        if let (Some(task), Some(warning)) = (removed.remove(number), warning) {
            tx.hold_slots(&[task]).await?;
            append_one(tx, task, &EventBody::warning(warning)).await?;
        }
    }
    Ok(())
}
