//! The claim gate of a queue or of a limit key: whether one more of its tasks may start now.
//!
//! Three things close it: a hold (a handler reported "too many requests" with a retry time), an open circuit breaker, and an
//! exhausted rate limit. A store persists a [`Gate`] with each queue and each key, asks it in the transaction that claims, and
//! reports the outcomes of attempts to it. Tasks that a key's gate refuses are parked; [`Gate::line`] says which are admitted again.

use crate::breaker::{Breaker, BreakerPolicy, BreakerState, Pass, Trip};
use crate::decide::Effect;
use crate::id::TaskId;
use crate::rate::{Bucket, Rate, Taken};
use crate::state::Wait;
use crate::time::Timestamp;

/// The number of tasks of a key that are ready at once after its gate has parked some: parked tasks are readmitted gradually,
/// and a claim that takes from the key admits the next ones.
pub const AHEAD: usize = 128;

/// The rules of a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateRules {
    /// Rate limits; all of them apply.
    pub rates: Vec<Rate>,
    /// When the breaker opens; `None`: only manually.
    pub breaker: Option<BreakerPolicy>,
}

impl GateRules {
    /// Whether there are no rules.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.rates.is_empty() && self.breaker.is_none()
    }
}

/// An attempt that passes through a half-open breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    pub task: TaskId,
    /// The token of its lease.
    pub token: u64,
}

/// Why a gate is closed, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closed {
    pub why: Wait,
    /// When to ask again; `None`: when something changes.
    pub until: Option<Timestamp>,
}

/// Whether one more task may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GateVerdict {
    /// The task may start, and its cost was taken.
    Go,
    /// The task may start, and its outcome decides for all others. The caller that starts it records it in [`Gate::probe`].
    Probe,
    /// The task may not start; nothing was taken.
    Wait(Closed),
}

/// How many of the tasks that wait at a gate may be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The number of tasks, from the front.
    pub let_in: usize,
    /// What the remaining tasks wait for; `None`: not for the gate.
    pub shut: Option<Closed>,
}

/// A claim gate. All fields are public, so that a store can persist and restore it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Nothing starts before this time.
    pub held_until: Option<Timestamp>,
    /// The remaining tokens of its rate limits; `None`: the buckets are full.
    pub bucket: Option<Bucket>,
    /// The circuit breaker; `None`: closed, with nothing counted.
    pub breaker: Option<Breaker>,
    /// The one attempt that passes through the half-open breaker.
    pub probe: Option<Probe>,
}

impl Gate {
    /// Returns whether a task of this cost may start now. The cost is taken only if it may.
    pub fn ask(&mut self, rules: &GateRules, cost: u32, now: Timestamp) -> GateVerdict {
        if let Some(shut) = self.held(now) {
            return GateVerdict::Wait(shut);
        }
        let (pass, breaker) = self.ask_breaker(rules, now);
        if let Pass::Wait(until) = pass {
            return GateVerdict::Wait(Closed { why: Wait::BreakerOpen, until });
        }
        if let Some(until) = self.take(rules, cost, now) {
            let until = Some(until).filter(|until| *until < FOR_EVER);
            return GateVerdict::Wait(Closed { why: Wait::RateLimited, until });
        }
        self.breaker = breaker;
        if pass == Pass::Probe { GateVerdict::Probe } else { GateVerdict::Go }
    }

    /// Why the gate is closed to every task regardless of cost; `None`: it is open.
    #[must_use]
    pub fn closed(&self, rules: &GateRules, now: Timestamp) -> Option<Closed> {
        let open = GateRules { rates: Vec::new(), breaker: rules.breaker };
        match self.clone().ask(&open, 1, now) {
            GateVerdict::Go | GateVerdict::Probe => None,
            GateVerdict::Wait(shut) => Some(shut),
        }
    }

    /// How many of a line of tasks with these costs may be admitted, when `ready` others were admitted before and have not started.
    #[must_use]
    pub fn line(&self, rules: &GateRules, ready: usize, costs: &[u32], now: Timestamp) -> Admitted {
        let mut gate = self.clone();
        if let Some(shut) = gate.closed(rules, now) {
            return Admitted { let_in: 0, shut: Some(shut) };
        }
        // The cost of the others is not looked up: it is at least one token, and the claim decides anyway.
        let before = std::iter::repeat_n(&1, ready);
        for (place, cost) in before.chain(costs).enumerate() {
            match gate.ask(rules, *cost, now) {
                GateVerdict::Go | GateVerdict::Probe => {}
                GateVerdict::Wait(shut) => {
                    return Admitted { let_in: place.saturating_sub(ready), shut: Some(shut) };
                }
            }
        }
        Admitted { let_in: costs.len(), shut: None }
    }

