//! Limit keys: the fair rank of a key's tasks, and how many of them may be ready or leased at once. Callers hold the exclusive lock
//! of the queue.

use ostler_core::{Admission, Fairness, Priority, Rank, Timestamp, Wait, admit, place};

use crate::gates;
use crate::params;
use crate::phase::{Phase, ordinal};
use crate::queue::KeyRules;
use crate::task::moved;
use crate::tx::{Tx, exists, one};
use crate::value::Row;

/// The key under which tasks without a limit key are ranked, in queues where others have one.
pub const NO_KEY: &str = "";

/// A limit key of a queue.
#[derive(Clone, Copy)]
pub struct LimitKey {
    pub id: i64,
    /// The rank of its last task.
    last: Option<i64>,
}

/// The limit key of a queue, inserted if it does not exist.
pub async fn limit<T: Tx>(tx: &T, queue: i64, key: &str) -> Result<LimitKey, T::Error> {
    let found = tx
        .row("SELECT id, last FROM ostler.limits WHERE queue = $1 AND key = $2", params![queue, key])
        .await?;
    match found {
        Some(row) => Ok(LimitKey { id: row.get(0)?, last: row.get(1)? }),
        None => {
            let row = one(
                tx,
                "INSERT INTO ostler.limits(queue, key) VALUES($1, $2) RETURNING id",
                params![queue, key],
            )
            .await?;
            Ok(LimitKey { id: row.get(0)?, last: None })
        }
    }
}

/// The limit key of a task that has one.
pub async fn limit_of<T: Tx>(tx: &T, limit: Option<i64>) -> Result<Option<LimitKey>, T::Error> {
    let Some(id) = limit else { return Ok(None) };
    let row = one(tx, "SELECT last FROM ostler.limits WHERE id = $1", params![id]).await?;
    Ok(Some(LimitKey { id, last: row.get(0)? }))
}

/// A task leaves its limit key. A key without tasks and gate state is removed, and starts afresh when it is used again.
pub async fn leave<T: Tx>(tx: &mut T, limit: i64) -> Result<KeyRelease, T::Error> {
    tx.exec("UPDATE ostler.limits SET tasks = tasks - 1 WHERE id = $1", params![limit]).await?;
    gates::forget_key(tx, limit).await?;
    let kept = exists(tx, "SELECT 1 FROM ostler.limits WHERE id = $1", params![limit]).await?;
    Ok(if kept { KeyRelease::Kept } else { KeyRelease::Gone })
}

/// Whether a limit key still exists after a task left it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyRelease {
    /// It has other tasks, or its gate has state.
    Kept,
    Gone,
}

/// Computes the rank of a task that may first run at `arrival`, and stores it as the last rank of its key.
pub async fn rank<T: Tx>(
    tx: &mut T,
    queue: &str,
    limit: Option<LimitKey>,
    arrival: Timestamp,
    priority: Priority,
) -> Result<Rank, T::Error> {
    let found = tx.queue_or_new(queue).await?;
    let (id, clock, order) = (found.id, found.clock, found.settings.priority);
    let kept = match limit {
        Some(limit) => Some(limit),
        // The usual case: a queue without keys stores no rank.
        None if clock.0.is_none() => None,
        None => Some(self::limit(tx, id, NO_KEY).await?),
    };
    let last = kept.and_then(|kept| kept.last);
    let turn = if limit.is_some() { Fairness::Keyed { last } } else { Fairness::Unkeyed { last } };
    let placement = place(clock, turn, arrival, priority, order);
    tx.set_clock(queue, placement.clock).await?;
    if let (Some(kept), Some(laid)) = (kept, placement.last) {
        tx.exec("UPDATE ostler.limits SET last = $2 WHERE id = $1", params![kept.id, laid]).await?;
    }
    Ok(placement.rank)
}

/// Makes ready what the gate and the concurrency cap of a limit key admit. The places of a key go to its best-ranked tasks: ready and leased
/// ones do not exceed the cap, and no parked task outranks a ready one. Each call moves a task or two, whatever the length of the queue;
/// tasks that waited for a gate are admitted in small blocks.
pub async fn settle<T: Tx>(tx: &mut T, limit: Option<i64>, rules: &KeyRules) -> Result<(), T::Error> {
    let Some(limit) = limit else { return Ok(()) };
    if rules.may_gate() && !gates::settle(tx, limit, rules).await? {
        return Ok(());
    }
    match rules.cap {
        Some(cap) => settle_by_cap(tx, limit, cap).await,
        None => Ok(()),
    }
}

