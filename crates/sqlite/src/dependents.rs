//! Tasks that wait for others: who waits for whom, and what an end means for those who wait.

use std::collections::BTreeSet;

use ostler_core::{
    CancelReason, OnFailed, Readiness, Release, State, StateName, TaskId, Timestamp, Wait, release,
};
use ostler_store::MAX_CASCADE;
use ostler_store::calls::NewTask;
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::readable;
use crate::gates;
use crate::limit_keys;
use crate::row::{FoundTask, Mishaps, Phase, Uid, find, from_ordinal, ordinal};
use crate::tx::{Sql, Tx};

/// What becomes of a new task, by those it is to wait for.
pub(crate) enum Others {
    /// They hold nobody up.
    Done,
    /// These do.
    Unfinished(BTreeSet<i64>),
    /// One of them did not complete: the new one is cancelled too.
    Failed,
    /// There is no such task.
    Unknown(TaskId),
}

/// Looks at those that a new task is to wait for.
pub(crate) fn others(tx: &Tx<'_>, new: &NewTask) -> Sql<Others> {
    if new.after.is_empty() {
        return Ok(Others::Done);
    }
    let mut find = tx.prepare("SELECT id, phase FROM task WHERE uid = ?1")?;
    let mut unfinished = BTreeSet::new();
    let mut failed = false;
    for id in &new.after {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Phase>(1)?));
        let Some((slot, phase)) = find.query_row([Uid::of(id.0)], read).optional()? else {
            return Ok(Others::Unknown(*id));
        };
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
pub(crate) const fn waiting(run_at: Timestamp) -> State {
    State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, run_at }
}

/// The state of a task that is cancelled because of another.
pub(crate) const fn cancelled(now: Timestamp) -> State {
    State::Cancelled { finished_at: now, reason: CancelReason::Dependency }
}

/// A new task waits for these.
pub(crate) fn wait_for(tx: &Tx<'_>, slot: i64, others: &BTreeSet<i64>, choice: OnFailed) -> Sql<()> {
    let mut insert = tx.prepare("INSERT INTO edge(task, after, on_failed) VALUES(?1, ?2, ?3)")?;
    let mut mark = tx.prepare("UPDATE task SET trouble = trouble | ?2 WHERE id = ?1 AND trouble >= 0")?;
    for other in others {
        insert.execute(params![slot, other, ordinal(&OnFailed::ALL, &choice)])?;
        mark.execute(params![other, Mishaps::AWAITED])?;
    }
    Ok(())
}

/// The tasks that a task still waits for, the oldest first.
pub(crate) fn after(conn: &Connection, slot: i64) -> Sql<Vec<TaskId>> {
    let mut statement = conn.prepare_cached(
        "SELECT t.uid FROM edge e JOIN task t ON t.id = e.after WHERE e.task = ?1 ORDER BY e.after",
    )?;
    statement.query_map([slot], |row| row.get::<_, Uid>(0).map(|uid| TaskId(uid.id())))?.collect()
}

// ---- ends ----

/// A task that others wait for has ended: they are seen to when the verb is done.
pub(crate) fn ended(tx: &mut Tx<'_>, slot: i64) -> Sql<()> {
    tx.prepare("INSERT INTO freed(task, reached) VALUES(?1, 0) ON CONFLICT(task) DO UPDATE SET reached = 0")?
        .execute([slot])?;
    tx.frees();
    Ok(())
}

/// A task ended that was in its queue, and may have waited for others itself.
pub(crate) fn ended_in_queue(tx: &mut Tx<'_>, found: &FoundTask) -> Sql<()> {
    if matches!(found.task.state, State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, .. })
    {
        tx.prepare("DELETE FROM edge WHERE task = ?1")?.execute([found.slot])?;
    }
    if found.awaited { ended(tx, found.slot) } else { Ok(()) }
}

/// A task that had ended has another life: who waits for it goes on waiting.
pub(crate) fn revived(tx: &Tx<'_>, found: &FoundTask) -> Sql<()> {
    if found.awaited {
        tx.prepare("DELETE FROM freed WHERE task = ?1")?.execute([found.slot])?;
    }
    Ok(())
}

// ---- those who wait ----

/// Ends a verb: sees to those who waited for what it ended.
pub(crate) fn close_verb(tx: &mut Tx<'_>) -> Sql<()> {
    if tx.has_freed() {
        see_to(tx, MAX_CASCADE)?;
    }
    Ok(())
}

/// Sees to up to `most` of those who wait for tasks that have ended. Answers how many.
pub(crate) fn see_to(tx: &mut Tx<'_>, most: usize) -> Sql<usize> {
    let mut left = most;
    while left > 0
        && let Some((slot, reached)) = first_freed(tx)?
    {
        let waiting = match state_of(tx, slot)? {
            Some(state) => {
                let waiting = dependents(tx, slot, reached, left)?;
                for (dependent, choice) in &waiting {
                    tell(tx, *dependent, slot, release(*choice, Some(state)))?;
                }
                waiting
            }
            // Somebody edited its row: nobody can say what it means for others.
            None => Vec::new(),
        };
        match waiting.last() {
            Some((last, _)) if waiting.len() == left => {
                tx.prepare("UPDATE freed SET reached = ?2 WHERE task = ?1")?.execute(params![slot, last])?;
            }
            Some(_) | None => {
                tx.prepare("DELETE FROM freed WHERE task = ?1")?.execute([slot])?;
            }
        }
        left -= waiting.len();
    }
    // Whoever was cancelled on the way is in the list, or was seen to.
    tx.has_freed();
    Ok(most - left)
}

