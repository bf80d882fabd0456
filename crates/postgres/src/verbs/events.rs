//! Events and steps that an attempt records while it runs. A row lock suffices for this, unless money is spent from a budget.

use ostler_core::EventBody;
use ostler_sql::chunks;
use ostler_sql::events::{StoredEvent, record_conversation};
use ostler_store::calls::{Appended, NewStep, Saved};
use ostler_store::{Check, LeaseRef, MAX_STEPS};

use super::start::fenced;
use crate::cache::Cache;
use crate::conn::{big, get};
use crate::fault::Sql;
use crate::locks::Locks;
use crate::tx::Tx;

/// The locks needed: where an attempt is charged to a budget, those of its queue. If they are too few, the verb restarts.
pub(crate) fn locks(cache: &Cache, lease: LeaseRef, events: &[EventBody]) -> Locks {
    let spends = events.iter().any(|event| matches!(event, EventBody::Usage(_)));
    let queue = if spends { cache.charged(lease.row, lease.token) } else { None };
    queue.map_or_else(Locks::none, |queue| Locks::none().queue(&queue))
}

pub(crate) async fn append(
    tx: &mut Tx,
    lease: LeaseRef,
    events: &[EventBody],
    stored: &[StoredEvent],
) -> Sql<Appended> {
    let Some(held) = fenced(tx, lease, Check::AppendToken).await? else { return Ok(Appended::LeaseLost) };
    let row = tx
        .conn
        .one("SELECT coalesce(max(number), 0) FROM ostler.event WHERE task = $1", &[&held.slot])
        .await?;
    let before: i64 = get(&row, 0)?;
    let kinds: Vec<i16> = stored.iter().map(|event| event.kind).collect();
    let versions: Vec<i16> = stored.iter().map(|event| event.version).collect();
    let data: Vec<&str> = stored.iter().map(|event| event.data.as_str()).collect();
    let texts: Vec<Option<&str>> = stored.iter().map(|event| event.text.as_deref()).collect();
    tx.conn
        .exec(
            "INSERT INTO ostler.event(task, number, at, token, kind, version, data, text)
             SELECT $1, $2 + n.place, $3, $4, n.kind, n.version, n.data, n.text
             FROM unnest($5::smallint[], $6::smallint[], $7::text[], $8::text[])
                WITH ORDINALITY AS n(kind, version, data, text, place)",
            &[&held.slot, &before, &tx.now.millis(), &big(held.token), &kinds, &versions, &data, &texts],
        )
        .await?;
    let before = u64::try_from(before).unwrap_or(0);
    for (number, event) in (before + 1..).zip(stored) {
        chunks::put(tx, held.slot, number, event.size, &event.chunks).await?;
    }
    record_conversation(tx, held.slot, held.token, before + 1, events).await?;
    tx.changed();
    Ok(Appended::Recorded { last: before + events.len() as u64 })
}

pub(crate) async fn save_step(tx: &mut Tx, lease: LeaseRef, step: &NewStep) -> Sql<Saved> {
    let Some(held) = fenced(tx, lease, Check::StepToken).await? else { return Ok(Saved::LeaseLost) };
    let known = tx
        .conn
        .exists("SELECT 1 FROM ostler.step WHERE task = $1 AND name = $2", &[&held.slot, &step.name])
        .await?;
    if known {
        return Ok(Saved::AlreadySaved);
    }
    let row = tx.conn.one("SELECT count(*) FROM ostler.step WHERE task = $1", &[&held.slot]).await?;
    let saved: i64 = get(&row, 0)?;
    if usize::try_from(saved).is_ok_and(|saved| saved >= MAX_STEPS) {
        return Ok(Saved::TooMany);
    }
    tx.conn
        .exec(
            "INSERT INTO ostler.step(task, name, place, value, saved_at, token) VALUES($1, $2, $3, $4, $5, $6)",
            &[
                &held.slot,
                &step.name,
                &i32::try_from(saved).unwrap_or(i32::MAX),
                &step.value,
                &tx.now.millis(),
                &big(held.token),
            ],
        )
        .await?;
    Ok(Saved::Recorded)
}
