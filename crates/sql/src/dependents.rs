//! Dependencies: which task waits for which, and what the end of a task means for its dependents.

use std::collections::BTreeSet;

use ostler_core::{
    CancelReason, OnFailed, Readiness, Release, State, StateName, TaskId, Timestamp, Wait, release,
};
use ostler_store::MAX_CASCADE;
use ostler_store::calls::NewTask;

use crate::gates;
use crate::limit_keys;
use crate::params;
use crate::phase::{Phase, from_ordinal, ordinal};
use crate::task::{FoundTask, set_state};
use crate::tx::{Tx, exists, key_rules, readable};
use crate::value::Row;

/// What the tasks that a new task waits for mean for it.
pub enum Others {
    /// All of them are done.
    Done,
    /// These are not done.
    Unfinished(BTreeSet<i64>),
    /// One of them did not complete: the new task is cancelled too.
    Failed,
    /// There is no such task.
    Unknown(TaskId),
}

/// Locks and checks the tasks that a new task waits for: none of them ends before the new one is inserted.
pub async fn others<T: Tx>(tx: &T, new: &NewTask) -> Result<Others, T::Error> {
    if new.after.is_empty() {
        return Ok(Others::Done);
    }
    let found = tx.lock_by_id(&new.after).await?;
    let mut unfinished = BTreeSet::new();
    let mut failed = false;
    for id in &new.after {
        let Some((slot, phase)) = found.get(id).copied() else { return Ok(Others::Unknown(*id)) };
        match release(new.on_failed, Some(phase.state())) {
            Release::Satisfied => {}
            Release::Waits => {
                unfinished.insert(slot);
            }
            Release::Cancelled => failed = true,
        }
    }
    Ok(match (failed, unfinished.is_empty()) {
        (true, _) => Others::Failed,
        (false, true) => Others::Done,
        (false, false) => Others::Unfinished(unfinished),
    })
}

/// The state of a task that waits for others.
pub const fn waiting(run_at: Timestamp) -> State {
    State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, run_at }
}

/// The state of a task that is cancelled because of another.
pub const fn cancelled(now: Timestamp) -> State {
    State::Cancelled { finished_at: now, reason: CancelReason::Dependency }
}

/// A new task waits for these.
///
/// # Errors
/// When a statement fails.
pub async fn wait_for<T: Tx>(
    tx: &T,
    slot: i64,
    others: &BTreeSet<i64>,
    choice: OnFailed,
) -> Result<(), T::Error> {
    let others: Vec<i64> = others.iter().copied().collect();
    tx.insert_edges(slot, &others, ordinal(&OnFailed::ALL, &choice)).await
}

/// Finds the tasks that a task still waits for, the oldest first.
pub const AFTER: &str =
    "SELECT t.uid FROM ostler.edge e JOIN ostler.task t ON t.id = e.after WHERE e.task = $1 ORDER BY e.after";

// ---- ends ----

/// A task that others wait for has ended: its dependents are released at the end of the verb.
pub async fn ended<T: Tx>(tx: &mut T, slot: i64) -> Result<(), T::Error> {
    tx.exec(
        "INSERT INTO ostler.freed(task, reached) VALUES($1, 0) ON CONFLICT(task) DO UPDATE SET reached = 0",
        params![slot],
    )
    .await?;
    tx.frees();
    Ok(())
}

/// A queued task ended; it may have waited for others itself.
pub async fn ended_in_queue<T: Tx>(tx: &mut T, found: &FoundTask) -> Result<(), T::Error> {
    if waits_for_others(found) {
        tx.exec("DELETE FROM ostler.edge WHERE task = $1", params![found.slot]).await?;
    }
    if found.awaited { ended(tx, found.slot).await } else { Ok(()) }
}

fn waits_for_others(found: &FoundTask) -> bool {
    matches!(found.task.state, State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, .. })
}

/// A task that had ended is queued again: its dependents go on waiting.
pub async fn revived<T: Tx>(tx: &T, found: &FoundTask) -> Result<(), T::Error> {
    if found.awaited {
        tx.exec("DELETE FROM ostler.freed WHERE task = $1", params![found.slot]).await?;
    }
    Ok(())
}

// ---- dependents ----

/// Ends a verb: releases the dependents of the tasks that it ended.
pub async fn close_verb<T: Tx>(tx: &mut T) -> Result<(), T::Error> {
    if tx.has_freed() {
        release_dependents(tx, MAX_CASCADE).await?;
    }
    Ok(())
}

/// Releases up to `wanted` dependents of ended tasks. Returns how many.
pub async fn release_dependents<T: Tx>(tx: &mut T, wanted: usize) -> Result<usize, T::Error> {
    let mut left = wanted;
    while left > 0
        && let Some((slot, reached)) = first_freed(tx).await?
    {
        let waiting = match state_of(tx, slot).await? {
            Some(state) => {
                let waiting = dependents(tx, slot, reached, left).await?;
                for (dependent, choice) in &waiting {
                    release_dependent(tx, *dependent, slot, release(*choice, Some(state))).await?;
                }
                waiting
            }
            // A row that cannot be read decides nothing about its dependents.
            None => Vec::new(),
        };
        match waiting.last() {
            Some((last, _)) if waiting.len() == left => {
                tx.exec("UPDATE ostler.freed SET reached = $2 WHERE task = $1", params![slot, last]).await?;
            }
            Some(_) | None => {
                tx.exec("DELETE FROM ostler.freed WHERE task = $1", params![slot]).await?;
            }
        }
        left -= waiting.len();
    }
    // Tasks cancelled on the way are in the table, or their dependents were released.
    tx.has_freed();
    Ok(wanted - left)
}

