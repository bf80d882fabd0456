//! Feedback to gates: outcomes of attempts, and changes of settings; and the removal of unused keys.

use ostler_core::{AccountEnd, Effect, Gate, GateRules, Probe, Timestamp};
use ostler_store::Check;
use ostler_store::calls::QueueChange;
use ostler_store::gates::BreakerSetting;
use ostler_store::views::QueueSettings;

use super::{read_key, write_gate};
use crate::accounts;
use crate::gate_codec::gate_from;
use crate::limit_keys;
use crate::params;
use crate::queue::KeyRules;
use crate::tx::{Tx, key_rules};
use crate::value::Row;

/// What gates need to know of an attempt that has ended.
pub struct GateFeedback<'a> {
    pub queue: &'a str,
    pub limit: Option<i64>,
    pub attempt: Probe,
    pub end: AccountEnd<'a>,
    /// The cost to give back, if it was handed back before it started.
    pub unused: Option<u32>,
}

/// Feeds the end of an attempt back to the gates of its task. Returns the rules of its key, which is not settled yet.
pub async fn ended<T: Tx>(tx: &mut T, end: &GateFeedback<'_>) -> Result<KeyRules, T::Error> {
    let queue = tx.queue_or_new(end.queue).await?;
    let (queue_rules, key_gate_rules) = (queue.settings.queue_rules(), queue.settings.key_rules());
    let mut gate = queue.gate.clone();
    let capped = queue.settings.concurrency.is_some();
    let before = gate.breaker_state();
    let account = queue.settings.account.clone();
    let pool = queue.settings.serving_queue(end.queue).map(str::to_owned);
    let effect = if account.is_none() { end.end.effect.without_account() } else { end.end.effect };
    // Without a key, the whole pool waits.
    let mut hold = match (effect, end.limit, &account) {
        (Effect::HoldUntil(until), None, None) => Some(until),
        (_, _, _) => None,
    };
    if let Some(pool) = pool {
        ended_in_pool(tx, &pool, end, &mut hold).await?;
    }
    if let Some(until) = hold {
        gate.hold(until);
    }
    feed_back(tx, &mut gate, &queue_rules, end);
    if capped || gate.breaker_state() != before {
        // Claims that found every place taken, or wait for another time, ask again.
        tx.ring();
    }
    tx.set_gate(end.queue, gate).await?;
    if let Some(account) = account {
        accounts::ended(tx, &account, &end.end).await?;
    }
    let rules = key_rules(tx, end.queue).await?;
    let Some(limit) = end.limit else { return Ok(rules) };
    let held = matches!(effect, Effect::HoldUntil(_));
    let given_back = end.unused.is_some() && !key_gate_rules.rates.is_empty();
    if !(held || given_back || key_gate_rules.breaker.is_some()) {
        return Ok(rules);
    }
    let key = read_key(tx, limit).await?;
    let mut gate = key.gate.clone();
    if let Effect::HoldUntil(until) = effect {
        gate.hold(until);
    }
    feed_back(tx, &mut gate, &key_gate_rules, end);
    if gate == key.gate {
        return Ok(rules);
    }
    write_gate(tx, limit, &gate).await?;
    Ok(rules.looked_at())
}

/// Feeds the end of an attempt back to the gate of the pool that serves its queue, and takes the hold, if that is known.
async fn ended_in_pool<T: Tx>(
    tx: &mut T,
    pool: &str,
    end: &GateFeedback<'_>,
    hold: &mut Option<Timestamp>,
) -> Result<(), T::Error> {
    let Some(queue) = tx.queue(pool).await? else { return Ok(()) };
    let (rules, capped) = (queue.settings.queue_rules(), queue.settings.concurrency.is_some());
    let mut gate = queue.gate.clone();
    let before = gate.breaker_state();
    if let Some(until) = hold.take() {
        gate.hold(until);
    }
    feed_back(tx, &mut gate, &rules, end);
    if capped || gate.breaker_state() != before {
        tx.ring();
    }
    tx.set_gate(pool, gate).await
}

fn feed_back<T: Tx>(tx: &T, gate: &mut Gate, rules: &GateRules, end: &GateFeedback<'_>) {
    if let Some(cost) = end.unused {
        gate.give_back(cost);
    }
    if tx.checks().pass(Check::ProbeEnd, gate.listens_to(end.attempt)) {
        gate.ended(rules, end.end.effect, tx.now());
    }
}

// ---- settings -----------------------------------------------------------------------------------------

