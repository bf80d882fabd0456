//! Unique keys: who has one, until when, and what happens to whoever comes with the same.

use ostler_core::{Conflict, Readiness, State, StateName, TaskId, Timestamp, Wait, conflict};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::plans::Unique;
use rusqlite::{OptionalExtension, params};

use crate::codec::{EndLimits, extras_text};
use crate::dependents;
use crate::gates;
use crate::limit_keys::{self, KeyRelease, LimitKey};
use crate::row::{FoundTask, Mishaps, Phase, find};
use crate::tx::{Sql, Tx};

/// What becomes of a task whose unique key another one has. `None`: it is to be taken in.
pub(crate) fn clash(tx: &mut Tx<'_>, queue: i64, new: &NewTask) -> Sql<Option<Enqueued>> {
    let Some(unique) = &new.unique else { return Ok(None) };
    let held: Option<(i64, Option<i64>)> = tx
        .prepare("SELECT task, until FROM unique_key WHERE queue = ?1 AND key = ?2")?
        .query_row(params![queue, unique.key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((slot, until)) = held else { return Ok(None) };
    let Some(found) = find(tx.conn, "WHERE t.id = ?1", [slot])? else { return Ok(None) };
    let holder: TaskId = found.task.id;
    let until = until.map(Timestamp::from_millis);
    Ok(match conflict(unique.on_conflict, &found.task.state, until, tx.now) {
        Conflict::Create => None,
        Conflict::Keep => Some(Enqueued::Existing(holder)),
        Conflict::Reject => Some(Enqueued::Rejected { holder }),
        Conflict::Replace => {
            take_over(tx, queue, &found, new)?;
            give(tx, queue, slot, unique)?;
            Some(Enqueued::Replaced(holder))
        }
    })
}

/// The key is this task's from now on; one whose time with it is over has none any more.
pub(crate) fn give(tx: &Tx<'_>, queue: i64, slot: i64, unique: &Unique) -> Sql<()> {
    let until = unique.hold.map(|hold| tx.now.after(hold).millis());
    tx.prepare(
        "INSERT INTO unique_key(queue, key, task, until) VALUES(?1, ?2, ?3, ?4)
         ON CONFLICT(queue, key) DO UPDATE SET task = excluded.task, until = excluded.until",
    )?
    .execute(params![queue, unique.key, slot, until])?;
    Ok(())
}

/// A task that waits becomes what another one brings, as if it had just come. Its steps are of other work. What it waits for
/// stays: so nobody comes to wait for himself in the end.
fn take_over(tx: &mut Tx<'_>, queue: i64, found: &FoundTask, new: &NewTask) -> Sql<()> {
    let (slot, now) = (found.slot, tx.now);
    let lane = tx.lane(&new.queue, &new.kind)?;
    if lane != found.lane {
        tx.count(found.lane, Some(StateName::Queued), None);
        tx.count(lane, None, Some(StateName::Queued));
    }
    // It waits for nothing until it is placed anew, so that it is in nobody's way while its key is settled.
    tx.prepare("UPDATE task SET phase = ?2 WHERE id = ?1")?.execute(params![slot, Phase::Timed])?;
    tx.moved(lane, found.limit, Phase::of(&found.task.state), Phase::Timed)?;
    let limit = change_key(tx, queue, found, new)?;
    let run_at = new.run_at.unwrap_or(now);
    let rank = limit_keys::rank(tx, &new.queue, limit, run_at.max(now), new.priority)?;
    let limit = limit.map(|limit| limit.id);
    let ends = EndLimits { not_after: new.not_after, deadline: new.deadline };
    let (suspect, awaited) = (found.task.suspect, found.awaited);
    let trouble = Mishaps { suspect, awaited, ..Mishaps::default() };
    tx.prepare(
        "UPDATE task SET lane = ?2, rank = ?3, priority = ?4, failures = 0, trouble = ?5, late_at = ?6, limit_id = ?7,
            extras = ?8, payload = ?9
         WHERE id = ?1",
    )?
    .execute(params![
        slot,
        lane,
        rank.0,
        new.priority.points(),
        trouble.code(),
        ends.late_at(),
        limit,
        extras_text(&new.overrides, new.folder.as_deref(), ends, new.cost.unwrap_or(1)),
        new.payload
    ])?;
    tx.prepare("DELETE FROM step WHERE task = ?1")?.execute([slot])?;
    let waits = matches!(
        found.task.state,
        State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, .. }
    );
    if waits {
        return tx.set_state(slot, lane, limit, Phase::Timed, &dependents::waiting(run_at));
    }
    let rules = tx.key_rules(&new.queue)?;
    let state = gates::arrived(tx, &rules, limit, run_at, Wait::New)?;
    tx.set_state(slot, lane, limit, Phase::Timed, &state)?;
    gates::settle_arrival(tx, &rules, limit, &state)
}

/// The limit key of the new one, where the task takes part from now on.
fn change_key(tx: &mut Tx<'_>, queue: i64, found: &FoundTask, new: &NewTask) -> Sql<Option<LimitKey>> {
    let rules = tx.key_rules(&new.queue)?;
    if found.task.limit_key == new.limit_key {
        limit_keys::settle(tx, found.limit, &rules)?;
        return found.limit.map(|limit| limit_keys::limit_of(tx, limit)).transpose();
    }
    tx.prepare("UPDATE task SET limit_id = NULL WHERE id = ?1")?.execute([found.slot])?;
    if let Some(before) = found.limit
        && limit_keys::leave(tx, before)? == KeyRelease::Kept
    {
        limit_keys::settle(tx, Some(before), &rules)?;
    }
    let Some(key) = new.limit_key.as_deref() else { return Ok(None) };
    let limit = limit_keys::limit(tx, queue, key)?;
    tx.prepare("UPDATE limits SET tasks = tasks + 1 WHERE id = ?1")?.execute([limit.id])?;
    Ok(Some(limit))
}
