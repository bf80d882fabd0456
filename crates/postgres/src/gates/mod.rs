//! Gates: which tasks of a limit key are let in, and when its gate is asked again. Whoever is here holds the queue alone.
//!
//! `claim_gate.rs` is what a claim asks; `news.rs` is what ends and settings do to a gate.

mod claim_gate;
mod feedback;

use std::sync::Arc;

use ostler_core::{AHEAD, Closed, Gate, GateRules, Readiness, State, Timestamp, Wait, arrival};
use tokio_postgres::Row;

pub(crate) use claim_gate::{ClaimGate, ClaimVerdict, GateQuestion};
pub(crate) use feedback::{GateFeedback, change, ended, forget_key, sweep};

use crate::codec::extras_from;
use crate::conn::{Conn, get, most};
use crate::fault::Sql;
use crate::gate_codec::{gate_from, gate_text};
use crate::limit_keys::{self, Candidate};
use crate::queue::QueueRow;
use crate::row::{code, from_ordinal};
use crate::tx::Tx;

/// Stands in the column for a key that is shut until something changes.
const NO_MOMENT: i64 = i64::MAX;

/// What holds for the keys of a queue.
pub(crate) struct KeyRules {
    pub(crate) queue: Arc<str>,
    pub(crate) cap: Option<u32>,
    pub(crate) gate: GateRules,
    /// Whether any of its keys may be shut. Where none is, no key has to be looked at.
    pub(crate) any_shut: bool,
}

impl KeyRules {
    pub(crate) fn of(queue: &QueueRow) -> Self {
        Self {
            queue: Arc::clone(&queue.name),
            cap: queue.settings.key_concurrency,
            gate: queue.settings.key_rules(),
            any_shut: queue.any_shut,
        }
    }

    /// What holds in a queue about which nothing was ever said.
    pub(crate) fn none(queue: &str) -> Self {
        Self::of(&QueueRow::new(0, queue))
    }

    /// Whether the gate of a key may have a say.
    pub(crate) const fn may_gate(&self) -> bool {
        self.any_shut || !self.gate.is_none()
    }

    /// The same, for keys whose gates have just changed.
    pub(crate) fn looked_at(self) -> Self {
        Self { any_shut: true, ..self }
    }
}

/// The gate of a key, as it is in the database.
struct KeyGate {
    gate: Gate,
    shut: Option<Closed>,
    used: i64,
}

async fn read_key(tx: &Tx, limit: i64) -> Sql<KeyGate> {
    let row = tx
        .conn
        .one("SELECT gate, used, shut_why, shut_until FROM ostler.limits WHERE id = $1", &[&limit])
        .await?;
    Ok(KeyGate { gate: gate_from(get(&row, 0)?), used: get(&row, 1)?, shut: shut_from(&row, 2)? })
}

async fn write_gate(tx: &Tx, limit: i64, gate: &Gate) -> Sql<()> {
    tx.conn.exec("UPDATE ostler.limits SET gate = $2 WHERE id = $1", &[&limit, &gate_text(gate)]).await?;
    Ok(())
}

/// What a key is shut for, from two columns.
pub(crate) fn shut_from(row: &Row, first: usize) -> Sql<Option<Closed>> {
    let Some(until) = get::<Option<i64>>(row, first + 1)? else { return Ok(None) };
    let until = (until != NO_MOMENT).then(|| Timestamp::from_millis(until));
    // A reason that somebody edited by hand is as good as any.
    let why = get::<Option<i16>>(row, first)?.and_then(|why| from_ordinal(&Wait::ALL, why).ok());
    Ok(Some(Closed { why: why.unwrap_or(Wait::RateLimited), until }))
}

// ---- what is ready of a key ---------------------------------------------------------------------------

/// The state of a task that comes (back) into its queue: it is ready, or waits for its time or its key.
pub(crate) async fn arrived(
    tx: &Tx,
    rules: &KeyRules,
    limit: Option<i64>,
    run_at: Timestamp,
    why: Wait,
) -> Sql<State> {
    let (readiness, why) = arrival(run_at, tx.now, why);
    let shut = match (readiness, limit) {
        (Readiness::Ready, Some(limit)) if rules.any_shut => read_key(tx, limit).await?.shut,
        (Readiness::Ready | Readiness::Waiting | Readiness::Parked, _) => None,
    };
    Ok(match shut {
        Some(shut) => State::Queued { readiness: Readiness::Parked, why: shut.why, run_at },
        None => State::Queued { readiness, why, run_at },
    })
}

