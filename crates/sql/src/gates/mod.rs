//! Gates: which tasks of a limit key are admitted, and when its gate is checked again. Callers hold the exclusive lock of the queue.
//!
//! `claim_gate.rs`: checks in a claim. `feedback.rs`: outcomes and settings.

mod claim_gate;
mod feedback;

use ostler_core::{AHEAD, Closed, Gate, Readiness, State, Timestamp, Wait, arrival};

pub use claim_gate::{ClaimGate, ClaimVerdict, GateQuestion};
pub use feedback::{GateFeedback, change, ended, forget_key, sweep};

use crate::codec::extras_from;
use crate::gate_codec::{gate_from, gate_text};
use crate::limit_keys::{self, Candidate};
use crate::params;
use crate::phase::{from_ordinal, ordinal};
use crate::queue::KeyRules;
use crate::tx::{Tx, exists, key_rules, one};
use crate::value::Row;

/// The value in the column for a key that is closed until something changes.
const NO_TIME: i64 = i64::MAX;

/// The gate of a key, as stored.
struct KeyGate {
    gate: Gate,
    shut: Option<Closed>,
    used: i64,
}

async fn read_key<T: Tx>(tx: &T, limit: i64) -> Result<KeyGate, T::Error> {
    let row =
        one(tx, "SELECT gate, used, shut_why, shut_until FROM ostler.limits WHERE id = $1", params![limit])
            .await?;
    Ok(KeyGate { gate: gate_from(row.get(0)?), used: row.get(1)?, shut: shut_from(&row, 2)? })
}

async fn write_gate<T: Tx>(tx: &T, limit: i64, gate: &Gate) -> Result<(), T::Error> {
    tx.exec("UPDATE ostler.limits SET gate = $2 WHERE id = $1", params![limit, gate_text(gate)]).await?;
    Ok(())
}

/// Why and until when the gate of a key is closed, from two columns.
///
/// # Errors
/// When a column cannot be read.
pub fn shut_from<R: Row>(row: &R, first: usize) -> Result<Option<Closed>, R::Error> {
    let Some(until) = row.get::<Option<i64>>(first + 1)? else { return Ok(None) };
    let until = (until != NO_TIME).then(|| Timestamp::from_millis(until));
    // A reason that was edited by hand is as good as any.
    let why = row.get::<Option<i64>>(first)?.and_then(|why| from_ordinal(&Wait::ALL, why).ok());
    Ok(Some(Closed { why: why.unwrap_or(Wait::RateLimited), until }))
}

// ---- what is ready of a key ---------------------------------------------------------------------------

/// The state of a task that enters its queue (again): ready, or waiting for its time or its key.
pub async fn arrived<T: Tx>(
    tx: &T,
    rules: &KeyRules,
    limit: Option<i64>,
    run_at: Timestamp,
    why: Wait,
) -> Result<State, T::Error> {
    let (readiness, why) = arrival(run_at, tx.now(), why);
    let shut = match (readiness, limit) {
        (Readiness::Ready, Some(limit)) if rules.any_shut => read_key(tx, limit).await?.shut,
        (Readiness::Ready | Readiness::Waiting | Readiness::Parked, _) => None,
    };
    Ok(match shut {
        Some(shut) => State::Queued { readiness: Readiness::Parked, why: shut.why, run_at },
        None => State::Queued { readiness, why, run_at },
    })
}

/// Settles the key of a task that entered its queue. One more waiting task does not open a closed key.
pub async fn settle_arrival<T: Tx>(
    tx: &mut T,
    rules: &KeyRules,
    limit: Option<i64>,
    state: &State,
) -> Result<(), T::Error> {
    match state {
        State::Queued { readiness: Readiness::Parked, .. } => Ok(()),
        State::Queued { readiness: Readiness::Waiting, .. } if rules.any_shut => match limit {
            Some(id) if read_key(tx, id).await?.shut.is_some() => Ok(()),
            Some(_) | None => limit_keys::settle(tx, limit, rules).await,
        },
        State::Queued { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => limit_keys::settle(tx, limit, rules).await,
    }
}

/// Admits what the gate of a key lets through, best rank first, in small blocks. Returns whether only the cap limits the key now.
pub async fn settle<T: Tx>(tx: &mut T, limit: i64, rules: &KeyRules) -> Result<bool, T::Error> {
    let now = tx.now();
    let mut key = read_key(tx, limit).await?;
    let gated = !rules.gate.is_none() || key.shut.is_some() || key.gate.closed(&rules.gate, now).is_some();
    if !gated {
        return Ok(true);
    }
    let cap = rules.cap.map_or(i64::MAX, i64::from);
    while key.used > cap
        && let Some(worst) = limit_keys::worst_ready(tx, limit).await?
    {
        limit_keys::park(tx, limit, &worst, Wait::Concurrency).await?;
        key.used -= 1;
    }
    let ready = count_ready(tx, limit).await?;
    let free = usize::try_from(cap.saturating_sub(key.used)).unwrap_or(0).min(AHEAD - ready);
    let parked = best_parked(tx, limit, free + 1, rules).await?;
    let costs: Vec<u32> = parked.iter().take(free).map(|(_, cost)| *cost).collect();
    let line = key.gate.line(&rules.gate, ready, &costs, now);
    for (task, _) in parked.iter().take(line.let_in) {
        limit_keys::let_in(tx, limit, task).await?;
    }
    let long = parked.len() > line.let_in && ready + line.let_in >= AHEAD;
    let why = key.shut.map_or(Wait::RateLimited, |shut| shut.why);
    let shut = line.shut.or_else(|| long.then_some(Closed { why, until: None }));
    set_shut(tx, limit, rules, key.shut, shut).await?;
    Ok(shut.is_none())
}

async fn count_ready<T: Tx>(tx: &T, limit: i64) -> Result<usize, T::Error> {
    let row = one(
        tx,
        "SELECT count(*) FROM (SELECT 1 FROM ostler.task /*by keyed*/
             WHERE limit_id = $1 AND phase = 0 AND phase IN (0, 2) LIMIT $2) ready",
        params![limit, AHEAD],
    )
    .await?;
    Ok(usize::try_from(row.get::<i64>(0)?).unwrap_or(AHEAD))
}

