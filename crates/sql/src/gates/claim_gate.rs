//! The gates that a claim checks: that of its queue, that of the pool that serves the queue, and those of the limit keys of the tasks it
//! considers.

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

/// The gates of a queue, of its pool and of its keys, for one claim.
pub struct ClaimGate {
    id: i64,
    own: QueueGate,
    /// That of the queue of its pool.
    pool: Option<QueueGate>,
    keys: KeyRules,
    /// Gates of the keys that were checked.
    asked: HashMap<i64, Gate>,
    /// Keys that refused a task: no other task of theirs overtakes it in this claim.
    refused: HashMap<i64, Closed>,
}

/// What the gates decide about a ready task.
pub enum ClaimVerdict {
    /// It may start, and its cost was taken.
    Yes,
    /// Its key refuses it: park it.
    Key(Closed),
    /// The queue refuses it, and every task after it.
    Queue(Closed),
}

/// What gates need to know of a ready task.
pub struct GateQuestion {
    pub limit: Option<i64>,
    pub cost: u32,
    /// The attempt that would start.
    pub attempt: Probe,
}

/// The gate of a queue as a whole.
struct QueueGate {
    queue: Arc<str>,
    rules: GateRules,
    gate: Gate,
}

impl QueueGate {
    fn of(queue: &QueueRow) -> Self {
        Self { queue: Arc::clone(&queue.name), rules: queue.settings.queue_rules(), gate: queue.gate.clone() }
    }

    /// Whether the gate of a queue limits nothing and holds nothing, so that it stays open.
    fn stays_open(queue: &QueueRow) -> bool {
        !queue.settings.has_queue_rules() && queue.gate == Gate::default()
    }

    /// The gate after an attempt of this cost has passed it, or why it may not.
    fn passed<T: Tx>(&self, tx: &T, cost: u32, attempt: Option<Probe>) -> Result<Gate, Closed> {
        let mut gate = self.gate.clone();
        match gate.ask(&self.rules, cost, tx.now()) {
            GateVerdict::Wait(shut) if !tx.checks().pass(Check::QueueGate, false) => return Err(shut),
            GateVerdict::Probe => gate.probe = attempt.or(gate.probe),
            GateVerdict::Go | GateVerdict::Wait(_) => {}
        }
        Ok(gate)
    }

    async fn keep<T: Tx>(self, tx: &mut T) -> Result<(), T::Error> {
        tx.set_gate(&self.queue, at_rest(self.gate, tx.now())).await
    }
}

/// A gate without state is dropped: the next claim has less to check.
fn at_rest(gate: Gate, now: Timestamp) -> Gate {
    if gate.is_at_rest(now) { Gate::default() } else { gate }
}

impl ClaimGate {
    /// The gates of a queue, and of the queue of its pool; `None` if there are no limits, so that all of them stay open.
    pub fn of(queue: &QueueRow, pool: Option<&QueueRow>) -> Option<Self> {
        let pool = pool.filter(|pool| !QueueGate::stays_open(pool));
        // Most queues have no limits: nothing is copied for them.
        if QueueGate::stays_open(queue) && pool.is_none() && !KeyRules::may_gate_in(queue) {
            return None;
        }
        Some(Self {
            id: queue.id,
            own: QueueGate::of(queue),
            pool: pool.map(QueueGate::of),
            keys: KeyRules::of(queue),
            asked: HashMap::new(),
            refused: HashMap::new(),
        })
    }

    /// Why the queue is closed as a whole, if it is.
    pub fn shut<T: Tx>(&self, tx: &T) -> Option<Closed> {
        [Some(&self.own), self.pool.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|gate| gate.passed(tx, 1, None).err())
    }

    /// Settles the keys of the queue that are due.
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

    /// Checks the gates of a ready task: its key's, then its queue's, then its pool's. The cost is taken from all or from none.
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
        let passed = |gate: &QueueGate| gate.passed(tx, task.cost, Some(task.attempt));
        let both = passed(&self.own).and_then(|own| Ok((own, self.pool.as_ref().map(passed).transpose()?)));
        let (own, pool) = match both {
            Ok(both) => both,
            Err(shut) => return Ok(ClaimVerdict::Queue(shut)),
        };
        self.own.gate = own;
        if let (Some(kept), Some(gate)) = (&mut self.pool, pool) {
            kept.gate = gate;
        }
        self.asked.extend(key);
        Ok(ClaimVerdict::Yes)
    }

    /// Stores the gates that changed. Returns the keys that were checked, which are not settled yet.
    pub async fn keep<T: Tx>(self, tx: &mut T) -> Result<AskedKeys, T::Error> {
        let now = tx.now();
        for (limit, gate) in &self.asked {
            write_gate(tx, *limit, &at_rest(gate.clone(), now)).await?;
        }
        for gate in [Some(self.own), self.pool].into_iter().flatten() {
            gate.keep(tx).await?;
        }
        Ok(AskedKeys { queue: self.id, name: self.keys.queue, limits: self.asked.into_keys().collect() })
    }
}

/// The keys that a claim has checked.
pub struct AskedKeys {
    queue: i64,
    name: Arc<str>,
    limits: BTreeSet<i64>,
}

impl AskedKeys {
    /// Settles them. Returns when a key of the queue is due next.
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
