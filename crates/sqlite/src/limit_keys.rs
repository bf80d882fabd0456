//! Limit keys: where a key's tasks stand in line, and how many of them may be ready or leased at once.

use ostler_core::{Admission, Fairness, Priority, Rank, Timestamp, Wait, admit, place};
use rusqlite::{OptionalExtension, params};

use crate::gates::{self, KeyRules};
use crate::row::{Phase, ordinal};
use crate::tx::{Sql, Tx};

/// Keeps the place of tasks without a limit key, in queues where others have one.
pub(crate) const NO_KEY: &str = "";

/// A limit key of a queue.
#[derive(Clone, Copy)]
pub(crate) struct LimitKey {
    pub(crate) id: i64,
    /// Where its last task was laid.
    last: Option<i64>,
}

/// The limit key of a queue, made if need be.
pub(crate) fn limit(tx: &mut Tx<'_>, queue: i64, key: &str) -> Sql<LimitKey> {
    let found = tx
        .prepare("SELECT id, last FROM limits WHERE queue = ?1 AND key = ?2")?
        .query_row(params![queue, key], |row| Ok(LimitKey { id: row.get(0)?, last: row.get(1)? }))
        .optional()?;
    match found {
        Some(limit) => Ok(limit),
        None => {
            let id =
                tx.prepare("INSERT INTO limits(queue, key) VALUES(?1, ?2)")?.insert(params![queue, key])?;
            Ok(LimitKey { id, last: None })
        }
    }
}

/// The limit key of a task that has one.
pub(crate) fn limit_of(tx: &mut Tx<'_>, id: i64) -> Sql<LimitKey> {
    let last = tx.prepare("SELECT last FROM limits WHERE id = ?1")?.query_row([id], |row| row.get(0))?;
    Ok(LimitKey { id, last })
}

/// A task leaves its limit key. Whoever comes back later with a key that no task has begins like anybody new.
pub(crate) fn leave(tx: &mut Tx<'_>, limit: i64) -> Sql<KeyRelease> {
    tx.prepare("UPDATE limits SET tasks = tasks - 1 WHERE id = ?1")?.execute([limit])?;
    gates::forget_key(tx, limit)?;
    let kept = tx.prepare("SELECT 1 FROM limits WHERE id = ?1")?.exists([limit])?;
    Ok(if kept { KeyRelease::Kept } else { KeyRelease::Gone })
}

/// What became of a limit key that a task left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRelease {
    /// Others have it, or there is something to remember about it.
    Kept,
    Gone,
}

/// The rank of a task that may first run at `arrival`, as of now, and where its key's last task lies from now on.
pub(crate) fn rank(
    tx: &mut Tx<'_>,
    queue: &str,
    limit: Option<LimitKey>,
    arrival: Timestamp,
    priority: Priority,
) -> Sql<Rank> {
    let found = tx.queue_or_new(queue)?;
    let (id, clock) = (found.id, found.clock);
    let kept = match limit {
        Some(limit) => Some(limit),
        // The usual case: a queue without keys keeps nothing.
        None if clock.0.is_none() => None,
        None => Some(self::limit(tx, id, NO_KEY)?),
    };
    let last = kept.and_then(|kept| kept.last);
    let turn = if limit.is_some() { Fairness::Keyed { last } } else { Fairness::Unkeyed { last } };
    let placement = place(clock, turn, arrival, priority);
    tx.set_clock(queue, placement.clock)?;
    if let (Some(kept), Some(laid)) = (kept, placement.last) {
        tx.prepare("UPDATE limits SET last = ?2 WHERE id = ?1")?.execute(params![kept.id, laid])?;
    }
    Ok(placement.rank)
}

/// Lets in what the gate of a limit key lets through. Where it is open, the places of the key go to its best-ranked tasks:
/// what is ready or leased does not exceed the cap, and no parked task outranks a ready one. Each call moves a task or two,
/// whatever the length of the line; what waited for a gate comes in small blocks.
pub(crate) fn settle(tx: &mut Tx<'_>, limit: Option<i64>, rules: &KeyRules) -> Sql<()> {
    let Some(limit) = limit else { return Ok(()) };
    if rules.may_gate() && !gates::settle(tx, limit, rules)? {
        return Ok(());
    }
    match rules.cap {
        Some(cap) => settle_by_cap(tx, limit, cap),
        None => Ok(()),
    }
}