    /// Throttles: nothing starts before `until`. The later of two holds counts.
    pub fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(Some(until));
    }

    /// Whether the outcome of this attempt counts: while a probe is running, only the probe's own does.
    #[must_use]
    pub fn listens_to(&self, attempt: Probe) -> bool {
        self.probe.is_none_or(|probe| probe == attempt)
    }

    /// Records the effect of a finished attempt that counts (see [`listens_to`](Self::listens_to)).
    pub fn ended(&mut self, rules: &GateRules, effect: Effect, now: Timestamp) {
        let was_probe = self.probe.take().is_some();
        let Some(policy) = &rules.breaker else { return };
        let mut breaker = self.breaker.take().unwrap_or_else(Breaker::closed);
        match effect {
            Effect::BreakerSuccess => breaker.success(policy, now),
            Effect::BreakerFailure => breaker.failure(policy, now),
            Effect::None
            | Effect::HoldUntil(_)
            | Effect::HoldAccount(_)
            | Effect::PauseQueue
            | Effect::PauseForBudget => {
                if was_probe {
                    breaker.abandon_probe(now);
                }
            }
        }
        self.breaker = Some(breaker).filter(|breaker| *breaker != Breaker::closed());
    }

    /// Returns the cost of an attempt that was handed back before it started.
    pub fn give_back(&mut self, cost: u32) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(cost.into());
        }
    }

    /// Opens the breaker manually; `None`: until a user resets it. The outcome of a running probe no longer decides anything.
    pub fn open_breaker(&mut self, until: Option<Timestamp>) {
        self.probe = None;
        self.breaker.get_or_insert_with(Breaker::closed).open(until);
    }

    /// Closes the breaker and clears its counters.
    pub fn reset_breaker(&mut self) {
        self.probe = None;
        self.breaker = None;
    }

    /// Changes the rates: what was used counts as used of the new ones. Without rates nothing is remembered.
    pub fn change_rates(&mut self, rates: &[Rate], now: Timestamp) {
        let bucket = self.bucket.take().filter(|_| !rates.is_empty());
        self.bucket = bucket.map(|bucket| bucket.with_rates(rates, now));
    }

    /// The state of the breaker.
    #[must_use]
    pub fn breaker_state(&self) -> BreakerState {
        self.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.state)
    }

    /// Whether the gate has no state worth persisting: a new gate would answer alike.
    #[must_use]
    pub fn is_at_rest(&self, now: Timestamp) -> bool {
        self.held(now).is_none()
            && self.probe.is_none()
            && self.breaker.is_none()
            && self.bucket.as_ref().is_none_or(|bucket| bucket.is_full(now))
    }

    fn held(&self, now: Timestamp) -> Option<Closed> {
        let until = self.held_until.filter(|until| now < *until)?;
        Some(Closed { why: Wait::RateLimited, until: Some(until).filter(|until| *until < FOR_EVER) })
    }

    /// The breaker's answer, and the breaker as it will be once the task has started.
    fn ask_breaker(&self, rules: &GateRules, now: Timestamp) -> (Pass, Option<Breaker>) {
        if self.probe.is_some() {
            return (Pass::Wait(None), None);
        }
        let Some(mut breaker) = self.breaker.clone() else { return (Pass::Go, None) };
        let Some(policy) = &rules.breaker else {
            // It was opened manually, and no policy says how to probe: it closes when its time is over.
            return match breaker.ask(&BY_HAND, now) {
                Pass::Wait(until) => (Pass::Wait(until), None),
                Pass::Go | Pass::Probe => (Pass::Go, None),
            };
        };
        (breaker.ask(policy, now), Some(breaker))
    }

    /// Takes from the rate limits, or returns the time at which there are enough tokens.
    fn take(&mut self, rules: &GateRules, cost: u32, now: Timestamp) -> Option<Timestamp> {
        if rules.rates.is_empty() {
            self.bucket = None;
            return None;
        }
        let mut bucket = match self.bucket.take() {
            Some(bucket) => bucket.with_rates(&rules.rates, now),
            None => Bucket::full(&rules.rates, now),
        };
        let taken = bucket.take(cost.into(), now);
        self.bucket = Some(bucket);
        match taken {
            Taken::Granted => None,
            Taken::WaitUntil(until) => Some(until),
        }
    }
}