/// Settles the key of a task that came into its queue. A key that is shut lets nobody in because of one more who waits.
pub(crate) async fn settle_arrival(
    tx: &mut Tx,
    rules: &KeyRules,
    limit: Option<i64>,
    state: &State,
) -> Sql<()> {
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

/// Lets in what the gate of a key lets through, best rank first, a little at a time. Answers whether the cap alone counts now.
pub(crate) async fn settle(tx: &mut Tx, limit: i64, rules: &KeyRules) -> Sql<bool> {
    let now = tx.now;
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

async fn count_ready(tx: &Tx, limit: i64) -> Sql<usize> {
    let row = tx
        .conn
        .one(
            "SELECT count(*) FROM (SELECT 1 FROM ostler.task
             WHERE limit_id = $1 AND phase = 0 AND phase IN (0, 2) LIMIT $2) ready",
            &[&limit, &most(AHEAD)],
        )
        .await?;
    Ok(usize::try_from(get::<i64>(&row, 0)?).unwrap_or(AHEAD))
}

/// The best-ranked parked tasks of a key, with what they cost where that matters.
async fn best_parked(tx: &Tx, limit: i64, wanted: usize, rules: &KeyRules) -> Sql<Vec<(Candidate, u32)>> {
    let costs_matter = !rules.gate.rates.is_empty();
    let rows = tx
        .conn
        .rows(
            "SELECT id, lane, rank, extras FROM ostler.task WHERE limit_id = $1 AND phase = 2 AND phase IN (0, 2)
             ORDER BY rank, id LIMIT $2",
            &[&limit, &most(wanted)],
        )
        .await?;
    let read = |row: &Row| {
        let task = Candidate { slot: get(row, 0)?, lane: get(row, 1)?, rank: get(row, 2)? };
        let extras = if costs_matter { get(row, 3)? } else { None };
        // What cannot be understood is let in like any other; a claim leaves it where it is, and `show` says why.
        let cost = extras_from(extras, None).map_or(1, |extras| extras.cost);
        Ok((task, cost))
    };
    rows.iter().map(read).collect()
}

async fn set_shut(
    tx: &mut Tx,
    limit: i64,
    rules: &KeyRules,
    before: Option<Closed>,
    after: Option<Closed>,
) -> Sql<()> {
    if before == after {
        return Ok(());
    }
    tx.alone(&rules.queue)?;
    let until = after.map(|shut| shut.until.map_or(NO_MOMENT, Timestamp::millis));
    let why = after.map(|shut| code(&Wait::ALL, &shut.why));
    tx.conn
        .exec(
            "UPDATE ostler.limits SET shut_why = $2, shut_until = $3 WHERE id = $1",
            &[&limit, &why, &until],
        )
        .await?;
    if let (Some(before), Some(after)) = (before, after)
        && after.until.is_some_and(|after| before.until.is_none_or(|before| after < before))
    {
        // Whoever was told a later moment should ask again.
        tx.ring();
    }
    let queue = tx.queue_or_new(&rules.queue).await?.id;
    let any_shut = after.is_some() || any_shut(&tx.conn, queue).await?;
    tx.queue_or_new(&rules.queue).await?.any_shut = any_shut;
    Ok(())
}

/// Whether any key of a queue is shut.
async fn any_shut(conn: &Conn, queue: i64) -> Sql<bool> {
    conn.exists("SELECT 1 FROM ostler.limits WHERE queue = $1 AND shut_until IS NOT NULL LIMIT 1", &[&queue])
        .await
}

// ---- keys whose time has come -------------------------------------------------------------------------

/// Settles the keys whose time has come, those first that came first. Answers how many there were.
pub(crate) async fn settle_due(tx: &mut Tx, wanted: usize) -> Sql<usize> {
    let rows = tx
        .conn
        .rows(
            "SELECT l.id, q.name FROM ostler.limits l JOIN ostler.queue q ON q.id = l.queue
             WHERE l.shut_until <= $1 ORDER BY l.shut_until, l.key, q.name LIMIT $2",
            &[&tx.now.millis(), &most(wanted)],
        )
        .await?;
    for row in &rows {
        let queue: String = get(row, 1)?;
        tx.alone(&queue)?;
        let rules = tx.key_rules(&queue)?.looked_at();
        limit_keys::settle(tx, Some(get(row, 0)?), &rules).await?;
    }
    Ok(rows.len())
}

/// When a key is to be asked again, whichever it is.
pub(crate) async fn next_due(conn: &Conn) -> Sql<Option<i64>> {
    let row = conn.one("SELECT min(shut_until) FROM ostler.limits WHERE shut_until IS NOT NULL", &[]).await?;
    Ok(get::<Option<i64>>(&row, 0)?.filter(|until| *until != NO_MOMENT))
}
