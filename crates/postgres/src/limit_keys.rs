//! Limit keys: where a key's tasks stand in line, and how many of them may be ready or leased at once. Whoever is here holds the
//! queue alone.

use ostler_core::{Admission, Fairness, Priority, Rank, Timestamp, Wait, admit, place};

use crate::conn::get;
use crate::fault::Sql;
use crate::gates::{self, KeyRules};
use crate::row::{Phase, code};
use crate::tx::Tx;

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
pub(crate) async fn limit(tx: &Tx, queue: i64, key: &str) -> Sql<LimitKey> {
    let found = tx
        .conn
        .row("SELECT id, last FROM ostler.limits WHERE queue = $1 AND key = $2", &[&queue, &key])
        .await?;
    match found {
        Some(row) => Ok(LimitKey { id: get(&row, 0)?, last: get(&row, 1)? }),
        None => {
            let row = tx
                .conn
                .one("INSERT INTO ostler.limits(queue, key) VALUES($1, $2) RETURNING id", &[&queue, &key])
                .await?;
            Ok(LimitKey { id: get(&row, 0)?, last: None })
        }
    }
}

/// The limit key of a task that has one.
pub(crate) async fn limit_of(tx: &Tx, limit: Option<i64>) -> Sql<Option<LimitKey>> {
    let Some(id) = limit else { return Ok(None) };
    let row = tx.conn.one("SELECT last FROM ostler.limits WHERE id = $1", &[&id]).await?;
    Ok(Some(LimitKey { id, last: get(&row, 0)? }))
}

/// A task leaves its limit key. Whoever comes back later with a key that no task has begins like anybody new.
pub(crate) async fn leave(tx: &mut Tx, limit: i64) -> Sql<KeyRelease> {
    tx.conn.exec("UPDATE ostler.limits SET tasks = tasks - 1 WHERE id = $1", &[&limit]).await?;
    gates::forget_key(tx, limit).await?;
    let kept = tx.conn.exists("SELECT 1 FROM ostler.limits WHERE id = $1", &[&limit]).await?;
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
pub(crate) async fn rank(
    tx: &mut Tx,
    queue: &str,
    limit: Option<LimitKey>,
    arrival: Timestamp,
    priority: Priority,
) -> Sql<Rank> {
    let found = tx.queue_or_new(queue).await?;
    let (id, clock) = (found.id, found.clock);
    let kept = match limit {
        Some(limit) => Some(limit),
        // The usual case: a queue without keys keeps nothing.
        None if clock.0.is_none() => None,
        None => Some(self::limit(tx, id, NO_KEY).await?),
    };
    let last = kept.and_then(|kept| kept.last);
    let turn = if limit.is_some() { Fairness::Keyed { last } } else { Fairness::Unkeyed { last } };
    let placement = place(clock, turn, arrival, priority);
    tx.set_clock(queue, placement.clock).await?;
    if let (Some(kept), Some(laid)) = (kept, placement.last) {
        tx.conn.exec("UPDATE ostler.limits SET last = $2 WHERE id = $1", &[&kept.id, &laid]).await?;
    }
    Ok(placement.rank)
}

/// Lets in what the gate of a limit key lets through. Where it is open, the places of the key go to its best-ranked tasks:
/// what is ready or leased does not exceed the cap, and no parked task outranks a ready one. Each call moves a task or two,
/// whatever the length of the line; what waited for a gate comes in small blocks.
pub(crate) async fn settle(tx: &mut Tx, limit: Option<i64>, rules: &KeyRules) -> Sql<()> {
    let Some(limit) = limit else { return Ok(()) };
    if rules.may_gate() && !gates::settle(tx, limit, rules).await? {
        return Ok(());
    }
    match rules.cap {
        Some(cap) => settle_by_cap(tx, limit, cap).await,
        None => Ok(()),
    }
}

async fn settle_by_cap(tx: &mut Tx, limit: i64, cap: u32) -> Sql<()> {
    loop {
        let row = tx.conn.one("SELECT used FROM ostler.limits WHERE id = $1", &[&limit]).await?;
        let used = u32::try_from(get::<i64>(&row, 0)?).unwrap_or(u32::MAX);
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
            Admission::Park => (best_parked(tx, limit).await?, worst_ready(tx, limit).await?),
        };
        // Every place is taken: by the best?
        match (best, worst) {
            (Some(best), Some(worst)) if (best.rank, best.slot) < (worst.rank, worst.slot) => {
                park(tx, limit, &worst, Wait::Concurrency).await?;
                let_in(tx, limit, &best).await?;
            }
            (Some(_) | None, Some(_) | None) => return Ok(()),
        }
    }
}

/// Settles every key of a queue whose rules were changed.
pub(crate) async fn settle_queue(tx: &mut Tx, queue: i64, rules: KeyRules) -> Sql<()> {
    let rows = tx.conn.rows("SELECT id FROM ostler.limits WHERE queue = $1 ORDER BY id", &[&queue]).await?;
    // Without a cap nothing is parked for it.
    let rules = KeyRules { cap: Some(rules.cap.unwrap_or(u32::MAX)), ..rules.looked_at() };
    for row in &rows {
        settle(tx, Some(get(row, 0)?), &rules).await?;
    }
    Ok(())
}

/// A queued task of a key.
pub(crate) struct Candidate {
    pub(crate) slot: i64,
    pub(crate) lane: i64,
    pub(crate) rank: i64,
}

async fn best_parked(tx: &Tx, limit: i64) -> Sql<Option<Candidate>> {
    candidate(
        tx,
        limit,
        "SELECT id, lane, rank FROM ostler.task WHERE limit_id = $1 AND phase = 2 AND phase IN (0, 2)
         ORDER BY rank, id LIMIT 1",
    )
    .await
}

pub(crate) async fn worst_ready(tx: &Tx, limit: i64) -> Sql<Option<Candidate>> {
    candidate(
        tx,
        limit,
        "SELECT id, lane, rank FROM ostler.task WHERE limit_id = $1 AND phase = 0 AND phase IN (0, 2)
         ORDER BY rank DESC, id DESC LIMIT 1",
    )
    .await
}

async fn candidate(tx: &Tx, limit: i64, sql: &str) -> Sql<Option<Candidate>> {
    let Some(row) = tx.conn.row(sql, &[&limit]).await? else { return Ok(None) };
    Ok(Some(Candidate { slot: get(&row, 0)?, lane: get(&row, 1)?, rank: get(&row, 2)? }))
}

/// A ready task is parked, for this reason.
pub(crate) async fn park(tx: &mut Tx, limit: i64, task: &Candidate, why: Wait) -> Sql<()> {
    tx.conn
        .exec(
            "UPDATE ostler.task SET phase = $2, why = $3 WHERE id = $1",
            &[&task.slot, &Phase::Parked.ordinal(), &code(&Wait::ALL, &why)],
        )
        .await?;
    tx.moved(task.lane, Some(limit), Phase::Ready, Phase::Parked).await
}

/// A parked task is ready.
pub(crate) async fn let_in(tx: &mut Tx, limit: i64, task: &Candidate) -> Sql<()> {
    tx.conn
        .exec("UPDATE ostler.task SET phase = $2 WHERE id = $1", &[&task.slot, &Phase::Ready.ordinal()])
        .await?;
    tx.ring();
    tx.moved(task.lane, Some(limit), Phase::Parked, Phase::Ready).await
}
