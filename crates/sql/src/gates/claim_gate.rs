//! What a claim asks: the gate of its queue, and the gates of the keys of the tasks that it meets.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ostler_core::{Closed, Gate, GateRules, GateVerdict, Probe, Timestamp};
use ostler_store::Check;
use ostler_store::gates::MAX_DUE_KEYS;

use super::{NO_TIME, read_key, write_gate};
use crate::limit_keys;
use crate::params;
use crate::queue::{KeyRules, QueueRow};
use crate::tx::{Tx, key_rules, one};
use crate::value::Row;

/// The gates of a queue and of its keys, for one claim.
pub struct ClaimGate {
    id: i64,
    rules: GateRules,
    gate: Gate,
    keys: KeyRules,
    /// Gates of keys that were asked.
    asked: HashMap<i64, Gate>,
    /// Keys that refused somebody: nobody of them overtakes in this claim.
    refused: HashMap<i64, Closed>,
}

/// What the gates of a ready task say to a claim.
pub enum ClaimVerdict {
    /// It may begin, and what it costs was taken.
    Yes,
    /// Its key refuses it: it is parked.
    Key(Closed),
    /// The queue refuses it, and whatever comes after it.
    Queue(Closed),
}

/// A ready task, as far as gates care.
pub struct GateQuestion {
    pub limit: Option<i64>,
    pub cost: u32,
    /// The attempt that would begin.
    pub attempt: Probe,
}

impl ClaimGate {
    /// The claim_gate of a queue; `None` where all are open for ever.
    pub fn of(queue: &QueueRow) -> Option<Self> {
        let keys = KeyRules::of(queue);
        let rules = queue.settings.queue_rules();
        if rules.is_none() && queue.gate == Gate::default() && !keys.may_gate() {
            return None;
        }
        let (asked, refused) = (HashMap::new(), HashMap::new());
        Some(Self { id: queue.id, rules, gate: queue.gate.clone(), keys, asked, refused })
    }

    /// Why nothing of the queue is to be looked at.
    pub fn shut<T: Tx>(&self, tx: &T) -> Option<Closed> {
        match self.gate.clone().ask(&self.rules, 1, tx.now()) {
            GateVerdict::Wait(shut) if !tx.checks().pass(Check::QueueGate, false) => Some(shut),
            GateVerdict::Wait(_) | GateVerdict::Go | GateVerdict::Probe => None,
        }
    }

    /// Keys of the queue whose time has come let their tasks in.
    pub async fn settle_due<T: Tx>(&mut self, tx: &mut T) -> Result<(), T::Error> {
        if !self.keys.any_shut {
            return Ok(());
        }
        let due = tx.rows(
                "SELECT id FROM ostler.limits /*by shut*/ WHERE queue = $1 AND shut_until <= $2 ORDER BY shut_until, key LIMIT $3",
                params![self.id, tx.now().millis(), MAX_DUE_KEYS],
            )
            .await?;
        for row in &due {
            limit_keys::settle(tx, Some(row.get(0)?), &self.keys).await?;
        }
        Ok(())
    }

    /// Asks the gates of a ready task: its key's, then its queue's. What it costs is taken from both or from none.
    pub async fn pass<T: Tx>(&mut self, tx: &T, task: &GateQuestion) -> Result<ClaimVerdict, T::Error> {
        let (now, checks) = (tx.now(), tx.checks());
        let key = match task.limit {
            Some(limit) if self.keys.may_gate() => {
                if let Some(shut) = self.refused.get(&limit) {
                    return Ok(ClaimVerdict::Key(*shut));
                }
                let mut gate = match self.asked.entry(limit) {
                    MapEntry::Occupied(known) => known.get().clone(),
                    MapEntry::Vacant(new) => new.insert(read_key(tx, limit).await?.gate).clone(),
                };
                match gate.ask(&self.keys.gate, task.cost, now) {
                    GateVerdict::Wait(shut) if !checks.pass(Check::KeyGate, false) => {
                        self.refused.insert(limit, shut);
                        return Ok(ClaimVerdict::Key(shut));
                    }
                    GateVerdict::Probe => gate.probe = Some(task.attempt),
                    GateVerdict::Go | GateVerdict::Wait(_) => {}
                }
                Some((limit, gate))
            }
            Some(_) | None => None,
        };
        let mut gate = self.gate.clone();
        match gate.ask(&self.rules, task.cost, now) {
            GateVerdict::Wait(shut) if !checks.pass(Check::QueueGate, false) => {
                return Ok(ClaimVerdict::Queue(shut));
            }
            GateVerdict::Probe => gate.probe = Some(task.attempt),
            GateVerdict::Go | GateVerdict::Wait(_) => {}
        }
        self.gate = gate;
        self.asked.extend(key);
        Ok(ClaimVerdict::Yes)
    }

    /// Keeps what was taken. Answers the keys that were asked; they are not settled yet.
    pub async fn keep<T: Tx>(self, tx: &mut T) -> Result<AskedKeys, T::Error> {
        let now = tx.now();
        // What has nothing to remember any more is forgotten: the next claim has less to ask.
        let kept = |gate: Gate, rules: &GateRules| {
            if gate.is_at_rest(rules, now) { Gate::default() } else { gate }
        };
        for (limit, gate) in &self.asked {
            write_gate(tx, *limit, &kept(gate.clone(), &self.keys.gate)).await?;
        }
        tx.set_gate(&self.keys.queue, kept(self.gate, &self.rules)).await?;
        Ok(AskedKeys { queue: self.id, name: self.keys.queue, limits: self.asked.into_keys().collect() })
    }
}

/// The keys that a claim has asked.
pub struct AskedKeys {
    queue: i64,
    name: Arc<str>,
    limits: BTreeSet<i64>,
}

impl AskedKeys {
    /// Lets the next ones in. Answers when a key of the queue is to be asked again.
    pub async fn settle<T: Tx>(self, tx: &mut T) -> Result<Option<Timestamp>, T::Error> {
        let rules = key_rules(tx, &self.name).await?;
        for limit in self.limits {
            limit_keys::settle(tx, Some(limit), &rules).await?;
        }
        let row = one(
            tx,
            "SELECT min(shut_until) FROM ostler.limits /*by shut*/ WHERE queue = $1 AND shut_until IS NOT NULL",
            params![self.queue],
        )
        .await?;
        let first: Option<i64> = row.get(0)?;
        Ok(first.filter(|until| *until != NO_TIME).map(Timestamp::from_millis))
    }
}
