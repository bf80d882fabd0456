//! What the ends of attempts, and what is said about a queue, do to gates; and when a key is forgotten.

use ostler_core::{Effect, Gate, GateRules, Probe};
use ostler_store::Check;
use ostler_store::calls::QueueChange;
use ostler_store::gates::BreakerSetting;
use ostler_store::views::QueueSettings;
use rusqlite::{OptionalExtension, params};

use super::{KeyRules, read_key, write_gate};
use crate::gate_codec::gate_from;
use crate::limit_keys;
use crate::tx::{Sql, Tx};

/// An attempt that has ended, as far as gates care.
pub(crate) struct GateFeedback<'a> {
    pub(crate) queue: &'a str,
    pub(crate) limit: Option<i64>,
    pub(crate) attempt: Probe,
    pub(crate) effect: Effect,
    /// What it cost, if it was given back before it began.
    pub(crate) unused: Option<u32>,
}

/// Tells the gates of a task that its attempt has ended. Answers what holds for its key, which is not settled yet.
pub(crate) fn ended(tx: &mut Tx<'_>, end: &GateFeedback<'_>) -> Sql<KeyRules> {
    let queue = tx.queue_or_new(end.queue)?;
    let (queue_rules, key_rules) = (queue.settings.queue_rules(), queue.settings.key_rules());
    let mut gate = queue.gate.clone();
    let capped = queue.settings.concurrency.is_some();
    let before = gate.breaker_state();
    if let (Effect::HoldUntil(until), None) = (end.effect, end.limit) {
        gate.hold(until);
    }
    hear(tx, &mut gate, &queue_rules, end);
    if capped || gate.breaker_state() != before {
        // Whoever found every place taken, or was told another moment, should ask again.
        tx.ring();
    }
    tx.set_gate(end.queue, gate)?;
    let rules = tx.key_rules(end.queue)?;
    let Some(limit) = end.limit else { return Ok(rules) };
    let held = matches!(end.effect, Effect::HoldUntil(_));
    let given_back = end.unused.is_some() && !key_rules.rates.is_empty();
    if !(held || given_back || key_rules.breaker.is_some()) {
        return Ok(rules);
    }
    let key = read_key(tx, limit)?;
    let mut gate = key.gate.clone();
    if let Effect::HoldUntil(until) = end.effect {
        gate.hold(until);
    }
    hear(tx, &mut gate, &key_rules, end);
    if gate == key.gate {
        return Ok(rules);
    }
    write_gate(tx, limit, &gate)?;
    Ok(rules.looked_at())
}

fn hear(tx: &Tx<'_>, gate: &mut Gate, rules: &GateRules, end: &GateFeedback<'_>) {
    if let Some(cost) = end.unused {
        gate.give_back(cost);
    }
    if tx.checks.pass(Check::ProbeEnd, gate.listens_to(end.attempt)) {
        gate.ended(rules, end.effect, tx.now);
    }
}

// ---- settings -----------------------------------------------------------------------------------------

/// What a change does to gates, before it is among the settings. Answers the keys that are to be settled.
pub(crate) fn change(
    tx: &mut Tx<'_>,
    name: &str,
    settings: &QueueSettings,
    change: &QueueChange,
) -> Sql<Vec<i64>> {
    let queue = tx.queue_or_new(name)?;
    let (id, mut gate) = (queue.id, queue.gate.clone());
    match change {
        QueueChange::Breaker(new) => {
            let scope = |breaker: Option<BreakerSetting>| breaker.map(|breaker| breaker.scope);
            if scope(*new) == scope(settings.breaker) {
                return Ok(Vec::new());
            }
            gate.reset_breaker();
            tx.set_gate(name, gate)?;
            return reset_keys(tx, id);
        }
        QueueChange::OpenBreaker(until) => gate.open_breaker(*until),
        QueueChange::ResetBreaker => gate.reset_breaker(),
        QueueChange::EndHold => gate.held_until = None,
        QueueChange::OpenKeyBreaker { key, until } => {
            return change_key(tx, id, key, |gate| gate.open_breaker(*until));
        }
        QueueChange::ResetKeyBreaker(key) => {
            return change_key(tx, id, key, Gate::reset_breaker);
        }
        QueueChange::EndKeyHold(key) => {
            return change_key(tx, id, key, |gate| gate.held_until = None);
        }
        QueueChange::Pause(_)
        | QueueChange::Resume
        | QueueChange::Limit(_)
        | QueueChange::Concurrency(_)
        | QueueChange::KeyConcurrency(_)
        | QueueChange::KeyPath(_)
        | QueueChange::CostPath(_)
        | QueueChange::Overrides(_)
        | QueueChange::KindOverrides(..)
        | QueueChange::Outbox(_)
        | QueueChange::SetBy(_)
        | QueueChange::AlsoOutbox(_)
        | QueueChange::Rate(_)
        | QueueChange::KeyRate(_) => return Ok(Vec::new()),
    }
    tx.set_gate(name, gate)?;
    Ok(Vec::new())
}

