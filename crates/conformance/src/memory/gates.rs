//! Claim gates and limit keys: which tasks of a key are ready, what a claim asks, and the effect of outcomes on a gate.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::{
    AHEAD, Admission, Closed, Effect, Gate, GateRules, GateVerdict, Outcome, Probe, Readiness, State, Task,
    Timestamp, Wait, admit,
};

use super::state::{KeyEntry, MemoryState, Slot};
use ostler_store::Check;
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerSetting, KeyRecord, MAX_KEYS_SHOWN};

/// The verdict of the gates on a ready task.
pub(super) enum ClaimVerdict {
    /// It may start, and its cost was taken.
    Yes,
    /// Its key refuses it: it is parked.
    Key(Closed),
    /// The queue refuses it and all tasks after it.
    Queue(Closed),
}

impl MemoryState {
    // ---- ready tasks of a key ----

    /// Settles the limit key of a task.
    pub(super) fn settle(&mut self, slot: Slot) {
        let Task { queue, limit_key, .. } = self.task(slot).clone();
        let Some(key) = limit_key else { return };
        self.settle_key(&queue, &key);
    }

    /// Admits what the key's gate lets through. While the gate is open, ready and leased tasks never exceed the key's
    /// concurrency limit, and no parked task outranks a ready one.
    pub(super) fn settle_key(&mut self, queue: &str, key: &str) {
        let now = self.now;
        let (cap, rules) = self.key_rules(queue);
        let kept = self.key(queue, key).clone();
        let gated = !rules.is_none() || kept.shut.is_some() || kept.gate.closed(&rules, now).is_some();
        if gated {
            self.admit_by_rank(queue, key, cap, &[Readiness::Ready]);
            self.let_in(queue, key, cap, &rules);
        }
        if self.key(queue, key).shut.is_none() {
            self.admit_by_rank(queue, key, cap, &[Readiness::Ready, Readiness::Parked]);
        }
    }

    /// Admits the best-ranked parked tasks, as many as the gate, the concurrency limit and [`AHEAD`] allow.
    fn let_in(&mut self, queue: &str, key: &str, cap: Option<u32>, rules: &GateRules) {
        let ready = self.of_key(queue, key, &[Readiness::Ready]).len();
        let used = ready + self.leased_of(queue, key);
        let free = cap.map_or(usize::MAX, |cap| (cap as usize).saturating_sub(used));
        let parked = self.of_key(queue, key, &[Readiness::Parked]);
        let ready = ready.min(AHEAD);
        let costs: Vec<u32> =
            parked.iter().take(free.min(AHEAD - ready)).map(|slot| self.entries[slot].task.cost).collect();
        let before = self.key(queue, key).clone();
        let line = before.gate.line(rules, ready, &costs, self.now);
        for slot in parked.iter().take(line.let_in) {
            self.move_to(*slot, Readiness::Ready, None);
        }
        let long = parked.len() > line.let_in && ready + line.let_in >= AHEAD;
        let why = before.shut.map_or(Wait::RateLimited, |shut| shut.why);
        let shut = line.shut.or_else(|| long.then_some(Closed { why, until: None }));
        // A caller that was given a later time should ask again.
        self.rings.ready |= sooner(before.shut, shut);
        self.key(queue, key).shut = shut;
    }

    /// Gives the slots of a key to its best-ranked tasks with this readiness.
    fn admit_by_rank(&mut self, queue: &str, key: &str, cap: Option<u32>, standing: &[Readiness]) {
        let mut used = u32::try_from(self.leased_of(queue, key)).unwrap_or(u32::MAX);
        for slot in self.of_key(queue, key, standing) {
            match admit(cap, used) {
                Admission::Admit => {
                    used += 1;
                    self.move_to(slot, Readiness::Ready, None);
                }
                Admission::Park => self.move_to(slot, Readiness::Parked, Some(Wait::Concurrency)),
            }
        }
    }

    /// Makes a queued task ready or parks it; does nothing if it is so already.
    fn move_to(&mut self, slot: Slot, to: Readiness, why: Option<Wait>) {
        let State::Queued { readiness, why: was, run_at } = self.task(slot).state else { return };
        if readiness == to {
            return;
        }
        self.rings.ready |= to == Readiness::Ready;
        self.task(slot).state = State::Queued { readiness: to, why: why.unwrap_or(was), run_at };
    }