/// Whether an ended task may be removed. Up to `left` dependents that still wait for it are released.
pub async fn let_go<T: Tx>(tx: &mut T, slot: i64, left: &mut usize) -> Result<bool, T::Error> {
    const WAITS: &str = "SELECT 1 FROM ostler.edge WHERE after = $1 LIMIT 1";
    if !exists(tx, WAITS, params![slot]).await? {
        // No dependents are left.
        tx.exec("DELETE FROM ostler.freed WHERE task = $1", params![slot]).await?;
        return Ok(true);
    }
    if exists(tx, "SELECT 1 FROM ostler.freed WHERE task = $1", params![slot]).await? {
        return Ok(false);
    }
    for (dependent, choice) in dependents(tx, slot, 0, *left).await? {
        release_dependent(tx, dependent, slot, release(choice, None)).await?;
        *left -= 1;
    }
    Ok(!exists(tx, WAITS, params![slot]).await?)
}

/// When the first ended task with dependents ended.
pub const NEXT_FREED: &str =
    "SELECT min(t.finished_at) FROM ostler.freed f JOIN ostler.task t ON t.id = f.task";

async fn first_freed<T: Tx>(tx: &T) -> Result<Option<(i64, i64)>, T::Error> {
    let row = tx.row("SELECT task, reached FROM ostler.freed ORDER BY task LIMIT 1", params![]).await?;
    row.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}

async fn state_of<T: Tx>(tx: &T, slot: i64) -> Result<Option<StateName>, T::Error> {
    let row = tx.row("SELECT phase FROM ostler.task WHERE id = $1", params![slot]).await?;
    let phase = row.map(|row| row.get::<Phase>(0)).transpose();
    Ok(readable::<T, _>(phase)?.flatten().map(Phase::state))
}

/// The tasks that wait for a task, the oldest first. Fails, to be tried again with these locks, unless the queues of all of them are
/// locked.
async fn dependents<T: Tx>(
    tx: &T,
    slot: i64,
    reached: i64,
    limit: usize,
) -> Result<Vec<(i64, OnFailed)>, T::Error> {
    let rows = tx
        .rows(
            "SELECT e.task, e.on_failed, q.name FROM ostler.edge e /*by edge_after*/
             JOIN ostler.task t ON t.id = e.task JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
             WHERE e.after = $1 AND e.task > $2 ORDER BY e.task LIMIT $3",
            params![slot, reached, limit],
        )
        .await?;
    let mut queues = BTreeSet::new();
    let mut waiting = Vec::with_capacity(rows.len());
    for row in &rows {
        queues.insert(row.get::<String>(2)?);
        let choice = from_ordinal(&OnFailed::ALL, row.get(1)?).map_err(T::unreadable)?;
        waiting.push((row.get(0)?, choice));
    }
    tx.locked(&queues)?;
    Ok(waiting)
}

async fn release_dependent<T: Tx>(
    tx: &mut T,
    dependent: i64,
    other: i64,
    verdict: Release,
) -> Result<(), T::Error> {
    if verdict == Release::Waits {
        return Ok(());
    }
    // A row that cannot be read stays, and does not block the others. A task that no longer waits was released by another transaction at
    // the same time.
    let found = readable::<T, _>(tx.take(dependent).await)?.flatten();
    let Some(found) = found.filter(waits_for_others) else { return Ok(()) };
    match verdict {
        Release::Waits => Ok(()),
        Release::Cancelled => {
            let now = tx.now();
            set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &cancelled(now))
                .await?;
            let rules = key_rules(tx, &found.task.queue).await?;
            limit_keys::settle(tx, found.limit, &rules).await?;
            ended_in_queue(tx, &found).await
        }
        Release::Satisfied => {
            let removed = tx
                .exec("DELETE FROM ostler.edge WHERE task = $1 AND after = $2", params![dependent, other])
                .await?;
            let waits =
                exists(tx, "SELECT 1 FROM ostler.edge WHERE task = $1 LIMIT 1", params![dependent]).await?;
            if removed == 0 || waits { Ok(()) } else { come_forward(tx, &found).await }
        }
    }
}

/// A task that waited for a time or for others becomes ready, or waits for its key. It is ranked as of now: a night's worth of scheduled tasks
/// must not overtake all the others.
pub async fn come_forward<T: Tx>(tx: &mut T, found: &FoundTask) -> Result<(), T::Error> {
    let State::Queued { why, run_at, .. } = found.task.state else { return Ok(()) };
    let now = tx.now();
    if matches!(why, Wait::Scheduled | Wait::Dependency) {
        let limit = limit_keys::limit_of(tx, found.limit).await?;
        let rank =
            limit_keys::rank(tx, &found.task.queue, limit, run_at.max(now), found.task.priority).await?;
        tx.exec("UPDATE ostler.task SET rank = $2 WHERE id = $1", params![found.slot, rank.0]).await?;
    }
    let rules = key_rules(tx, &found.task.queue).await?;
    let state = gates::arrived(tx, &rules, found.limit, run_at, why).await?;
    set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
    gates::settle_arrival(tx, &rules, found.limit, &state).await
}
