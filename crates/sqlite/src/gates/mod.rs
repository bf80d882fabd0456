//! Gates: which tasks of a limit key are let in, and when its gate is asked again.
//!
//! `claim_gate.rs` is what a claim asks; `news.rs` is what ends and settings do to a gate.

mod claim_gate;
mod feedback;

use std::sync::Arc;

use ostler_core::{AHEAD, Closed, Gate, GateRules, Readiness, State, Timestamp, Wait, arrival};
use rusqlite::{Connection, Row, params};

pub(crate) use claim_gate::{ClaimGate, ClaimVerdict, GateQuestion};
pub(crate) use feedback::{GateFeedback, change, ended, forget_key, sweep};

use crate::codec::extras_from;
use crate::gate_codec::{gate_from, gate_text};
use crate::limit_keys::{self, Candidate};
use crate::row::{from_ordinal, ordinal};
use crate::tx::{QueueRow, Sql, Tx};

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

    /// Whether the gate of a key may have a say.
    pub(crate) const fn may_gate(&self) -> bool {
        self.any_shut || !self.gate.is_none()
    }

    /// The same, for keys whose gates have just changed.
    pub(crate) fn looked_at(self) -> Self {
        Self { any_shut: true, ..self }
    }
}

/// The gate of a key, as it is in the file.
struct KeyGate {
    gate: Gate,
    shut: Option<Closed>,
    used: i64,
}

fn read_key(tx: &Tx<'_>, limit: i64) -> Sql<KeyGate> {
    tx.prepare("SELECT gate, used, shut_why, shut_until FROM limits WHERE id = ?1")?
        .query_row([limit], |row| {
            Ok(KeyGate { gate: gate_from(row.get(0)?), used: row.get(1)?, shut: shut_from(row, 2)? })
        })
}

fn write_gate(tx: &Tx<'_>, limit: i64, gate: &Gate) -> Sql<()> {
    tx.prepare("UPDATE limits SET gate = ?2 WHERE id = ?1")?.execute(params![limit, gate_text(gate)])?;
    Ok(())
}

/// What a key is shut for, from two columns.
pub(crate) fn shut_from(row: &Row<'_>, first: usize) -> Sql<Option<Closed>> {
    let Some(until) = row.get::<_, Option<i64>>(first + 1)? else { return Ok(None) };
    let until = (until != NO_MOMENT).then(|| Timestamp::from_millis(until));
    // A reason that somebody edited by hand is as good as any.
    let why = from_ordinal(&Wait::ALL, row.get(first)?).unwrap_or(Wait::RateLimited);
    Ok(Some(Closed { why, until }))
}

// ---- what is ready of a key ---------------------------------------------------------------------------

/// The state of a task that comes (back) into its queue: it is ready, or waits for its time or its key.
pub(crate) fn arrived(
    tx: &Tx<'_>,
    rules: &KeyRules,
    limit: Option<i64>,
    run_at: Timestamp,
    why: Wait,
) -> Sql<State> {
    let (readiness, why) = arrival(run_at, tx.now, why);
    let shut = match (readiness, limit) {
        (Readiness::Ready, Some(limit)) if rules.any_shut => read_key(tx, limit)?.shut,
        (Readiness::Ready | Readiness::Waiting | Readiness::Parked, _) => None,
    };
    Ok(match shut {
        Some(shut) => State::Queued { readiness: Readiness::Parked, why: shut.why, run_at },
        None => State::Queued { readiness, why, run_at },
    })
}

/// Settles the key of a task that came into its queue. A key that is shut lets nobody in because of one more who waits.
pub(crate) fn settle_arrival(
    tx: &mut Tx<'_>,
    rules: &KeyRules,
    limit: Option<i64>,
    state: &State,
) -> Sql<()> {
    match state {
        State::Queued { readiness: Readiness::Parked, .. } => Ok(()),
        State::Queued { readiness: Readiness::Waiting, .. } if rules.any_shut => match limit {
            Some(id) if read_key(tx, id)?.shut.is_some() => Ok(()),
            Some(_) | None => limit_keys::settle(tx, limit, rules),
        },
        State::Queued { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => limit_keys::settle(tx, limit, rules),
    }
}

/// Lets in what the gate of a key lets through, best rank first, a little at a time. Answers whether the cap alone counts now.
pub(crate) fn settle(tx: &mut Tx<'_>, limit: i64, rules: &KeyRules) -> Sql<bool> {
    let now = tx.now;
    let mut key = read_key(tx, limit)?;
    let gated = !rules.gate.is_none() || key.shut.is_some() || key.gate.closed(&rules.gate, now).is_some();
    if !gated {
        return Ok(true);
    }
    let cap = rules.cap.map_or(i64::MAX, i64::from);
    while key.used > cap
        && let Some(worst) = limit_keys::worst_ready(tx, limit)?
    {
        limit_keys::park(tx, limit, &worst, Wait::Concurrency)?;
        key.used -= 1;
    }
    let ready = count_ready(tx, limit)?;
    let free = usize::try_from(cap.saturating_sub(key.used)).unwrap_or(0).min(AHEAD - ready);
    let parked = best_parked(tx, limit, free + 1, !rules.gate.rates.is_empty())?;
    let costs: Vec<u32> = parked.iter().take(free).map(|(_, cost)| *cost).collect();
    let line = key.gate.line(&rules.gate, ready, &costs, now);
    for (task, _) in parked.iter().take(line.let_in) {
        limit_keys::let_in(tx, limit, task)?;
    }
    let long = parked.len() > line.let_in && ready + line.let_in >= AHEAD;
    let why = key.shut.map_or(Wait::RateLimited, |shut| shut.why);
    let shut = line.shut.or_else(|| long.then_some(Closed { why, until: None }));
    set_shut(tx, limit, rules, key.shut, shut)?;
    Ok(shut.is_none())
}

fn count_ready(tx: &Tx<'_>, limit: i64) -> Sql<usize> {
    let count: i64 = tx
        .prepare(
            "SELECT count(*) FROM (SELECT 1 FROM task INDEXED BY keyed
             WHERE limit_id = ?1 AND phase = 0 AND phase IN (0, 2) LIMIT ?2)",
        )?
        .query_row(params![limit, AHEAD as i64], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(AHEAD))
}

