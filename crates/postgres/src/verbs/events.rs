//! Events and steps that an attempt records while it runs. A row lock suffices for this.

use ostler_store::calls::{Appended, EventKind, NewEvent, NewStep, Saved};
use ostler_store::{Check, LeaseRef, MAX_STEPS};

use super::start::fenced;
use crate::conn::{big, get};
use crate::fault::Sql;
use crate::row::ordinal;
use crate::tx::Tx;

pub(crate) async fn append(tx: &mut Tx, lease: LeaseRef, events: &[NewEvent]) -> Sql<Appended> {
    let Some(held) = fenced(tx, lease, Check::AppendToken).await? else { return Ok(Appended::LeaseLost) };
    let row = tx
        .conn
        .one("SELECT coalesce(max(number), 0) FROM ostler.event WHERE task = $1", &[&held.slot])
        .await?;
    let before: i64 = get(&row, 0)?;
    let kinds: Vec<i16> = events.iter().map(|event| ordinal(&EventKind::ALL, &event.kind)).collect();
    let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
    tx.conn
        .exec(
            "INSERT INTO ostler.event(task, number, at, token, kind, data)
             SELECT $1, $2 + n.place, $3, $4, n.kind, n.data
             FROM unnest($5::smallint[], $6::text[]) WITH ORDINALITY AS n(kind, data, place)",
            &[&held.slot, &before, &tx.now.millis(), &big(held.token), &kinds, &data],
        )
        .await?;
    Ok(Appended::Recorded { last: u64::try_from(before).unwrap_or(0) + events.len() as u64 })
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
