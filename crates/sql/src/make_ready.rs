//! Make ready: cancels tasks that are too late, releases dependents, and makes due tasks and due limit keys ready.

use std::time::Duration;

use ostler_core::{Timestamp, too_late};
use ostler_store::calls::MadeReady;

use crate::dependents::{NEXT_FREED, come_forward, ended_in_queue, release_dependents};
use crate::outbox::{OutboxInput, note};
use crate::phase::Phase;
use crate::task::{FoundTask, set_state};
use crate::tx::{Tx, key_rules, locked, one, readable};
use crate::value::Row;
use crate::{gates, limit_keys, params};

/// When the first waiting task is due.
pub const NEXT_DUE: &str = "SELECT min(run_at) FROM ostler.task /*by due*/ WHERE phase = 1 AND why <> 7";
/// When the first queued task is too late.
pub const NEXT_LATE: &str =
    "SELECT min(late_at) FROM ostler.task /*by late*/ WHERE late_at IS NOT NULL AND phase < 3";

// Rows that another transaction has locked are moved by it, or read again the next time.
const LATE: &str =
    "SELECT id FROM ostler.task /*by late*/ WHERE late_at < $1 AND phase < 3 ORDER BY late_at, id LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED";
const DUE: &str = "SELECT id FROM ostler.task /*by due*/ WHERE phase = 1 AND why <> 7 AND run_at <= $1 ORDER BY run_at, id LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED";

/// How long a row that cannot be read is left alone.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

/// When there is something to do next, from the answers to [`NEXT_DUE`], [`NEXT_LATE`], [`NEXT_FREED`] and [`gates::NEXT_DUE`]. In the past: now.
/// Dependents of ended tasks are due at once, even if a clock was set back.
#[must_use]
pub fn next_of(
    due: Option<i64>,
    late: Option<i64>,
    freed: Option<i64>,
    keys: Option<i64>,
    now: Timestamp,
) -> Option<Timestamp> {
    let late = late.map(|end| end.saturating_add(1));
    let freed = freed.map(|ended| ended.min(now.millis()));
    [due, late, freed, gates::next_due(keys)].into_iter().flatten().min().map(Timestamp::from_millis)
}

/// Handles up to `batch` tasks and keys in all.
///
/// # Errors
/// When a statement fails.
pub async fn run<T: Tx>(tx: &mut T, batch: usize) -> Result<MadeReady, T::Error> {
    let now = tx.now();
    let mut unreadable = 0;
    let late = slots(tx, LATE, batch).await?;
    for slot in &late {
        match read(tx, *slot).await? {
            Some(found) => expire(tx, &found).await?,
            None => unreadable += 1,
        }
    }
    let freed = release_dependents(tx, batch - late.len()).await?;
    let due = slots(tx, DUE, batch - late.len() - freed).await?;
    for slot in &due {
        match read(tx, *slot).await? {
            Some(found) => {
                locked(tx, &found.task.queue)?;
                come_forward(tx, &found).await?;
            }
            None => unreadable += 1,
        }
    }
    let keys = gates::settle_due(tx, batch - late.len() - freed - due.len()).await?;
    let mut next = next(tx).await?;
    if unreadable > 0 {
        // A row that cannot be read stays; reading it again at once would change nothing.
        next = next.map(|next| next.max(now.after(UNREADABLE_PAUSE)));
    }
    Ok(MadeReady { due: due.len() + keys, expired: late.len(), freed, next })
}

/// Ends a queued task whose deadline has passed.
async fn expire<T: Tx>(tx: &mut T, found: &FoundTask) -> Result<(), T::Error> {
    let task = &found.task;
    let Some(state) = too_late(task.not_after, task.deadline, tx.now()) else { return Ok(()) };
    let subscribers =
        tx.queue(&task.queue).await?.map(|queue| queue.settings.subscribers.clone()).unwrap_or_default();
    set_state(tx, found.slot, found.lane, found.limit, Phase::of(&task.state), &state).await?;
    let rules = key_rules(tx, &task.queue).await?;
    limit_keys::settle(tx, found.limit, &rules).await?;
    let end =
        OutboxInput { lane: found.lane, slot: found.slot, attempt: task.runs, state: &state, outcome: None };
    note(tx, &subscribers, &end).await?;
    ended_in_queue(tx, found).await
}

async fn read<T: Tx>(tx: &T, slot: i64) -> Result<Option<FoundTask>, T::Error> {
    Ok(readable::<T, _>(tx.read(slot).await)?.flatten())
}

async fn slots<T: Tx>(tx: &T, sql: &'static str, limit: usize) -> Result<Vec<i64>, T::Error> {
    let rows = tx.rows(sql, params![tx.now().millis(), limit]).await?;
    rows.iter().map(|row| row.get(0)).collect()
}

async fn next<T: Tx>(tx: &T) -> Result<Option<Timestamp>, T::Error> {
    let due = one(tx, NEXT_DUE, params![]).await?.get(0)?;
    let late = one(tx, NEXT_LATE, params![]).await?.get(0)?;
    let freed = one(tx, NEXT_FREED, params![]).await?.get(0)?;
    let keys = one(tx, gates::NEXT_DUE, params![]).await?.get(0)?;
    Ok(next_of(due, late, freed, keys, tx.now()))
}