    /// The queued tasks of a key with this readiness, the best rank first.
    fn of_key(&self, queue: &str, key: &str, standing: &[Readiness]) -> Vec<Slot> {
        let mut found = self.slots(|task| {
            let stands =
                matches!(task.state, State::Queued { readiness, .. } if standing.contains(&readiness));
            stands && task.queue == queue && task.limit_key.as_deref() == Some(key)
        });
        found.sort_by_key(|slot| (self.entries[slot].task.rank, *slot));
        found
    }

    fn leased_of(&self, queue: &str, key: &str) -> usize {
        let of_key = |task: &Task| task.queue == queue && task.limit_key.as_deref() == Some(key);
        self.slots(|task| of_key(task) && task.state.name().is_leased()).len()
    }

    fn key_rules(&mut self, queue: &str) -> (Option<u32>, GateRules) {
        let settings = &self.queues.entry(queue.to_owned()).or_default().settings;
        (settings.key_concurrency, settings.key_rules())
    }

    fn key(&mut self, queue: &str, key: &str) -> &mut KeyEntry {
        self.queues.entry(queue.to_owned()).or_default().keys.entry(key.to_owned()).or_default()
    }

    /// Why the limit key of a task is closed, if it is.
    pub(super) fn shut_of(&mut self, slot: Slot) -> Option<Closed> {
        let Task { queue, limit_key, .. } = self.task(slot).clone();
        limit_key.and_then(|key| self.key(&queue, &key).shut)
    }

    // ---- due keys ----

    /// Settles the due keys, the earliest first. Returns how many there were.
    pub(super) fn settle_due_keys(&mut self, only: Option<&str>, most: usize) -> usize {
        let now = self.now;
        let mut due: Vec<(Timestamp, String, String)> = self.key_moments(only);
        due.retain(|(until, _, _)| *until <= now);
        due.sort();
        due.truncate(most);
        for (_, key, queue) in &due {
            self.settle_key(queue, key);
        }
        due.len()
    }

    /// The times at which keys are to be settled again.
    pub(super) fn key_moments(&self, only: Option<&str>) -> Vec<(Timestamp, String, String)> {
        let queues = self.queues.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        let keys =
            queues.flat_map(|(name, queue)| queue.keys.iter().map(move |(key, kept)| (name, key, kept)));
        keys.filter_map(|(name, key, kept)| Some((kept.shut?.until?, key.clone(), name.clone()))).collect()
    }

    // ---- gates of a claim ----

    /// The queue of the pool that serves this one, if it is another one that exists.
    fn serving_queue(&self, queue: &str) -> Option<String> {
        let pool = self.queues.get(queue)?.settings.serving_queue(queue)?;
        self.queues.contains_key(pool).then(|| pool.to_owned())
    }

    /// The queues whose limits hold for the tasks of this one: itself, and that of its pool.
    pub(super) fn limiting_queues(&self, queue: &str) -> Vec<String> {
        [Some(queue.to_owned()), self.serving_queue(queue)].into_iter().flatten().collect()
    }

    /// Why the gate of the queue or of its pool is closed, if it is.
    pub(super) fn queue_shut(&mut self, queue: &str) -> Option<Closed> {
        let now = self.now;
        let shut = |name: &String| {
            let found = self.queues.get(name)?;
            match found.gate.clone().ask(&found.settings.queue_rules(), 1, now) {
                GateVerdict::Go | GateVerdict::Probe => None,
                GateVerdict::Wait(shut) => Some(shut),
            }
        };
        let shut = self.limiting_queues(queue).iter().find_map(shut)?;
        (!self.checks.pass(Check::QueueGate, false)).then_some(shut)
    }

    /// How many of `limit` tasks a claim may take within the concurrency limits of the queue and its pool.
    pub(super) fn free_places(&self, queue: &str, limit: usize) -> usize {
        if self.checks.pass(Check::QueuePlaces, false) {
            return limit;
        }
        let free = |name: &String| self.queues.get(name)?.settings.free_places(self.leased_under(name));
        let free = self.limiting_queues(queue).iter().filter_map(free).min().unwrap_or(u64::MAX);
        usize::try_from(free).unwrap_or(usize::MAX).min(limit)
    }