/// Later than any clock ever shows.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);
/// Placeholder for a breaker without a policy: only its `until` counts.
const BY_HAND: BreakerPolicy =
    BreakerPolicy { trip: Trip::Consecutive(u32::MAX), reset: std::time::Duration::ZERO };

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::Id;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn rate(amount: u64) -> Rate {
        Rate { amount, per: SECOND, burst: amount }
    }

    fn rated(amount: u64) -> GateRules {
        GateRules { rates: vec![rate(amount)], breaker: None }
    }

    fn broken_after(failures: u32) -> GateRules {
        let policy = BreakerPolicy { trip: Trip::Consecutive(failures), reset: SECOND };
        GateRules { rates: Vec::new(), breaker: Some(policy) }
    }

    const fn attempt(number: u64) -> Probe {
        Probe { task: TaskId(Id::from_bits(number as u128)), token: 1 }
    }

    const fn wait(why: Wait, until: i64) -> GateVerdict {
        GateVerdict::Wait(Closed { why, until: Some(Timestamp::from_millis(until)) })
    }

    #[test]
    fn nothing_begins_before_a_hold_is_over_and_the_longer_one_counts() {
        let (mut gate, none) = (Gate::default(), GateRules::default());
        assert_eq!(gate.ask(&none, 1, at(0)), GateVerdict::Go);
        gate.hold(at(50));
        gate.hold(at(20));
        assert_eq!(gate.ask(&none, 1, at(49)), wait(Wait::RateLimited, 50));
        assert!(!gate.is_at_rest(at(49)));
        assert_eq!(gate.ask(&none, 1, at(50)), GateVerdict::Go);
        assert!(gate.is_at_rest(at(50)));
    }

    #[test]
    fn a_hold_without_an_end_waits_until_it_is_ended() {
        let (mut gate, none) = (Gate::default(), GateRules::default());
        gate.hold(FOR_EVER);
        let shut = Closed { why: Wait::RateLimited, until: None };
        assert_eq!(gate.ask(&none, 1, at(0)), GateVerdict::Wait(shut));
    }

    #[test]
    fn a_rate_lets_so_many_through_and_a_refusal_costs_nothing() {
        let (mut gate, rules) = (Gate::default(), rated(2));
        assert_eq!(gate.ask(&rules, 1, at(0)), GateVerdict::Go);
        assert_eq!(gate.ask(&rules, 2, at(0)), wait(Wait::RateLimited, 500));
        assert_eq!(gate.ask(&rules, 1, at(0)), GateVerdict::Go);
        assert_eq!(gate.ask(&rules, 1, at(0)), wait(Wait::RateLimited, 500));
        gate.give_back(1);
        assert_eq!(gate.ask(&rules, 1, at(0)), GateVerdict::Go);
        assert!(!gate.is_at_rest(at(999)));
        assert!(gate.is_at_rest(at(1_000)));
    }

    #[test]
    fn other_rates_count_what_was_used() {
        let mut gate = Gate::default();
        assert_eq!(gate.ask(&rated(10), 7, at(0)), GateVerdict::Go);
        let minute = Rate { amount: 60, per: 60 * SECOND, burst: 10 };
        let slower = GateRules { rates: vec![minute], breaker: None };
        assert_eq!(gate.ask(&slower, 3, at(0)), GateVerdict::Go);
        assert_eq!(gate.ask(&slower, 1, at(0)), wait(Wait::RateLimited, 1_000));
        assert_eq!(gate.ask(&GateRules::default(), 1_000, at(0)), GateVerdict::Go, "no rate any more");
    }

    #[test]
    fn an_open_breaker_lets_one_probe_through_and_only_its_end_decides() {
        let (mut gate, rules) = (Gate::default(), broken_after(2));
        for _ in 0..2 {
            assert_eq!(gate.ask(&rules, 1, at(0)), GateVerdict::Go);
            gate.ended(&rules, Effect::BreakerFailure, at(0));
        }
        assert_eq!(gate.ask(&rules, 1, at(999)), wait(Wait::BreakerOpen, 1_000));
        assert_eq!(gate.ask(&rules, 1, at(1_000)), GateVerdict::Probe);
        gate.probe = Some(attempt(7));
        let shut = Closed { why: Wait::BreakerOpen, until: None };
        assert_eq!(gate.ask(&rules, 1, at(100_000)), GateVerdict::Wait(shut), "however long the probe takes");
        assert!(!gate.listens_to(attempt(6)) && gate.listens_to(attempt(7)));
        gate.ended(&rules, Effect::BreakerSuccess, at(100_000));
        assert_eq!(gate, Gate::default(), "it is closed, and has forgotten");
    }

    #[test]
    fn a_probe_that_says_nothing_makes_way_for_the_next_one() {
        let (mut gate, rules) = (Gate::default(), broken_after(1));
        gate.ended(&rules, Effect::BreakerFailure, at(0));
        for effect in [Effect::None, Effect::HoldUntil(at(0)), Effect::PauseQueue, Effect::PauseForBudget] {
            assert_eq!(gate.ask(&rules, 1, at(1_000)), GateVerdict::Probe, "{effect:?}");
            gate.probe = Some(attempt(1));
            gate.ended(&rules, effect, at(1_000));
        }
        assert_eq!(gate.ask(&rules, 1, at(1_000)), GateVerdict::Probe);
        gate.probe = Some(attempt(2));
        gate.ended(&rules, Effect::BreakerFailure, at(1_000));
        assert_eq!(gate.ask(&rules, 1, at(1_999)), wait(Wait::BreakerOpen, 2_000));
    }

    #[test]
    fn a_probe_waits_for_a_token_too() {
        let rules = GateRules { rates: vec![rate(1)], ..broken_after(1) };
        let mut gate = Gate::default();
        assert_eq!(gate.ask(&rules, 1, at(900)), GateVerdict::Go);
        gate.ended(&rules, Effect::BreakerFailure, at(0));
        assert_eq!(gate.ask(&rules, 1, at(1_000)), wait(Wait::RateLimited, 1_900));
        assert_eq!(gate.breaker_state(), BreakerState::Open { until: at(1_000) }, "no task went");
        assert_eq!(gate.ask(&rules, 1, at(1_900)), GateVerdict::Probe);
    }

    #[test]
    fn by_hand_it_opens_and_closes_with_or_without_a_policy() {
        for rules in [GateRules::default(), broken_after(3)] {
            let mut gate = Gate::default();
            gate.open_breaker(None);
            let shut = Closed { why: Wait::BreakerOpen, until: None };
            assert_eq!(gate.ask(&rules, 1, at(1 << 50)), GateVerdict::Wait(shut));
            gate.reset_breaker();
            assert_eq!(gate.ask(&rules, 1, at(0)), GateVerdict::Go);
            gate.open_breaker(Some(at(10)));
            assert_eq!(gate.ask(&rules, 1, at(9)), wait(Wait::BreakerOpen, 10));
            let after = if rules.is_none() { GateVerdict::Go } else { GateVerdict::Probe };
            assert_eq!(gate.ask(&rules, 1, at(10)), after);
        }
    }

    #[test]
    fn a_line_is_let_in_as_far_as_the_tokens_go() {
        let (gate, rules) = (Gate::default(), rated(10));
        let shut = |until| Some(Closed { why: Wait::RateLimited, until: Some(at(until)) });
        assert_eq!(gate.line(&rules, 0, &[1; 4], at(0)), Admitted { let_in: 4, shut: None });
        assert_eq!(gate.line(&rules, 7, &[1; 4], at(0)), Admitted { let_in: 3, shut: shut(100) });
        assert_eq!(gate.line(&rules, 12, &[], at(0)), Admitted { let_in: 0, shut: shut(100) });
        assert_eq!(gate.line(&rules, 0, &[5, 7, 1], at(0)), Admitted { let_in: 1, shut: shut(200) });
        assert_eq!(gate.line(&rules, 0, &[50, 1], at(0)), Admitted { let_in: 1, shut: shut(4_100) });
    }

    #[test]
    fn a_line_at_a_breaker_sends_one_probe_ahead() {
        let (mut gate, rules) = (Gate::default(), broken_after(1));
        gate.ended(&rules, Effect::BreakerFailure, at(0));
        let shut = |until| Some(Closed { why: Wait::BreakerOpen, until: Some(at(until)) });
        assert_eq!(gate.line(&rules, 0, &[1; 4], at(500)), Admitted { let_in: 0, shut: shut(1_000) });
        assert_eq!(gate.line(&rules, 0, &[1; 4], at(1_000)), Admitted { let_in: 1, shut: shut(2_000) });
        assert_eq!(gate.line(&rules, 1, &[1; 4], at(1_000)), Admitted { let_in: 0, shut: shut(2_000) });
    }
}
