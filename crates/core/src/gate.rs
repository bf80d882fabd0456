//! The gate of a queue, or of a limit key: whether one more of its tasks may begin now.
//!
//! Three things close it: a hold (somebody said "too many requests, come back then"), a breaker that is open, and a rate
//! that is used up. A store keeps a [`Gate`] with each queue and each key, asks it in the transaction that claims, and
//! tells it how attempts end. What the gate of a key refuses is parked; [`Gate::line`] says what is let in again.

use crate::breaker::{Breaker, BreakerPolicy, BreakerState, Pass, Trip};
use crate::decide::Effect;
use crate::id::TaskId;
use crate::rate::{Bucket, Rate, Taken};
use crate::state::Wait;
use crate::time::Timestamp;

/// So many tasks of a key are ready at once, where its gate had parked some: whatever is let in again comes a little at a
/// time, and a claim that takes from the key lets the next ones in.
pub const AHEAD: usize = 128;

/// What holds for a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateRules {
    /// How much may begin in a time; all of them hold.
    pub rates: Vec<Rate>,
    /// When the breaker opens; `None`: only by hand.
    pub breaker: Option<BreakerPolicy>,
}

impl GateRules {
    /// Whether there are none.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.rates.is_empty() && self.breaker.is_none()
    }
}

/// An attempt that goes through a half-open breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// The task.
    pub task: TaskId,
    /// The lease it runs under.
    pub token: u64,
}

/// Why a gate is closed, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closed {
    /// Why.
    pub why: Wait,
    /// When to ask again; `None`: when something changes.
    pub until: Option<Timestamp>,
}

/// Whether one more task may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GateVerdict {
    /// It may, and what it costs was taken.
    Go,
    /// It may, and its end decides for all others. Whoever lets it begin keeps it in [`Gate::probe`].
    Probe,
    /// It may not; nothing was taken.
    Wait(Closed),
}

/// What may be let in of the tasks that wait at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// So many, from the front.
    pub let_in: usize,
    /// What the others wait for; `None`: not for the gate.
    pub shut: Option<Closed>,
}

/// A gate. All of it is open to read and to build, so that a store can keep it and bring it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Nothing begins before this moment.
    pub held_until: Option<Timestamp>,
    /// What is left of its rates; `None`: all of it.
    pub bucket: Option<Bucket>,
    /// Its breaker; `None`: closed, and nothing was counted.
    pub breaker: Option<Breaker>,
    /// The one attempt that goes through the half-open breaker.
    pub probe: Option<Probe>,
}

impl Gate {
    /// Whether a task of this cost may begin now. What it costs is taken when it may, and only then.
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

    /// Why the gate is closed to every task, whatever it costs; `None`: it is open.
    #[must_use]
    pub fn closed(&self, rules: &GateRules, now: Timestamp) -> Option<Closed> {
        let open = GateRules { rates: Vec::new(), breaker: rules.breaker };
        match self.clone().ask(&open, 1, now) {
            GateVerdict::Go | GateVerdict::Probe => None,
            GateVerdict::Wait(shut) => Some(shut),
        }
    }

    /// What may be let in of a line of tasks that cost this much, where `ready` others were let in before and have not begun.
    #[must_use]
    pub fn line(&self, rules: &GateRules, ready: usize, costs: &[u32], now: Timestamp) -> Admitted {
        let mut gate = self.clone();
        if let Some(shut) = gate.closed(rules, now) {
            return Admitted { let_in: 0, shut: Some(shut) };
        }
        // What the others cost is not looked up: it is a token at least, and the claim decides anyway.
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

    /// Nothing begins before `until`. The longer of two holds counts.
    pub fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(Some(until));
    }

    /// Whether the end of this attempt is news: while a probe is under way, only its own end is.
    #[must_use]
    pub fn listens_to(&self, attempt: Probe) -> bool {
        self.probe.is_none_or(|probe| probe == attempt)
    }