    pub(super) fn leased_in(&self, queue: &str) -> u64 {
        self.slots(|task| task.queue == queue && task.state.name().is_leased()).len() as u64
    }

    /// The leased tasks of a queue, and of the queues that its pool serves besides.
    pub(super) fn leased_under(&self, queue: &str) -> u64 {
        let served = |name: &&String| self.serving_queue(name).as_deref() == Some(queue);
        self.leased_in(queue)
            + self.queues.keys().filter(served).map(|name| self.leased_in(name)).sum::<u64>()
    }

    /// Asks the gates of a ready task: its key's, then its queue's, then its pool's. The cost is taken from all or from none.
    pub(super) fn pass(&mut self, slot: Slot, refused: &BTreeMap<String, Closed>) -> ClaimVerdict {
        let (now, checks) = (self.now, self.checks);
        let Task { id, queue, limit_key, cost, token, .. } = self.task(slot).clone();
        if let Some(shut) = limit_key.as_ref().and_then(|key| refused.get(key)) {
            return ClaimVerdict::Key(*shut);
        }
        let probe = Probe { task: id, token: token + 1 };
        let (_, key_rules) = self.key_rules(&queue);
        let key_gate = limit_key.as_ref().map(|key| {
            let mut gate = self.key(&queue, key).gate.clone();
            let entry = gate.ask(&key_rules, cost, now);
            (key.clone(), gate, entry)
        });
        if let Some((_, _, GateVerdict::Wait(shut))) = &key_gate
            && !checks.pass(Check::KeyGate, false)
        {
            return ClaimVerdict::Key(*shut);
        }
        let mut passed = Vec::new();
        for name in self.limiting_queues(&queue) {
            let found = self.queues.entry(name.clone()).or_default();
            let mut gate = found.gate.clone();
            match gate.ask(&found.settings.queue_rules(), cost, now) {
                GateVerdict::Wait(shut) if !checks.pass(Check::QueueGate, false) => {
                    return ClaimVerdict::Queue(shut);
                }
                GateVerdict::Probe => gate.probe = Some(probe),
                GateVerdict::Go | GateVerdict::Wait(_) => {}
            }
            passed.push((name, gate));
        }
        for (name, gate) in passed {
            self.queues.entry(name).or_default().gate = gate;
        }
        if let Some((key, mut gate, entry)) = key_gate {
            if entry == GateVerdict::Probe {
                gate.probe = Some(probe);
            }
            self.key(&queue, &key).gate = gate;
        }
        ClaimVerdict::Yes
    }

    /// Parks a ready task that its key refuses.
    pub(super) fn park(&mut self, slot: Slot, shut: Closed) {
        self.move_to(slot, Readiness::Parked, Some(shut.why));
    }

    // ---- outcomes ----

    /// Reports the outcome of an attempt to the gates of its task.
    pub(super) fn tell_gates(&mut self, slot: Slot, outcome: &Outcome, effect: Effect, begun: Begun) {
        let (now, checks) = (self.now, self.checks);
        let Task { id, queue, limit_key, cost, token, .. } = self.task(slot).clone();
        let attempt = Probe { task: id, token };
        let unused = (matches!(outcome, Outcome::HandedBack) && begun == Begun::No).then_some(cost);
        let (_, key_rules) = self.key_rules(&queue);
        let account = self.queues.entry(queue.clone()).or_default().settings.account.is_some();
        let effect = if account { effect } else { effect.without_account() };
        let tell = |gate: &mut Gate, rules: &GateRules| {
            if let Some(cost) = unused {
                gate.give_back(cost);
            }
            if checks.pass(Check::ProbeEnd, gate.listens_to(attempt)) {
                gate.ended(rules, effect, now);
            }
        };
        let limiting = self.limiting_queues(&queue);
        // Throttle its key; if it has none, its pool, or else its queue, unless an account takes care of that.
        if let Effect::HoldUntil(until) = effect {
            match (&limit_key, limiting.last()) {
                (Some(key), _) => self.key(&queue, key).gate.hold(until),
                (None, Some(name)) if !account => {
                    self.queues.entry(name.clone()).or_default().gate.hold(until);
                }
                (None, _) => {}
            }
        }
        for name in limiting {
            let found = self.queues.entry(name).or_default();
            let (rules, state) = (found.settings.queue_rules(), found.gate.breaker_state());
            tell(&mut found.gate, &rules);
            // A caller that found the concurrency used up should ask again.
            self.rings.ready |= found.gate.breaker_state() != state || found.settings.concurrency.is_some();
        }
        if let Some(key) = limit_key {
            tell(&mut self.key(&queue, &key).gate, &key_rules);
        }
    }

