//! Circuit breaker: stop sending work that keeps failing, and probe carefully whether it works again.
//!
//! Closed: all work passes. At the policy's trip point the breaker opens and all work waits. After the reset time it
//! is half open: one probe passes, and its outcome decides. A claim asks the breaker before it takes from a lane; the
//! outcome of an attempt is reported here through its [`Effect`](crate::Effect).

use std::time::Duration;

use crate::time::{Timestamp, millis};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BreakerPolicy {
    /// The condition that opens the breaker.
    pub trip: Trip,
    /// How long the breaker stays open before a probe may pass.
    pub reset: Duration,
}

impl BreakerPolicy {
    /// The time of the next probe: at least a millisecond from now, because a reset of zero would let all work
    /// through as probes.
    fn next_probe(&self, now: Timestamp) -> Timestamp {
        now.after(self.reset.max(Duration::from_millis(1)))
    }
}

/// The condition that opens a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trip {
    /// This many failures without a success in between.
    Consecutive(u32),
    /// This percentage of failures among the attempts that finished within the window.
    Rate {
        /// The percentage at which the breaker opens.
        failures_percent: u8,
        /// With fewer finished attempts than this the breaker stays closed.
        at_least: u32,
        /// The length of the sliding window.
        window: Duration,
    },
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// All work passes.
    Closed,
    /// All work waits.
    Open {
        /// When a probe may pass.
        until: Timestamp,
    },
    /// One probe is running; all other work waits.
    HalfOpen {
        /// When another probe may pass if this one never reports: its node may have died.
        until: Timestamp,
    },
}

/// Whether work may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Work may start.
    Go,
    /// This one attempt may start; its outcome decides for all others.
    Probe,
    /// Work may not start. Ask again at this time, or sooner if the breaker changes; `None`: not before a user
    /// resets it.
    Wait(Option<Timestamp>),
}

/// What became of a call that a breaker let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallResult {
    pub admission: CallAdmission,
    pub verdict: CallVerdict,
}

/// As what a call was let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallAdmission {
    /// The breaker was closed.
    Usual,
    /// The breaker was half open.
    Probe,
}

/// What a call says about the service that it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallVerdict {
    Success,
    Failure,
    /// Nothing: the call was given up, or failed for reasons of the caller's own.
    None,
}

/// The outcomes counted in one part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutcomeCounts {
    /// The start of this part.
    pub since: Timestamp,
    pub successes: u32,
    pub failures: u32,
}

/// A circuit breaker: its state and its counters. All fields are public, so that a store can persist and
/// restore it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    pub state: BreakerState,
    /// Failures since the last success. Counted for [`Trip::Consecutive`].
    pub in_a_row: u32,
    /// Recent outcomes, oldest first, in at most [`Breaker::PARTS`] parts. Counted for [`Trip::Rate`].
    pub lately: Vec<OutcomeCounts>,
}

impl Breaker {
    /// The number of parts of a window: memory is bounded, and an outcome is dropped at most a tenth of
    /// the window too early, never too late.
    pub const PARTS: usize = 10;

    /// A closed breaker that has counted nothing.
    #[must_use]
    pub const fn closed() -> Self {
        Self { state: BreakerState::Closed, in_a_row: 0, lately: Vec::new() }
    }

    /// Returns whether work may start now. [`Pass::Probe`] makes the breaker half open: the caller that gets it
    /// must report the outcome, or call [`abandon_probe`](Self::abandon_probe).
    pub fn ask(&mut self, policy: &BreakerPolicy, now: Timestamp) -> Pass {
        match self.state {
            BreakerState::Closed => Pass::Go,
            BreakerState::Open { until: FOR_EVER } => Pass::Wait(None),
            BreakerState::Open { until } | BreakerState::HalfOpen { until } if now < until => {
                Pass::Wait(Some(until))
            }
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => {
                self.state = BreakerState::HalfOpen { until: policy.next_probe(now) };
                Pass::Probe
            }
        }
    }

    /// Records a success. A half-open breaker closes; an open one ignores it as stale.
    pub fn success(&mut self, policy: &BreakerPolicy, now: Timestamp) {
        match self.state {
            BreakerState::Closed => {
                self.in_a_row = 0;
                self.count(policy, now, |tally| tally.successes = tally.successes.saturating_add(1));
            }
            BreakerState::Open { .. } => {}
            BreakerState::HalfOpen { .. } => self.reset(),
        }
    }