async fn settle_by_cap<T: Tx>(tx: &mut T, limit: i64, cap: u32) -> Result<(), T::Error> {
    loop {
        let row = one(tx, "SELECT used FROM ostler.limits WHERE id = $1", params![limit]).await?;
        let used = u32::try_from(row.get::<i64>(0)?).unwrap_or(u32::MAX);
        let (best, worst) = match admit(Some(cap), used) {
            Admission::Admit => {
                let Some(best) = best_parked(tx, limit).await? else { return Ok(()) };
                let_in(tx, limit, &best).await?;
                continue;
            }
            Admission::Park if used > cap => {
                let Some(worst) = worst_ready(tx, limit).await? else { return Ok(()) };
                park(tx, limit, &worst, Wait::Concurrency).await?;
                continue;
            }
            Admission::Park => {
                // Usually no task waits for a place.
                let Some(best) = best_parked(tx, limit).await? else { return Ok(()) };
                (best, worst_ready(tx, limit).await?)
            }
        };
        // Every place is taken. Swap a ready task for a better-ranked parked one.
        match worst {
            Some(worst) if (best.rank, best.slot) < (worst.rank, worst.slot) => {
                park(tx, limit, &worst, Wait::Concurrency).await?;
                let_in(tx, limit, &best).await?;
            }
            Some(_) | None => return Ok(()),
        }
    }
}

/// Settles every key of a queue, after its rules were changed.
pub async fn settle_queue<T: Tx>(tx: &mut T, queue: i64, rules: KeyRules) -> Result<(), T::Error> {
    let rows = tx.rows("SELECT id FROM ostler.limits WHERE queue = $1 ORDER BY id", params![queue]).await?;
    // Without a cap no task is parked for concurrency.
    let rules = KeyRules { cap: Some(rules.cap.unwrap_or(u32::MAX)), ..rules.looked_at() };
    for row in &rows {
        settle(tx, Some(row.get(0)?), &rules).await?;
    }
    Ok(())
}

/// A queued task of a key.
pub struct Candidate {
    pub slot: i64,
    pub lane: i64,
    pub rank: i64,
}

async fn best_parked<T: Tx>(tx: &T, limit: i64) -> Result<Option<Candidate>, T::Error> {
    candidate(
        tx,
        limit,
        "SELECT id, lane, rank FROM ostler.task /*by keyed*/ WHERE limit_id = $1 AND phase = 2 AND phase IN (0, 2)
         ORDER BY rank, id LIMIT 1",
    )
    .await
}

pub async fn worst_ready<T: Tx>(tx: &T, limit: i64) -> Result<Option<Candidate>, T::Error> {
    candidate(
        tx,
        limit,
        "SELECT id, lane, rank FROM ostler.task /*by keyed*/ WHERE limit_id = $1 AND phase = 0 AND phase IN (0, 2)
         ORDER BY rank DESC, id DESC LIMIT 1",
    )
    .await
}

async fn candidate<T: Tx>(tx: &T, limit: i64, sql: &'static str) -> Result<Option<Candidate>, T::Error> {
    let Some(row) = tx.row(sql, params![limit]).await? else { return Ok(None) };
    Ok(Some(Candidate { slot: row.get(0)?, lane: row.get(1)?, rank: row.get(2)? }))
}

/// Parks a ready task, for this reason.
pub async fn park<T: Tx>(tx: &mut T, limit: i64, task: &Candidate, why: Wait) -> Result<(), T::Error> {
    tx.exec(
        "UPDATE ostler.task SET phase = $2, why = $3 WHERE id = $1",
        params![task.slot, Phase::Parked, ordinal(&Wait::ALL, &why)],
    )
    .await?;
    moved(tx, task.lane, Some(limit), Phase::Ready, Phase::Parked).await
}

/// Makes a parked task ready.
pub async fn let_in<T: Tx>(tx: &mut T, limit: i64, task: &Candidate) -> Result<(), T::Error> {
    tx.exec("UPDATE ostler.task SET phase = $2 WHERE id = $1", params![task.slot, Phase::Ready]).await?;
    tx.ring();
    moved(tx, task.lane, Some(limit), Phase::Parked, Phase::Ready).await
}
