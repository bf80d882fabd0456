//! Events and steps that an attempt records while it runs.

use ostler_core::EventBody;
use ostler_sql::events::{StoredEvent, record_conversation};
use ostler_sql::{chunks, poll_now};
use ostler_store::calls::{Appended, NewStep, Saved};
use ostler_store::{Check, LeaseRef, MAX_STEPS};
use rusqlite::params;

use super::start::{FENCE, fenced};
use crate::tx::{Sql, Tx};

pub(crate) fn append(
    tx: &mut Tx<'_>,
    lease: LeaseRef,
    events: &[EventBody],
    stored: &[StoredEvent],
) -> Sql<Appended> {
    let Some(held) = fenced(tx, &mut tx.prepare(FENCE)?, lease, Check::AppendToken)? else {
        return Ok(Appended::LeaseLost);
    };
    let mut last: u64 = tx
        .prepare("SELECT coalesce(max(number), 0) FROM event WHERE task = ?1")?
        .query_row([held.slot], |row| row.get(0))?;
    let first = last + 1;
    let mut insert = tx.prepare(
        "INSERT INTO event(task, number, at, token, kind, version, data, text) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for event in stored {
        last += 1;
        let StoredEvent { kind, version, data, text, size, chunks } = event;
        insert.execute(params![held.slot, last, tx.now.millis(), held.token, kind, version, data, text])?;
        poll_now(chunks::put(tx, held.slot, last, *size, chunks))?;
    }
    poll_now(record_conversation(tx, held.slot, held.token, first, events))?;
    tx.changed();
    Ok(Appended::Recorded { last })
}

pub(crate) fn save_step(tx: &mut Tx<'_>, lease: LeaseRef, step: &NewStep) -> Sql<Saved> {
    let Some(held) = fenced(tx, &mut tx.prepare(FENCE)?, lease, Check::StepToken)? else {
        return Ok(Saved::LeaseLost);
    };
    if tx
        .prepare("SELECT 1 FROM step WHERE task = ?1 AND name = ?2")?
        .exists(params![held.slot, step.name])?
    {
        return Ok(Saved::AlreadySaved);
    }
    let saved: usize = tx
        .prepare("SELECT count(*) FROM step WHERE task = ?1")?
        .query_row([held.slot], |row| row.get::<_, i64>(0))
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX))?;
    if saved >= MAX_STEPS {
        return Ok(Saved::TooMany);
    }
    tx.prepare("INSERT INTO step(task, name, place, value, saved_at, token) VALUES(?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![held.slot, step.name, saved as i64, step.value, tx.now.millis(), held.token])?;
    Ok(Saved::Recorded)
}