/// Applies a change to gates, before it is stored with the settings. Returns the keys to settle.
pub async fn change<T: Tx>(
    tx: &mut T,
    name: &str,
    settings: &QueueSettings,
    change: &QueueChange,
) -> Result<Vec<i64>, T::Error> {
    let queue = tx.queue_or_new(name).await?;
    let (id, mut gate) = (queue.id, queue.gate.clone());
    match change {
        QueueChange::Breaker(new) => {
            let scope = |breaker: Option<BreakerSetting>| breaker.map(|breaker| breaker.scope);
            if scope(*new) == scope(settings.breaker) {
                return Ok(Vec::new());
            }
            gate.reset_breaker();
            tx.set_gate(name, gate).await?;
            return change_keys(tx, id, Gate::reset_breaker).await;
        }
        QueueChange::Rate(rates) => gate.change_rates(rates, tx.now()),
        QueueChange::KeyRate(rates) if *rates != settings.key_rate => {
            let now = tx.now();
            return change_keys(tx, id, |gate| gate.change_rates(rates, now)).await;
        }
        QueueChange::OpenBreaker(until) => gate.open_breaker(*until),
        QueueChange::ResetBreaker => gate.reset_breaker(),
        QueueChange::EndHold => gate.held_until = None,
        QueueChange::OpenKeyBreaker { key, until } => {
            return change_key(tx, id, key, |gate| gate.open_breaker(*until)).await;
        }
        QueueChange::ResetKeyBreaker(key) => {
            return change_key(tx, id, key, Gate::reset_breaker).await;
        }
        QueueChange::EndKeyHold(key) => {
            return change_key(tx, id, key, |gate| gate.held_until = None).await;
        }
        QueueChange::Pause(_)
        | QueueChange::Resume
        | QueueChange::Limit(_)
        | QueueChange::Concurrency(_)
        | QueueChange::KeyConcurrency(_)
        | QueueChange::KeyPath(_)
        | QueueChange::CostPath(_)
        | QueueChange::KeyHold(_)
        | QueueChange::Priority(_)
        | QueueChange::Overrides(_)
        | QueueChange::KindOverrides(..)
        | QueueChange::Subscribe(_)
        | QueueChange::Budget(_)
        | QueueChange::ServedBy(_)
        | QueueChange::SetBy(_)
        | QueueChange::AlsoSubscribe(_)
        | QueueChange::Unsubscribe(_)
        | QueueChange::KeyRate(_)
        | QueueChange::Account(_) => return Ok(Vec::new()),
    }
    tx.set_gate(name, gate).await?;
    Ok(Vec::new())
}

async fn change_key<T: Tx>(
    tx: &mut T,
    queue: i64,
    key: &str,
    change: impl FnOnce(&mut Gate) + Send,
) -> Result<Vec<i64>, T::Error> {
    let limit = limit_keys::limit(tx, queue, key).await?.id;
    let mut gate = read_key(tx, limit).await?.gate;
    change(&mut gate);
    write_gate(tx, limit, &gate).await?;
    Ok(vec![limit])
}

/// Changes the gates of all keys of a queue that have state. Returns all keys.
async fn change_keys<T: Tx>(
    tx: &T,
    queue: i64,
    change: impl Fn(&mut Gate) + Send + Sync,
) -> Result<Vec<i64>, T::Error> {
    let rows =
        tx.rows("SELECT id, gate FROM ostler.limits WHERE queue = $1 ORDER BY id", params![queue]).await?;
    let mut limits = Vec::with_capacity(rows.len());
    for row in &rows {
        let (limit, text): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
        limits.push(limit);
        if text.is_some() {
            let mut gate = gate_from(text);
            change(&mut gate);
            write_gate(tx, limit, &gate).await?;
        }
    }
    Ok(limits)
}

// ---- keys without tasks -------------------------------------------------------------------------------

/// Removes a key whose last task is gone, unless its gate has state. The row that ranks tasks without a key counts none of them, and stays.
pub async fn forget_key<T: Tx>(tx: &mut T, limit: i64) -> Result<(), T::Error> {
    let found = tx
        .row(
            "SELECT q.name FROM ostler.limits l JOIN ostler.queue q ON q.id = l.queue
             WHERE l.id = $1 AND l.tasks = 0 AND l.key <> $2",
            params![limit, limit_keys::NO_KEY],
        )
        .await?;
    let Some(row) = found else { return Ok(()) };
    let queue: String = row.get(0)?;
    tx.exclusive(&queue)?;
    let key = read_key(tx, limit).await?;
    if key.shut.is_none() && key.gate.is_at_rest(tx.now()) {
        tx.exec("DELETE FROM ostler.limits WHERE id = $1", params![limit]).await?;
    } else {
        tx.exec("UPDATE ostler.limits SET last = NULL WHERE id = $1", params![limit]).await?;
        tx.exec(
            "INSERT INTO ostler.unused_key(limit_id) VALUES($1) ON CONFLICT(limit_id) DO NOTHING",
            params![limit],
        )
        .await?;
    }
    Ok(())
}

/// Removes a batch of unused keys whose gates have lost their state.
pub async fn sweep<T: Tx>(tx: &mut T, batch: usize) -> Result<(), T::Error> {
    let rows = tx.rows("SELECT limit_id FROM ostler.unused_key ORDER BY id LIMIT $1", params![batch]).await?;
    for row in &rows {
        let limit: i64 = row.get(0)?;
        // Keys that stay move to the end, so that the next batch has others.
        tx.exec("DELETE FROM ostler.unused_key WHERE limit_id = $1", params![limit]).await?;
        forget_key(tx, limit).await?;
    }
    Ok(())
}
