//! Tasks that wait for others: who waits for whom, and what an end means for those who wait.

use std::collections::BTreeSet;

use ostler_core::{
    CancelReason, OnFailed, Readiness, Release, State, StateName, TaskId, Timestamp, Wait, release,
};
use ostler_store::MAX_CASCADE;
use ostler_store::calls::NewTask;

use crate::conn::{Conn, get, most};
use crate::fault::{Abort, Sql, readable};
use crate::gates;
use crate::limit_keys;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{FoundTask, Mishaps, Phase, Uid, code, from_ordinal};
use crate::tx::Tx;

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

/// Looks at those that a new task is to wait for, and holds them: none of them ends before the new one is there.
pub(crate) async fn others(tx: &Tx, new: &NewTask) -> Sql<Others> {
    if new.after.is_empty() {
        return Ok(Others::Done);
    }
    let slots = tx.hold(&new.after).await?;
    let held: Vec<i64> = slots.values().copied().collect();
    let rows = tx.conn.rows("SELECT id, phase FROM ostler.task WHERE id = ANY($1)", &[&held]).await?;
    let mut phases = std::collections::HashMap::new();
    for row in &rows {
        phases.insert(get::<i64>(row, 0)?, Phase::from_code(get(row, 1)?)?);
    }
    let mut unfinished = BTreeSet::new();
    let mut failed = false;
    for id in &new.after {
        let found = slots.get(id).and_then(|slot| phases.get(slot).map(|phase| (*slot, *phase)));
        let Some((slot, phase)) = found else { return Ok(Others::Unknown(*id)) };
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
pub(crate) async fn wait_for(tx: &Tx, slot: i64, others: &BTreeSet<i64>, choice: OnFailed) -> Sql<()> {
    let others: Vec<i64> = others.iter().copied().collect();
    tx.conn
        .exec(
            "INSERT INTO ostler.edge(task, after, on_failed) SELECT $1, other, $3 FROM unnest($2::bigint[]) AS n(other)",
            &[&slot, &others, &code(&OnFailed::ALL, &choice)],
        )
        .await?;
    tx.conn
        .exec(
            "UPDATE ostler.task SET trouble = trouble | $2 WHERE id = ANY($1) AND trouble >= 0",
            &[&others, &Mishaps::AWAITED],
        )
        .await?;
    Ok(())
}

/// The tasks that a task still waits for, the oldest first.
pub(crate) async fn after(conn: &Conn, slot: i64) -> Sql<Vec<TaskId>> {
    let rows = conn
        .rows(
            "SELECT t.uid FROM ostler.edge e JOIN ostler.task t ON t.id = e.after WHERE e.task = $1 ORDER BY e.after",
            &[&slot],
        )
        .await?;
    rows.iter().map(|row| Ok(TaskId(get::<Uid>(row, 0)?.id()))).collect()
}

// ---- ends ----

/// A task that others wait for has ended: they are seen to when the verb is done.
pub(crate) async fn ended(tx: &mut Tx, slot: i64) -> Sql<()> {
    tx.conn
        .exec(
            "INSERT INTO ostler.freed(task, reached) VALUES($1, 0) ON CONFLICT(task) DO UPDATE SET reached = 0",
            &[&slot],
        )
        .await?;
    tx.frees();
    Ok(())
}

/// A task ended that was in its queue, and may have waited for others itself.
pub(crate) async fn ended_in_queue(tx: &mut Tx, found: &FoundTask) -> Sql<()> {
    if waits_for_others(found) {
        tx.conn.exec("DELETE FROM ostler.edge WHERE task = $1", &[&found.slot]).await?;
    }
    if found.awaited { ended(tx, found.slot).await } else { Ok(()) }
}

fn waits_for_others(found: &FoundTask) -> bool {
    matches!(found.task.state, State::Queued { readiness: Readiness::Waiting, why: Wait::Dependency, .. })
}

/// A task that had ended has another life: who waits for it goes on waiting.
pub(crate) async fn revived(tx: &Tx, found: &FoundTask) -> Sql<()> {
    if found.awaited {
        tx.conn.exec("DELETE FROM ostler.freed WHERE task = $1", &[&found.slot]).await?;
    }
    Ok(())
}

// ---- those who wait ----

/// Ends a verb: sees to those who waited for what it ended.
pub(crate) async fn close_verb(tx: &mut Tx) -> Sql<()> {
    if tx.has_freed() {
        see_to(tx, MAX_CASCADE).await?;
    }
    Ok(())
}

/// Sees to up to `wanted` of those who wait for tasks that have ended. Answers how many.
pub(crate) async fn see_to(tx: &mut Tx, wanted: usize) -> Sql<usize> {
    let mut left = wanted;
    while left > 0
        && let Some((slot, reached)) = first_freed(tx).await?
    {
        let waiting = match state_of(tx, slot).await? {
            Some(state) => {
                let waiting = dependents(tx, slot, reached, left).await?;
                for (dependent, choice) in &waiting {
                    tell(tx, *dependent, slot, release(*choice, Some(state))).await?;
                }
                waiting
            }
            // Somebody edited its row: nobody can say what it means for others.
            None => Vec::new(),
        };
        match waiting.last() {
            Some((last, _)) if waiting.len() == left => {
                tx.conn.exec("UPDATE ostler.freed SET reached = $2 WHERE task = $1", &[&slot, last]).await?;
            }
            Some(_) | None => {
                tx.conn.exec("DELETE FROM ostler.freed WHERE task = $1", &[&slot]).await?;
            }
        }
        left -= waiting.len();
    }
    // Whoever was cancelled on the way is in the list, or was seen to.
    tx.has_freed();
    Ok(wanted - left)
}

/// Whether an ended task may be removed. Those who still wait for it do not any more, as far as `left` goes.
pub(crate) async fn let_go(tx: &mut Tx, slot: i64, left: &mut usize) -> Sql<bool> {
    const WAITS: &str = "SELECT 1 FROM ostler.edge WHERE after = $1 LIMIT 1";
    if !tx.conn.exists(WAITS, &[&slot]).await? {
        // Nobody waits, so nobody is left to be seen to.
        tx.conn.exec("DELETE FROM ostler.freed WHERE task = $1", &[&slot]).await?;
        return Ok(true);
    }
    if tx.conn.exists("SELECT 1 FROM ostler.freed WHERE task = $1", &[&slot]).await? {
        return Ok(false);
    }
    for (dependent, choice) in dependents(tx, slot, 0, *left).await? {
        tell(tx, dependent, slot, release(choice, None)).await?;
        *left -= 1;
    }
    Ok(!tx.conn.exists(WAITS, &[&slot]).await?)
}

/// When the first of the ended tasks that others wait for had ended.
pub(crate) const NEXT_FREED: &str =
    "SELECT min(t.finished_at) FROM ostler.freed f JOIN ostler.task t ON t.id = f.task";

async fn first_freed(tx: &Tx) -> Sql<Option<(i64, i64)>> {
    let row = tx.conn.row("SELECT task, reached FROM ostler.freed ORDER BY task LIMIT 1", &[]).await?;
    row.map(|row| Ok((get(&row, 0)?, get(&row, 1)?))).transpose()
}

async fn state_of(tx: &Tx, slot: i64) -> Sql<Option<StateName>> {
    let row = tx.conn.row("SELECT phase FROM ostler.task WHERE id = $1", &[&slot]).await?;
    let phase = row.map(|row| Phase::from_code(get(&row, 0)?)).transpose();
    Ok(readable(phase)?.flatten().map(Phase::state))
}

/// Those who wait for a task, the oldest first. Begins anew, unless the queues of all of them are locked.
async fn dependents(tx: &Tx, slot: i64, reached: i64, limit: usize) -> Sql<Vec<(i64, OnFailed)>> {
    let rows = tx
        .conn
        .rows(
            "SELECT e.task, e.on_failed, q.name FROM ostler.edge e
             JOIN ostler.task t ON t.id = e.task JOIN ostler.queue q ON q.id = t.queue
             WHERE e.after = $1 AND e.task > $2 ORDER BY e.task LIMIT $3",
            &[&slot, &reached, &most(limit)],
        )
        .await?;
    let mut needs = Locks::none();
    let mut waiting = Vec::with_capacity(rows.len());
    for row in &rows {
        let queue: String = get(row, 2)?;
        if tx.locked(&queue).is_err() {
            needs.add(LockTarget::Queue(queue), Mode::Shared);
        }
        waiting.push((get(row, 0)?, from_ordinal(&OnFailed::ALL, get(row, 1)?)?));
    }
    if needs.is_empty() { Ok(waiting) } else { Err(Abort::Needs(needs)) }
}

async fn tell(tx: &mut Tx, dependent: i64, other: i64, verdict: Release) -> Sql<()> {
    if verdict == Release::Waits {
        return Ok(());
    }
    // What cannot be understood stays where it is; it must not hold the others up. Whoever does not wait any more was seen to by
    // somebody else at the same time.
    let found = readable(tx.take(dependent).await)?.flatten();
    let Some(found) = found.filter(waits_for_others) else { return Ok(()) };
    match verdict {
        Release::Waits => Ok(()),
        Release::Cancelled => {
            let now = tx.now;
            tx.set_state(found.slot, found.lane, found.limit, Phase::of(&found.task.state), &cancelled(now))
                .await?;
            let rules = tx.key_rules(&found.task.queue)?;
            limit_keys::settle(tx, found.limit, &rules).await?;
            ended_in_queue(tx, &found).await
        }
        Release::Satisfied => {
            let removed = tx
                .conn
                .exec("DELETE FROM ostler.edge WHERE task = $1 AND after = $2", &[&dependent, &other])
                .await?;
            let waits =
                tx.conn.exists("SELECT 1 FROM ostler.edge WHERE task = $1 LIMIT 1", &[&dependent]).await?;
            if removed == 0 || waits { Ok(()) } else { come_forward(tx, &found).await }
        }
    }
}

/// A task that waited, for a moment or for others, is ready, or waits for its key or its time. Its turn is as of now: a night's
/// worth of scheduled tasks must not go before everybody else's.
pub(crate) async fn come_forward(tx: &mut Tx, found: &FoundTask) -> Sql<()> {
    let State::Queued { why, run_at, .. } = found.task.state else { return Ok(()) };
    let now = tx.now;
    if matches!(why, Wait::Scheduled | Wait::Dependency) {
        let limit = limit_keys::limit_of(tx, found.limit).await?;
        let rank =
            limit_keys::rank(tx, &found.task.queue, limit, run_at.max(now), found.task.priority).await?;
        tx.conn.exec("UPDATE ostler.task SET rank = $2 WHERE id = $1", &[&found.slot, &rank.0]).await?;
    }
    let rules = tx.key_rules(&found.task.queue)?;
    let state = gates::arrived(tx, &rules, found.limit, run_at, why).await?;
    tx.set_state(found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
    gates::settle_arrival(tx, &rules, found.limit, &state).await
}
