//! Unique keys: which task holds one, until when, and what happens to a task with the same key. Callers hold the exclusive lock of the
//! queue.

use ostler_core::{Conflict, Readiness, State, StateName, TaskId, Timestamp, Wait, conflict};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::unique::Unique;

use crate::codec::Extras;
use crate::dependents;
use crate::gates;
use crate::limit_keys::{self, KeyRelease, LimitKey};
use crate::params;
use crate::phase::{Mishaps, Phase};
use crate::task::{FoundTask, moved, set_state};
use crate::tx::{Tx, key_rules};
use crate::value::Row;

/// The answer to a new task whose unique key another task holds. `None`: it is inserted.
pub async fn clash<T: Tx>(tx: &mut T, queue: i64, new: &NewTask) -> Result<Option<Enqueued>, T::Error> {
    let Some(unique) = &new.unique else { return Ok(None) };
    let held = tx
        .row(
            "SELECT task, until FROM ostler.unique_key WHERE queue = $1 AND key = $2",
            params![queue, unique.key],
        )
        .await?;
    let Some(row) = held else { return Ok(None) };
    let (slot, until): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
    let Some(found) = tx.take(slot).await? else { return Ok(None) };
    let holder: TaskId = found.task.id;
    let until = until.map(Timestamp::from_millis);
    Ok(match conflict(unique.on_conflict, &found.task.state, until, tx.now()) {
        Conflict::Create => None,
        Conflict::Keep => Some(Enqueued::Existing(holder)),
        Conflict::Reject => Some(Enqueued::Rejected { holder }),
        Conflict::Replace => {
            take_over(tx, queue, &found, new).await?;
            give(tx, queue, slot, unique).await?;
            Some(Enqueued::Replaced(holder))
        }
    })
}

/// Gives the key to a task; a task whose time with it has passed loses it.
pub async fn give<T: Tx>(tx: &T, queue: i64, slot: i64, unique: &Unique) -> Result<(), T::Error> {
    let until = unique.hold.map(|hold| tx.now().after(hold).millis());
    tx.exec(
        "INSERT INTO ostler.unique_key(queue, key, task, until) VALUES($1, $2, $3, $4)
             ON CONFLICT(queue, key) DO UPDATE SET task = excluded.task, until = excluded.until",
        params![queue, unique.key, slot, until],
    )
    .await?;
    Ok(())
}

/// Replaces a waiting task by a new one, as if it had just been enqueued, without its steps. Its dependencies stay, so that no task can come to
/// wait for itself.
async fn take_over<T: Tx>(tx: &mut T, queue: i64, found: &FoundTask, new: &NewTask) -> Result<(), T::Error> {
    let (slot, now) = (found.slot, tx.now());
    let lane = tx.lane(&new.queue, &new.kind).await?;
    if lane != found.lane {
        tx.count(found.lane, Some(StateName::Queued), None);
        tx.count(lane, None, Some(StateName::Queued));
    }
    // It is not ready until it is ranked again, so that it takes no place while its key is settled.
    tx.exec("UPDATE ostler.task SET phase = $2 WHERE id = $1", params![slot, Phase::Timed]).await?;
    moved(tx, lane, found.limit, Phase::of(&found.task.state), Phase::Timed).await?;
    let limit = change_key(tx, queue, found, new).await?;
    let run_at = new.run_at.unwrap_or(now);
    let rank = limit_keys::rank(tx, &new.queue, limit, run_at.max(now), new.priority).await?;
    let limit = limit.map(|limit| limit.id);
    let extras = Extras::of_new(new);
    let (suspect, awaited) = (found.task.suspect, found.awaited);
    let trouble = Mishaps { suspect, awaited, ..Mishaps::default() };
    tx.exec(
            "UPDATE ostler.task SET lane = $2, rank = $3, priority = $4, failures = 0, trouble = $5, late_at = $6, limit_id = $7,
                extras = $8, payload = $9
             WHERE id = $1",
            params![
                slot,
                lane,
                rank.0,
                new.priority.points(),
                trouble.code(),
                extras.ends.late_at(),
                limit,
                extras.text(),
                new.payload,
            ],
        )
        .await?;
    tx.exec("DELETE FROM ostler.step WHERE task = $1", params![slot]).await?;
    let waits = matches!(
        found.task.state,
        State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, .. }
    );
    if waits {
        return set_state(tx, slot, lane, limit, Phase::Timed, &dependents::waiting(run_at)).await;
    }
    let rules = key_rules(tx, &new.queue).await?;
    let state = gates::arrived(tx, &rules, limit, run_at, Wait::New).await?;
    set_state(tx, slot, lane, limit, Phase::Timed, &state).await?;
    gates::settle_arrival(tx, &rules, limit, &state).await
}

/// Moves the task to the limit key of the new one.
async fn change_key<T: Tx>(
    tx: &mut T,
    queue: i64,
    found: &FoundTask,
    new: &NewTask,
) -> Result<Option<LimitKey>, T::Error> {
    let rules = key_rules(tx, &new.queue).await?;
    if found.task.limit_key == new.limit_key {
        limit_keys::settle(tx, found.limit, &rules).await?;
        return limit_keys::limit_of(tx, found.limit).await;
    }
    tx.exec("UPDATE ostler.task SET limit_id = NULL WHERE id = $1", params![found.slot]).await?;
    if let Some(before) = found.limit
        && limit_keys::leave(tx, before).await? == KeyRelease::Kept
    {
        limit_keys::settle(tx, Some(before), &rules).await?;
    }
    let Some(key) = new.limit_key.as_deref() else { return Ok(None) };
    let limit = limit_keys::limit(tx, queue, key).await?;
    tx.exec("UPDATE ostler.limits SET tasks = tasks + 1 WHERE id = $1", params![limit.id]).await?;
    Ok(Some(limit))
}