fn settle_by_cap(tx: &mut Tx<'_>, limit: i64, cap: u32) -> Sql<()> {
    loop {
        let used: i64 =
            tx.prepare("SELECT used FROM limits WHERE id = ?1")?.query_row([limit], |row| row.get(0))?;
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        let (best, worst) = match admit(Some(cap), used) {
            Admission::Admit => {
                let Some(best) = best_parked(tx, limit)? else { return Ok(()) };
                let_in(tx, limit, &best)?;
                continue;
            }
            Admission::Park if used > cap => {
                let Some(worst) = worst_ready(tx, limit)? else { return Ok(()) };
                park(tx, limit, &worst, Wait::Concurrency)?;
                continue;
            }
            Admission::Park => (best_parked(tx, limit)?, worst_ready(tx, limit)?),
        };
        // Every place is taken: by the best?
        match (best, worst) {
            (Some(best), Some(worst)) if (best.rank, best.slot) < (worst.rank, worst.slot) => {
                park(tx, limit, &worst, Wait::Concurrency)?;
                let_in(tx, limit, &best)?;
            }
            (Some(_) | None, Some(_) | None) => return Ok(()),
        }
    }
}

/// Settles every key of a queue whose rules were changed.
pub(crate) fn settle_queue(tx: &mut Tx<'_>, queue: i64, rules: KeyRules) -> Sql<()> {
    let limits: Vec<i64> = {
        let mut statement = tx.prepare("SELECT id FROM limits WHERE queue = ?1")?;
        statement.query_map([queue], |row| row.get(0))?.collect::<Sql<_>>()?
    };
    // Without a cap nothing is parked for it.
    let rules = KeyRules { cap: Some(rules.cap.unwrap_or(u32::MAX)), ..rules.looked_at() };
    limits.into_iter().try_for_each(|limit| settle(tx, Some(limit), &rules))
}

/// A queued task of a key.
pub(crate) struct Candidate {
    pub(crate) slot: i64,
    pub(crate) lane: i64,
    pub(crate) rank: i64,
}

fn best_parked(tx: &Tx<'_>, limit: i64) -> Sql<Option<Candidate>> {
    candidate(
        tx,
        limit,
        "SELECT id, lane, rank FROM task INDEXED BY keyed WHERE limit_id = ?1 AND phase = 2 AND phase IN (0, 2)
         ORDER BY rank, id LIMIT 1",
    )
}

pub(crate) fn worst_ready(tx: &Tx<'_>, limit: i64) -> Sql<Option<Candidate>> {
    candidate(
        tx,
        limit,
        "SELECT id, lane, rank FROM task INDEXED BY keyed WHERE limit_id = ?1 AND phase = 0 AND phase IN (0, 2)
         ORDER BY rank DESC, id DESC LIMIT 1",
    )
}

fn candidate(tx: &Tx<'_>, limit: i64, sql: &str) -> Sql<Option<Candidate>> {
    let read =
        |row: &rusqlite::Row<'_>| Ok(Candidate { slot: row.get(0)?, lane: row.get(1)?, rank: row.get(2)? });
    tx.prepare(sql)?.query_row([limit], read).optional()
}

/// A ready task is parked, for this reason.
pub(crate) fn park(tx: &mut Tx<'_>, limit: i64, task: &Candidate, why: Wait) -> Sql<()> {
    tx.prepare("UPDATE task SET phase = ?2, why = ?3 WHERE id = ?1")?.execute(params![
        task.slot,
        Phase::Parked,
        ordinal(&Wait::ALL, &why)
    ])?;
    tx.moved(task.lane, Some(limit), Phase::Ready, Phase::Parked)
}

/// A parked task is ready.
pub(crate) fn let_in(tx: &mut Tx<'_>, limit: i64, task: &Candidate) -> Sql<()> {
    tx.prepare("UPDATE task SET phase = ?2 WHERE id = ?1")?.execute(params![task.slot, Phase::Ready])?;
    tx.ring();
    tx.moved(task.lane, Some(limit), Phase::Parked, Phase::Ready)
}
