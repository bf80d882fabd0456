//! Unique keys: which task holds one, until when, and what happens to a task with the same key. Callers hold the exclusive lock of the
//! queue.

use ostler_core::{
    Conflict, HeldUntil, KeyHold, Readiness, Regain, State, StateName, TaskId, Wait, conflict, regain,
};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::unique::Unique;

use crate::codec::{Extras, held_from, held_number};
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
    let Some((found, held)) = holder(tx, queue, &unique.key).await? else { return Ok(None) };
    let (slot, holder): (i64, TaskId) = (found.slot, found.task.id);
    Ok(match conflict(unique.on_conflict, &found.task.state, held, tx.now()) {
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

/// The task that has a key, and until when.
async fn holder<T: Tx>(
    tx: &mut T,
    queue: i64,
    key: &str,
) -> Result<Option<(FoundTask, HeldUntil)>, T::Error> {
    let held = tx
        .row("SELECT task, until FROM ostler.unique_key WHERE queue = $1 AND key = $2", params![queue, key])
        .await?;
    let Some(row) = held else { return Ok(None) };
    let held = held_from(row.get(1)?);
    Ok(tx.take(row.get(0)?).await?.map(|found| (found, held)))
}

/// Gives the key to a task; a task whose hold on it is over loses it.
pub async fn give<T: Tx>(tx: &T, queue: i64, slot: i64, unique: &Unique) -> Result<(), T::Error> {
    let held = unique.hold.unwrap_or_default().from(tx.now());
    put(tx, queue, slot, &unique.key, held).await
}

async fn put<T: Tx>(tx: &T, queue: i64, slot: i64, key: &str, held: HeldUntil) -> Result<(), T::Error> {
    tx.exec(
        "INSERT INTO ostler.unique_key(queue, key, task, until) VALUES($1, $2, $3, $4)
             ON CONFLICT(queue, key) DO UPDATE SET task = excluded.task, until = excluded.until",
        params![queue, key, slot, held_number(held)],
    )
    .await?;
    Ok(())
}

/// Gives an ended task, which is about to be replayed, the key that it held until its end. Returns the task that refuses it.
pub async fn take_back<T: Tx>(tx: &mut T, found: &FoundTask) -> Result<Option<TaskId>, T::Error> {
    let Some(key) = found.end_key.as_deref().filter(|_| found.task.unique_key.is_none()) else {
        return Ok(None);
    };
    tx.exclusive(&found.task.queue)?;
    let queue = tx.queue_or_new(&found.task.queue).await?.id;
    let now = tx.now();
    if let Some((other, held)) = holder(tx, queue, key).await?
        && regain(&other.task.state, held, now) == Regain::Refuse
    {
        return Ok(Some(other.task.id));
    }
    put(tx, queue, found.slot, key, KeyHold::End.from(now)).await?;
    Ok(None)
}

/// Replaces a waiting task by a new one, as if it had just been enqueued, without its steps. Its dependencies stay, so that no task can
/// come to wait for itself.
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
    // It is other work: the conversation of its earlier attempts is not resumed.
    let extras = Extras { scratch_token: found.task.token, ..Extras::of_new(new) };
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