    /// Records a failure. A half-open breaker opens again; an open one ignores it as stale, and the wait is not
    /// prolonged.
    pub fn failure(&mut self, policy: &BreakerPolicy, now: Timestamp) {
        match self.state {
            BreakerState::Closed => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                self.count(policy, now, |tally| tally.failures = tally.failures.saturating_add(1));
                if self.trips(policy) {
                    self.state = BreakerState::Open { until: policy.next_probe(now) };
                }
            }
            BreakerState::Open { .. } => {}
            BreakerState::HalfOpen { .. } => {
                self.state = BreakerState::Open { until: policy.next_probe(now) };
            }
        }
    }

    /// Ends a probe that showed nothing about the resource behind the breaker: it was handed back or cancelled, or its
    /// node died. The next caller to ask gets the probe.
    pub fn abandon_probe(&mut self, now: Timestamp) {
        match self.state {
            BreakerState::Closed | BreakerState::Open { .. } => {}
            BreakerState::HalfOpen { .. } => self.state = BreakerState::Open { until: now },
        }
    }

    /// Opens the breaker manually; `None`: until a user resets it.
    pub fn open(&mut self, until: Option<Timestamp>) {
        self.state = BreakerState::Open { until: until.unwrap_or(FOR_EVER) };
    }

    /// Closes the breaker, manually or after a successful probe, and clears its counters.
    pub fn reset(&mut self) {
        *self = Self::closed();
    }

    /// Records the result of a call. While the breaker is not closed, only a probe decides: a call that began before the breaker
    /// opened says nothing about now.
    pub fn report(&mut self, policy: &BreakerPolicy, result: CallResult, now: Timestamp) {
        let CallResult { admission, verdict } = result;
        if admission == CallAdmission::Usual && self.state != BreakerState::Closed {
            return;
        }
        match (verdict, admission) {
            (CallVerdict::Success, _) => self.success(policy, now),
            (CallVerdict::Failure, _) => self.failure(policy, now),
            (CallVerdict::None, CallAdmission::Probe) => self.abandon_probe(now),
            (CallVerdict::None, CallAdmission::Usual) => {}
        }
    }

    /// Counts an outcome into the newest part of the window, or into a new part.
    fn count(&mut self, policy: &BreakerPolicy, now: Timestamp, add: impl FnOnce(&mut OutcomeCounts)) {
        let window = match policy.trip {
            Trip::Consecutive(_) => return,
            Trip::Rate { window, .. } => window,
        };
        // When the clock stepped back, count into the newest part; nothing old becomes valid again.
        let now = self.lately.last().map_or(now, |newest| newest.since.max(now));
        let oldest = now.before(window);
        self.lately.retain(|tally| tally.since > oldest);
        // Rounded up, so that a whole window never has more parts than fit.
        let part = Duration::from_millis(millis(window).unsigned_abs().div_ceil(Self::PARTS as u64).max(1));
        let newest_is_over = |newest: &OutcomeCounts| now.since(newest.since) >= part;
        if self.lately.last().is_none_or(newest_is_over) {
            // Only after a change of policy can there be more parts than fit.
            if self.lately.len() >= Self::PARTS {
                self.lately.remove(0);
            }
            self.lately.push(OutcomeCounts { since: now, successes: 0, failures: 0 });
        }
        if let Some(newest) = self.lately.last_mut() {
            add(newest);
        }
    }

    fn trips(&self, policy: &BreakerPolicy) -> bool {
        match policy.trip {
            Trip::Consecutive(limit) => self.in_a_row >= limit,
            Trip::Rate { failures_percent, at_least, .. } => {
                let failures: u64 = self.lately.iter().map(|tally| u64::from(tally.failures)).sum();
                let successes: u64 = self.lately.iter().map(|tally| u64::from(tally.successes)).sum();
                let ends = failures + successes;
                ends >= u64::from(at_least) && failures * 100 >= ends * u64::from(failures_percent)
            }
        }
    }
}