    // ---- settings ----

    /// Applies a change to gates, before it is applied to the settings. Returns the keys that it concerns.
    pub(super) fn change_gates(&mut self, queue: &str, change: &QueueChange) -> BTreeSet<String> {
        let now = self.now;
        let found = self.queues.entry(queue.to_owned()).or_default();
        match change {
            QueueChange::Breaker(new) => {
                let scope = |breaker: Option<BreakerSetting>| breaker.map(|breaker| breaker.scope);
                if scope(*new) != scope(found.settings.breaker) {
                    found.gate.reset_breaker();
                    found.keys.values_mut().for_each(|key| key.gate.reset_breaker());
                    return self.keys_of(queue);
                }
            }
            QueueChange::Rate(rates) => found.gate.change_rates(rates, now),
            QueueChange::KeyRate(rates) if *rates != found.settings.key_rate => {
                found.keys.values_mut().for_each(|key| key.gate.change_rates(rates, now));
                return self.keys_of(queue);
            }
            QueueChange::OpenBreaker(until) => found.gate.open_breaker(*until),
            QueueChange::ResetBreaker => found.gate.reset_breaker(),
            QueueChange::EndHold => found.gate.held_until = None,
            QueueChange::OpenKeyBreaker { key, until } => {
                self.key(queue, key).gate.open_breaker(*until);
                return BTreeSet::from([key.clone()]);
            }
            QueueChange::ResetKeyBreaker(key) => {
                self.key(queue, key).gate.reset_breaker();
                return BTreeSet::from([key.clone()]);
            }
            QueueChange::EndKeyHold(key) => {
                self.key(queue, key).gate.held_until = None;
                return BTreeSet::from([key.clone()]);
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
            | QueueChange::Account(_) => {}
        }
        BTreeSet::new()
    }

    /// All known keys of a queue.
    pub(super) fn keys_of(&self, queue: &str) -> BTreeSet<String> {
        self.queues.get(queue).map(|queue| queue.keys.keys().cloned().collect()).unwrap_or_default()
    }

    /// Drops a key without tasks. Its gate stays while it has state.
    pub(super) fn forget_key(&mut self, queue: &str, key: &str) {
        let now = self.now;
        let kept = self.key(queue, key);
        kept.last = None;
        if kept.shut.is_none() && kept.gate.is_at_rest(now) {
            self.queues.entry(queue.to_owned()).or_default().keys.remove(key);
        }
    }

    // ---- queries ----

    pub(super) fn key_records(&self) -> Vec<KeyRecord> {
        let mut records = Vec::new();
        for (name, queue) in &self.queues {
            let mut shut: Vec<(&String, &KeyEntry, Closed)> =
                queue.keys.iter().filter_map(|(key, kept)| Some((key, kept, kept.shut?))).collect();
            // Keys without an end time come last.
            shut.sort_by_key(|(key, _, shut)| (shut.until.is_none(), shut.until, (*key).clone()));
            let has_breaker = queue.settings.key_rules().breaker.is_some();
            records.extend(shut.into_iter().map(|(key, kept, shut)| KeyRecord {
                queue: name.clone(),
                key: key.clone(),
                shut,
                held_until: kept.gate.held_until.filter(|until| *until > self.now),
                breaker: (has_breaker || kept.gate.breaker.is_some()).then(|| kept.gate.breaker_state()),
            }));
        }
        records.truncate(MAX_KEYS_SHOWN);
        records
    }
}

/// Whether an attempt had started when it ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Yes,
    No,
}

/// Whether `after` opens sooner than `before`; without a time it never opens.
fn sooner(before: Option<Closed>, after: Option<Closed>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            after.until.is_some_and(|after| before.until.is_none_or(|before| after < before))
        }
        (None | Some(_), None | Some(_)) => false,
    }
}