/// The best-ranked parked tasks of a key, with their costs where the key has rates.
async fn best_parked<T: Tx>(
    tx: &T,
    limit: i64,
    wanted: usize,
    rules: &KeyRules,
) -> Result<Vec<(Candidate, u32)>, T::Error> {
    let costs_matter = !rules.gate.rates.is_empty();
    let rows = tx.rows(
            "SELECT id, lane, rank, extras FROM ostler.task /*by keyed*/ WHERE limit_id = $1 AND phase = 2 AND phase IN (0, 2)
             ORDER BY rank, id LIMIT $2",
            params![limit, wanted],
        )
        .await?;
    let read = |row: &T::Row| {
        let task = Candidate { slot: row.get(0)?, lane: row.get(1)?, rank: row.get(2)? };
        let extras = if costs_matter { row.get(3)? } else { None };
        // A row that cannot be read is admitted like any other; a claim leaves it where it is, and `show` says why.
        let cost = extras_from(extras, None).map_or(1, |extras| extras.cost);
        Ok((task, cost))
    };
    rows.iter().map(read).collect()
}

async fn set_shut<T: Tx>(
    tx: &mut T,
    limit: i64,
    rules: &KeyRules,
    before: Option<Closed>,
    after: Option<Closed>,
) -> Result<(), T::Error> {
    if before == after {
        return Ok(());
    }
    tx.exclusive(&rules.queue)?;
    let until = after.map(|shut| shut.until.map_or(NO_TIME, Timestamp::millis));
    let why = after.map(|shut| ordinal(&Wait::ALL, &shut.why));
    tx.exec(
        "UPDATE ostler.limits SET shut_why = $2, shut_until = $3 WHERE id = $1",
        params![limit, why, until],
    )
    .await?;
    if let (Some(before), Some(after)) = (before, after)
        && after.until.is_some_and(|after| before.until.is_none_or(|before| after < before))
    {
        // Claims that wait for a later time ask again.
        tx.ring();
    }
    let queue = tx.queue_or_new(&rules.queue).await?.id;
    let any_shut = after.is_some() || exists(tx, ANY_SHUT, params![queue]).await?;
    tx.queue_or_new(&rules.queue).await?.any_shut = any_shut;
    Ok(())
}

/// Whether the gate of any key of a queue is closed.
pub const ANY_SHUT: &str =
    "SELECT 1 FROM ostler.limits /*by shut*/ WHERE queue = $1 AND shut_until IS NOT NULL LIMIT 1";

// ---- keys whose time has come -------------------------------------------------------------------------

/// Settles the keys that are due, the earliest first. Returns how many there were.
pub async fn settle_due<T: Tx>(tx: &mut T, wanted: usize) -> Result<usize, T::Error> {
    let rows = tx
        .rows(
            "SELECT l.id, q.name FROM ostler.limits l /*by shut_due*/ JOIN ostler.queue q ON q.id = l.queue
             WHERE l.shut_until <= $1 ORDER BY l.shut_until, l.key, q.name LIMIT $2",
            params![tx.now().millis(), wanted],
        )
        .await?;
    for row in &rows {
        let queue: String = row.get(1)?;
        tx.exclusive(&queue)?;
        let rules = key_rules(tx, &queue).await?.looked_at();
        limit_keys::settle(tx, Some(row.get(0)?), &rules).await?;
    }
    Ok(rows.len())
}

/// When the gate of some key is due next.
pub const NEXT_DUE: &str =
    "SELECT min(shut_until) FROM ostler.limits /*by shut_due*/ WHERE shut_until IS NOT NULL";

/// The answer to [`NEXT_DUE`], without the mark for "until something changes".
#[must_use]
pub fn next_due(first: Option<i64>) -> Option<i64> {
    first.filter(|until| *until != NO_TIME)
}