fn change_key(tx: &mut Tx<'_>, queue: i64, key: &str, change: impl FnOnce(&mut Gate)) -> Sql<Vec<i64>> {
    let limit = limit_keys::limit(tx, queue, key)?.id;
    let mut gate = read_key(tx, limit)?.gate;
    change(&mut gate);
    write_gate(tx, limit, &gate)?;
    Ok(vec![limit])
}

/// Closes the breakers of all keys of a queue. Answers all keys.
fn reset_keys(tx: &Tx<'_>, queue: i64) -> Sql<Vec<i64>> {
    let found: Vec<(i64, Option<String>)> = {
        let mut statement = tx.prepare("SELECT id, gate FROM limits WHERE queue = ?1")?;
        statement.query_map([queue], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Sql<_>>()?
    };
    for (limit, text) in found.iter().filter(|(_, text)| text.is_some()) {
        let mut gate = gate_from(text.clone());
        gate.reset_breaker();
        write_gate(tx, *limit, &gate)?;
    }
    Ok(found.into_iter().map(|(limit, _)| limit).collect())
}

// ---- keys without tasks -------------------------------------------------------------------------------

/// The last task of a key is gone: the key goes too, unless its gate has something to remember. Whoever comes back later
/// begins like anybody new. The row that keeps the place of tasks without a key counts none of them, and stays.
pub(crate) fn forget_key(tx: &mut Tx<'_>, limit: i64) -> Sql<()> {
    let found: Option<String> = tx
        .prepare(
            "SELECT q.name FROM limits l JOIN queue q ON q.id = l.queue
             WHERE l.id = ?1 AND l.tasks = 0 AND l.key <> ?2",
        )?
        .query_row(params![limit, limit_keys::NO_KEY], |row| row.get(0))
        .optional()?;
    let Some(queue) = found else { return Ok(()) };
    let rules = tx.key_rules(&queue)?;
    let key = read_key(tx, limit)?;
    if key.shut.is_none() && key.gate.is_at_rest(&rules.gate, tx.now) {
        tx.prepare("DELETE FROM limits WHERE id = ?1")?.execute([limit])?;
    } else {
        tx.prepare("UPDATE limits SET last = NULL WHERE id = ?1")?.execute([limit])?;
        tx.prepare("INSERT OR IGNORE INTO unused_key(limit_id) VALUES(?1)")?.execute([limit])?;
    }
    Ok(())
}

/// Looks at a batch of the keys that had no tasks and something to remember: those that have nothing to remember any more go.
pub(crate) fn sweep(tx: &mut Tx<'_>, batch: usize) -> Sql<()> {
    let batch = i64::try_from(batch).unwrap_or(i64::MAX);
    let unused: Vec<i64> = {
        let mut statement = tx.prepare("SELECT limit_id FROM unused_key ORDER BY id LIMIT ?1")?;
        statement.query_map([batch], |row| row.get(0))?.collect::<Sql<_>>()?
    };
    for limit in unused {
        // What has to stay is put at the end: the next batch is of others.
        tx.prepare("DELETE FROM unused_key WHERE limit_id = ?1")?.execute([limit])?;
        forget_key(tx, limit)?;
    }
    Ok(())
}