/// Later than any clock ever shows.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Duration = Duration::from_secs(60);
    const AFTER_THREE: BreakerPolicy = BreakerPolicy { trip: Trip::Consecutive(3), reset: RESET };
    const HALF_OF_FOUR: BreakerPolicy = BreakerPolicy {
        trip: Trip::Rate { failures_percent: 50, at_least: 4, window: Duration::from_secs(10) },
        reset: RESET,
    };

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    fn tripped(policy: &BreakerPolicy, now: Timestamp) -> Breaker {
        let mut breaker = Breaker::closed();
        for _ in 0..1_000 {
            if breaker.state != BreakerState::Closed {
                return breaker;
            }
            breaker.failure(policy, now);
        }
        panic!("a thousand failures did not open it");
    }

    #[test]
    fn so_many_failures_in_a_row_open_it_and_a_success_between_starts_again() {
        let mut breaker = Breaker::closed();
        for _ in 0..10 {
            breaker.failure(&AFTER_THREE, at(0));
            breaker.failure(&AFTER_THREE, at(0));
            breaker.success(&AFTER_THREE, at(0));
        }
        assert_eq!(breaker.ask(&AFTER_THREE, at(0)), Pass::Go);
        for _ in 0..3 {
            assert_eq!(breaker.state, BreakerState::Closed);
            breaker.failure(&AFTER_THREE, at(1));
        }
        assert_eq!(breaker.state, BreakerState::Open { until: at(61) });
        assert_eq!(breaker.ask(&AFTER_THREE, at(60)), Pass::Wait(Some(at(61))));
    }

    #[test]
    fn after_the_reset_time_exactly_one_probe_goes() {
        let mut breaker = tripped(&AFTER_THREE, at(0));
        assert_eq!(breaker.ask(&AFTER_THREE, at(60)), Pass::Probe);
        for _ in 0..100 {
            assert_eq!(breaker.ask(&AFTER_THREE, at(61)), Pass::Wait(Some(at(120))));
        }
    }

    #[test]
    fn a_probe_that_succeeds_closes_it_and_forgets_what_was_counted() {
        for policy in [AFTER_THREE, HALF_OF_FOUR] {
            let mut breaker = tripped(&policy, at(0));
            assert_eq!(breaker.ask(&policy, at(60)), Pass::Probe);
            breaker.success(&policy, at(61));
            assert_eq!(breaker, Breaker::closed());
            breaker.failure(&policy, at(61));
            assert_eq!(breaker.ask(&policy, at(61)), Pass::Go);
        }
    }

    #[test]
    fn a_probe_that_fails_opens_it_for_another_reset_time() {
        let mut breaker = tripped(&AFTER_THREE, at(0));
        assert_eq!(breaker.ask(&AFTER_THREE, at(60)), Pass::Probe);
        breaker.failure(&AFTER_THREE, at(70));
        assert_eq!(breaker.ask(&AFTER_THREE, at(129)), Pass::Wait(Some(at(130))));
        assert_eq!(breaker.ask(&AFTER_THREE, at(130)), Pass::Probe);
    }

    #[test]
    fn late_reports_neither_prolong_nor_end_the_wait() {
        let mut breaker = tripped(&AFTER_THREE, at(0));
        let open = breaker.clone();
        for secs in 1..59 {
            breaker.failure(&AFTER_THREE, at(secs));
            breaker.success(&AFTER_THREE, at(secs));
        }
        assert_eq!(breaker, open);
    }

    #[test]
    fn while_a_probe_runs_only_its_result_decides() {
        let result = |admission, verdict| CallResult { admission, verdict };
        let half_open = |policy: &BreakerPolicy| {
            let mut breaker = tripped(policy, at(0));
            assert_eq!(breaker.ask(policy, at(60)), Pass::Probe);
            breaker
        };
        let before = half_open(&AFTER_THREE);
        for verdict in [CallVerdict::Success, CallVerdict::Failure, CallVerdict::None] {
            let mut breaker = before.clone();
            breaker.report(&AFTER_THREE, result(CallAdmission::Usual, verdict), at(61));
            assert_eq!(breaker, before, "{verdict:?}: it began before the breaker opened");
        }
        let mut breaker = half_open(&AFTER_THREE);
        breaker.report(&AFTER_THREE, result(CallAdmission::Probe, CallVerdict::None), at(61));
        assert_eq!(breaker.ask(&AFTER_THREE, at(61)), Pass::Probe, "another one may try");
        breaker.report(&AFTER_THREE, result(CallAdmission::Probe, CallVerdict::Failure), at(62));
        assert_eq!(breaker.state, BreakerState::Open { until: at(122) });
        assert_eq!(breaker.ask(&AFTER_THREE, at(122)), Pass::Probe);
        breaker.report(&AFTER_THREE, result(CallAdmission::Probe, CallVerdict::Success), at(123));
        assert_eq!(breaker, Breaker::closed());
    }

    #[test]
    fn a_probe_that_is_given_up_makes_way_for_the_next() {
        let mut breaker = tripped(&AFTER_THREE, at(0));
        assert_eq!(breaker.ask(&AFTER_THREE, at(60)), Pass::Probe);
        breaker.abandon_probe(at(62));
        assert_eq!(breaker.ask(&AFTER_THREE, at(62)), Pass::Probe);
        assert_eq!(breaker.ask(&AFTER_THREE, at(62)), Pass::Wait(Some(at(122))));
        // Without a probe there is nothing to abandon.
        let mut closed = Breaker::closed();
        closed.abandon_probe(at(0));
        assert_eq!(closed, Breaker::closed());
        let mut open = tripped(&AFTER_THREE, at(0));
        open.abandon_probe(at(1));
        assert_eq!(open.state, BreakerState::Open { until: at(60) });
    }

    #[test]
    fn a_probe_that_is_never_heard_of_blocks_for_one_reset_time_only() {
        let mut breaker = tripped(&AFTER_THREE, at(0));
        assert_eq!(breaker.ask(&AFTER_THREE, at(60)), Pass::Probe);
        assert_eq!(breaker.ask(&AFTER_THREE, at(119)), Pass::Wait(Some(at(120))));
        assert_eq!(breaker.ask(&AFTER_THREE, at(120)), Pass::Probe);
        assert_eq!(breaker.ask(&AFTER_THREE, at(120)), Pass::Wait(Some(at(180))));
    }

    #[test]
    fn a_hand_opens_it_for_a_time_or_for_good_and_closes_it() {
        let mut breaker = Breaker::closed();
        breaker.open(Some(at(10)));
        assert_eq!(breaker.ask(&AFTER_THREE, at(9)), Pass::Wait(Some(at(10))));
        assert_eq!(breaker.ask(&AFTER_THREE, at(10)), Pass::Probe);
        breaker.open(None);
        assert_eq!(breaker.ask(&AFTER_THREE, at(1_000_000_000)), Pass::Wait(None));
        breaker.failure(&AFTER_THREE, at(1_000_000_000));
        breaker.success(&AFTER_THREE, at(1_000_000_000));
        assert_eq!(breaker.ask(&AFTER_THREE, at(1_000_000_000)), Pass::Wait(None));
        breaker.reset();
        assert_eq!(breaker.ask(&AFTER_THREE, at(1_000_000_000)), Pass::Go);
    }

    #[test]
    fn a_share_of_failures_opens_it_once_enough_has_ended() {
        let mut breaker = Breaker::closed();
        breaker.failure(&HALF_OF_FOUR, at(0));
        breaker.failure(&HALF_OF_FOUR, at(1));
        breaker.success(&HALF_OF_FOUR, at(2));
        assert_eq!(breaker.state, BreakerState::Closed, "three ends say nothing yet");
        breaker.failure(&HALF_OF_FOUR, at(3));
        assert_eq!(breaker.state, BreakerState::Open { until: at(63) });

        let mut breaker = Breaker::closed();
        for _ in 0..100 {
            breaker.success(&HALF_OF_FOUR, at(0));
        }
        for _ in 0..99 {
            breaker.failure(&HALF_OF_FOUR, at(0));
        }
        assert_eq!(breaker.state, BreakerState::Closed, "99 of 199 is less than half");
        breaker.failure(&HALF_OF_FOUR, at(0));
        assert_eq!(breaker.state, BreakerState::Open { until: at(60) });
    }

    #[test]
    fn what_lies_before_the_window_does_not_count() {
        let mut breaker = Breaker::closed();
        for secs in 0..1_000 {
            breaker.failure(&HALF_OF_FOUR, at(secs * 4));
            assert_eq!(breaker.state, BreakerState::Closed, "three failures in ten seconds are not four");
        }
        for _ in 0..100 {
            breaker.success(&HALF_OF_FOUR, at(4_000));
        }
        for _ in 0..4 {
            breaker.failure(&HALF_OF_FOUR, at(4_010));
        }
        assert_eq!(breaker.state, BreakerState::Open { until: at(4_070) }, "the successes were long ago");
    }

    #[test]
    fn the_window_is_kept_in_a_few_parts_whatever_the_load_and_the_policy() {
        let windows =
            [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(77), RESET, Duration::MAX];
        let mut breaker = Breaker::closed();
        for round in 0..5_000_i64 {
            let window = windows[usize::try_from(round / 1_000).unwrap()];
            let trip = Trip::Rate { failures_percent: 101, at_least: 0, window };
            breaker.failure(&BreakerPolicy { trip, reset: RESET }, Timestamp::from_millis(round * 7));
            assert!(breaker.lately.len() <= Breaker::PARTS);
        }
    }

    #[test]
    fn a_clock_that_steps_back_keeps_what_was_counted() {
        let mut breaker = Breaker::closed();
        breaker.failure(&HALF_OF_FOUR, at(100));
        breaker.failure(&HALF_OF_FOUR, at(20));
        breaker.failure(&HALF_OF_FOUR, Timestamp::from_millis(i64::MIN));
        assert_eq!(breaker.state, BreakerState::Closed);
        breaker.failure(&HALF_OF_FOUR, at(100));
        assert_eq!(breaker.state, BreakerState::Open { until: at(160) });
    }

    #[test]
    fn a_reset_time_of_zero_still_sends_one_probe_at_a_time() {
        let policy = BreakerPolicy { trip: Trip::Consecutive(0), reset: Duration::ZERO };
        let mut breaker = tripped(&policy, at(0));
        let later = Timestamp::from_millis(1);
        assert_eq!(breaker.ask(&policy, at(0)), Pass::Wait(Some(later)));
        assert_eq!(breaker.ask(&policy, later), Pass::Probe);
        assert_eq!(breaker.ask(&policy, later), Pass::Wait(Some(Timestamp::from_millis(2))));
    }
}