/// The best-ranked parked tasks of a key, with what they cost where that matters.
fn best_parked(tx: &Tx<'_>, limit: i64, most: usize, costs_matter: bool) -> Sql<Vec<(Candidate, u32)>> {
    let sql = if costs_matter {
        "SELECT id, lane, rank, extras FROM task INDEXED BY keyed WHERE limit_id = ?1 AND phase = 2 AND phase IN (0, 2)
         ORDER BY rank, id LIMIT ?2"
    } else {
        "SELECT id, lane, rank, NULL FROM task INDEXED BY keyed WHERE limit_id = ?1 AND phase = 2 AND phase IN (0, 2)
         ORDER BY rank, id LIMIT ?2"
    };
    let mut statement = tx.prepare(sql)?;
    let read = |row: &Row<'_>| {
        let task = Candidate { slot: row.get(0)?, lane: row.get(1)?, rank: row.get(2)? };
        // What cannot be understood is let in like any other; a claim leaves it where it is, and `show` says why.
        let cost = extras_from(row.get(3)?, None).map_or(1, |extras| extras.cost);
        Ok((task, cost))
    };
    statement.query_map(params![limit, most as i64], read)?.collect()
}

fn set_shut(
    tx: &mut Tx<'_>,
    limit: i64,
    rules: &KeyRules,
    before: Option<Closed>,
    after: Option<Closed>,
) -> Sql<()> {
    if before == after {
        return Ok(());
    }
    let until = after.map(|shut| shut.until.map_or(NO_MOMENT, Timestamp::millis));
    tx.prepare("UPDATE limits SET shut_why = ?2, shut_until = ?3 WHERE id = ?1")?.execute(params![
        limit,
        after.map(|shut| ordinal(&Wait::ALL, &shut.why)),
        until
    ])?;
    if let (Some(before), Some(after)) = (before, after)
        && after.until.is_some_and(|after| before.until.is_none_or(|before| after < before))
    {
        // Whoever was told a later moment should ask again.
        tx.ring();
    }
    let queue = tx.queue_or_new(&rules.queue)?.id;
    let any_shut = after.is_some() || any_shut(tx.conn, queue)?;
    tx.queue_or_new(&rules.queue)?.any_shut = any_shut;
    Ok(())
}

/// Whether any key of a queue is shut.
pub(crate) fn any_shut(conn: &Connection, queue: i64) -> Sql<bool> {
    conn.prepare_cached(
        "SELECT 1 FROM limits INDEXED BY shut WHERE queue = ?1 AND shut_until IS NOT NULL LIMIT 1",
    )?
    .exists([queue])
}

// ---- keys whose time has come -------------------------------------------------------------------------

/// Settles the keys whose time has come, those first that came first. Answers how many there were.
pub(crate) fn settle_due(tx: &mut Tx<'_>, most: usize) -> Sql<usize> {
    let due: Vec<(i64, String)> = {
        let mut statement = tx.prepare(
            "SELECT l.id, q.name FROM limits l INDEXED BY shut_due JOIN queue q ON q.id = l.queue
             WHERE l.shut_until <= ?1 ORDER BY l.shut_until, l.key, q.name LIMIT ?2",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        statement
            .query_map(params![tx.now.millis(), most], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Sql<_>>()?
    };
    for (limit, queue) in &due {
        let rules = tx.key_rules(queue)?.looked_at();
        limit_keys::settle(tx, Some(*limit), &rules)?;
    }
    Ok(due.len())
}

/// When a key is to be asked again, whichever it is.
pub(crate) fn next_due(conn: &Connection) -> Sql<Option<i64>> {
    let first: Option<i64> = conn
        .prepare_cached(
            "SELECT min(shut_until) FROM limits INDEXED BY shut_due WHERE shut_until IS NOT NULL",
        )?
        .query_row([], |row| row.get(0))?;
    Ok(first.filter(|until| *until != NO_MOMENT))
}