    /// An attempt that the gate listens to has ended, with this effect.
    pub fn ended(&mut self, rules: &GateRules, effect: Effect, now: Timestamp) {
        let was_probe = self.probe.take().is_some();
        let Some(policy) = &rules.breaker else { return };
        let mut breaker = self.breaker.take().unwrap_or_else(Breaker::closed);
        match effect {
            Effect::BreakerSuccess => breaker.success(policy, now),
            Effect::BreakerFailure => breaker.failure(policy, now),
            Effect::None | Effect::HoldUntil(_) | Effect::PauseQueue | Effect::PauseForBudget
                if was_probe =>
            {
                breaker.abandon_probe(now);
            }
            Effect::None | Effect::HoldUntil(_) | Effect::PauseQueue | Effect::PauseForBudget => {}
        }
        self.breaker = Some(breaker).filter(|breaker| *breaker != Breaker::closed());
    }

    /// An attempt was given back that had not begun: what it took is there again.
    pub fn give_back(&mut self, cost: u32) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(cost.into());
        }
    }

    /// Opens the breaker by hand; `None` is until somebody resets it. A probe that is under way decides nothing any more.
    pub fn open_breaker(&mut self, until: Option<Timestamp>) {
        self.probe = None;
        self.breaker.get_or_insert_with(Breaker::closed).open(until);
    }

    /// Closes the breaker, and forgets what it has counted.
    pub fn reset_breaker(&mut self) {
        self.probe = None;
        self.breaker = None;
    }

    /// Where the breaker stands.
    #[must_use]
    pub fn breaker_state(&self) -> BreakerState {
        self.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.state)
    }

    /// Whether it has nothing to remember: a new gate would answer alike.
    #[must_use]
    pub fn is_at_rest(&self, rules: &GateRules, now: Timestamp) -> bool {
        self.held(now).is_none()
            && self.probe.is_none()
            && self.breaker.is_none()
            && self.bucket.as_ref().is_none_or(|bucket| bucket.clone().with_rates(&rules.rates).is_full(now))
    }

    fn held(&self, now: Timestamp) -> Option<Closed> {
        let until = self.held_until.filter(|until| now < *until)?;
        Some(Closed { why: Wait::RateLimited, until: Some(until).filter(|until| *until < FOR_EVER) })
    }

    /// What the breaker says, and how it stands once the task has begun.
    fn ask_breaker(&self, rules: &GateRules, now: Timestamp) -> (Pass, Option<Breaker>) {
        if self.probe.is_some() {
            return (Pass::Wait(None), None);
        }
        let Some(mut breaker) = self.breaker.clone() else { return (Pass::Go, None) };
        let Some(policy) = &rules.breaker else {
            // It was opened by hand, and nobody said how to find out whether it works again: it closes when its time is over.
            return match breaker.ask(&BY_HAND, now) {
                Pass::Wait(until) => (Pass::Wait(until), None),
                Pass::Go | Pass::Probe => (Pass::Go, None),
            };
        };
        (breaker.ask(policy, now), Some(breaker))
    }

    /// Takes from the rates, or says when there is enough.
    fn take(&mut self, rules: &GateRules, cost: u32, now: Timestamp) -> Option<Timestamp> {
        if rules.rates.is_empty() {
            self.bucket = None;
            return None;
        }
        let mut bucket = match self.bucket.take() {
            Some(bucket) => bucket.with_rates(&rules.rates),
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

/// No moment that a clock ever shows.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);
/// Stands in where a breaker has no policy: only its moment counts.
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
        assert!(!gate.is_at_rest(&none, at(49)));
        assert_eq!(gate.ask(&none, 1, at(50)), GateVerdict::Go);
        assert!(gate.is_at_rest(&none, at(50)));
    }

    #[test]
    fn a_hold_without_an_end_waits_for_somebody() {
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
        assert!(!gate.is_at_rest(&rules, at(999)));
        assert!(gate.is_at_rest(&rules, at(1_000)));
    }

    #[test]
    fn other_rates_begin_with_the_tokens_that_are_left() {
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
        assert_eq!(gate.breaker_state(), BreakerState::Open { until: at(1_000) }, "nobody went");
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