/// Whether an ended task may be removed. Those who still wait for it do not any more, as far as `left` goes.
pub(crate) fn let_go(tx: &mut Tx<'_>, slot: i64, left: &mut usize) -> Sql<bool> {
    if !tx.prepare("SELECT 1 FROM edge WHERE after = ?1")?.exists([slot])? {
        // Nobody waits, so nobody is left to be seen to.
        tx.prepare("DELETE FROM freed WHERE task = ?1")?.execute([slot])?;
        return Ok(true);
    }
    if tx.prepare("SELECT 1 FROM freed WHERE task = ?1")?.exists([slot])? {
        return Ok(false);
    }
    for (dependent, choice) in dependents(tx, slot, 0, *left)? {
        tell(tx, dependent, slot, release(choice, None))?;
        *left -= 1;
    }
    Ok(!tx.prepare("SELECT 1 FROM edge WHERE after = ?1")?.exists([slot])?)
}

/// When the first of the ended tasks that others wait for had ended.
pub(crate) const NEXT_FREED: &str = "SELECT min(t.finished_at) FROM freed f JOIN task t ON t.id = f.task";

fn first_freed(tx: &Tx<'_>) -> Sql<Option<(i64, i64)>> {
    tx.prepare("SELECT task, reached FROM freed ORDER BY task LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

fn state_of(tx: &Tx<'_>, slot: i64) -> Sql<Option<StateName>> {
    let phase = tx
        .prepare("SELECT phase FROM task WHERE id = ?1")?
        .query_row([slot], |row| row.get::<_, Phase>(0))
        .optional();
    Ok(readable(phase)?.flatten().map(Phase::state))
}

/// Those who wait for a task, the oldest first.
fn dependents(tx: &Tx<'_>, slot: i64, reached: i64, limit: usize) -> Sql<Vec<(i64, OnFailed)>> {
    let mut statement = tx.prepare(
        "SELECT task, on_failed FROM edge INDEXED BY edge_after WHERE after = ?1 AND task > ?2 ORDER BY task LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, from_ordinal(&OnFailed::ALL, row.get(1)?)?));
    statement.query_map(params![slot, reached, limit], read)?.collect()
}

fn tell(tx: &mut Tx<'_>, dependent: i64, other: i64, verdict: Release) -> Sql<()> {
    // What cannot be understood stays where it is; it must not hold the others up.
    let found = |tx: &Tx<'_>| readable(find(tx.conn, "WHERE t.id = ?1", [dependent])).map(Option::flatten);
    match verdict {
        Release::Waits => Ok(()),
        Release::Cancelled => {
            let Some(found) = found(tx)? else { return Ok(()) };
            let now = tx.now;
            tx.set_state(found.slot, found.lane, found.limit, Phase::of(&found.task.state), &cancelled(now))?;
            let rules = tx.key_rules(&found.task.queue)?;
            limit_keys::settle(tx, found.limit, &rules)?;
            ended_in_queue(tx, &found)
        }
        Release::Satisfied => {
            let Some(found) = found(tx)? else { return Ok(()) };
            tx.prepare("DELETE FROM edge WHERE task = ?1 AND after = ?2")?
                .execute(params![dependent, other])?;
            if tx.prepare("SELECT 1 FROM edge WHERE task = ?1")?.exists([dependent])? {
                return Ok(());
            }
            come_forward(tx, &found)
        }
    }
}

/// A task that waited, for a moment or for others, is ready, or waits for its key or its time. Its turn is as of now: a night's
/// worth of scheduled tasks must not go before everybody else's.
pub(crate) fn come_forward(tx: &mut Tx<'_>, found: &FoundTask) -> Sql<()> {
    let State::Queued { why, run_at, .. } = found.task.state else { return Ok(()) };
    let now = tx.now;
    if matches!(why, Wait::Scheduled | Wait::Dependency) {
        let limit = found.limit.map(|limit| limit_keys::limit_of(tx, limit)).transpose()?;
        let rank = limit_keys::rank(tx, &found.task.queue, limit, run_at.max(now), found.task.priority)?;
        tx.prepare("UPDATE task SET rank = ?2 WHERE id = ?1")?.execute(params![found.slot, rank.0])?;
    }
    let rules = tx.key_rules(&found.task.queue)?;
    let state = gates::arrived(tx, &rules, found.limit, run_at, why)?;
    tx.set_state(found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state)?;
    gates::settle_arrival(tx, &rules, found.limit, &state)
}
