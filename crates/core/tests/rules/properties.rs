//! Property test of the rules: random operations on a task, and the invariants that must hold.
//!
//! The model below does what any store does around the rules: it keeps the state and the counters, and writes
//! the decisions. Independently, a recount of the history in the words of the table checks them, without looking at
//! the answers of the rules.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_core::{
    Cancelling, Effect, ErrorClass, Facts, Failure, Id, LeasePhase, MAX_ACCOUNT_HOLD, Next, Outcome, Policy,
    Readiness, Replaying, RetryPolicy, Seed, SessionId, State, StateName, TaskId, Timestamp, Wait, arrival,
    cancel, decide, lapsed, replay, too_late,
};
use proptest::prelude::*;

use crate::fixed::cases;

/// The state diagram: every transition that exists. A transition that is not listed must be unreachable, and each
/// listed one must be reached.
const EDGES: [(StateName, StateName); 13] = [
    // claim; cancel or `not_after`; `deadline`
    (StateName::Queued, StateName::Claimed),
    (StateName::Queued, StateName::Cancelled),
    (StateName::Queued, StateName::Failed),
    // start; hand-back or a dead node; the same with a cancel or a passed limit
    (StateName::Claimed, StateName::Running),
    (StateName::Claimed, StateName::Queued),
    (StateName::Claimed, StateName::Cancelled),
    (StateName::Claimed, StateName::Failed),
    // the attempt finishes
    (StateName::Running, StateName::Queued),
    (StateName::Running, StateName::Completed),
    (StateName::Running, StateName::Failed),
    (StateName::Running, StateName::Cancelled),
    // replay
    (StateName::Failed, StateName::Queued),
    (StateName::Cancelled, StateName::Queued),
];

/// An operation on a task.
#[derive(Clone, Debug)]
enum Op {
    Claim,
    Start,
    End(Outcome),
    Cancel,
    Replay,
    /// Maintenance checks whether a queued task is too late.
    Expire,
    /// Time passes, and due tasks become ready.
    Pass(Duration),
}

/// The history of the task since it was enqueued or last replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Started,
    Ended(LeasePhase, Outcome),
}

struct Model {
    policy: Policy,
    now: Timestamp,
    state: State,
    failures: u32,
    crashes: u32,
    node_deaths: u32,
    runs: u32,
    suspect: bool,
    cancel_requested: bool,
    not_after: Option<Timestamp>,
    deadline: Option<Timestamp>,
    history: Vec<Fact>,
    runs_before: u32,
    seen: BTreeSet<(StateName, StateName)>,
}

const START: Timestamp = Timestamp::from_millis(1_000_000);
const SESSION: SessionId = SessionId(Id::from_bits(7));

impl Model {
    fn enqueued(policy: Policy, scheduled_in: Duration, ends: Ends) -> Self {
        let run_at = START.after(scheduled_in);
        let (readiness, why) = arrival(run_at, START, Wait::New);
        Self {
            policy,
            now: START,
            state: State::Queued { readiness, why, run_at },
            failures: 0,
            crashes: 0,
            node_deaths: 0,
            runs: 0,
            suspect: false,
            cancel_requested: false,
            not_after: ends.not_after.map(|after| run_at.after(after)),
            deadline: ends.deadline.map(|after| run_at.after(after)),
            history: Vec::new(),
            runs_before: 0,
            seen: BTreeSet::new(),
        }
    }

    fn facts(&self, held: LeasePhase) -> Facts {
        Facts {
            id: TaskId(Id::from_bits(42)),
            phase: held,
            failures: self.failures,
            crashes: self.crashes,
            node_deaths: self.node_deaths,
            cancel_requested: self.cancel_requested,
            not_after: self.not_after,
            deadline: self.deadline,
        }
    }

    /// Does what a store would do, then checks every invariant.
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Claim => self.claim(),
            Op::Start => self.start(),
            Op::End(outcome) => self.end(outcome),
            Op::Cancel => self.cancel(),
            Op::Replay => self.replay(),
            Op::Expire => self.expire(),
            Op::Pass(time) => self.pass(*time),
        }
        self.recount();
    }

    fn claim(&mut self) {
        match self.state {
            State::Queued { readiness: Readiness::Ready, .. } => {
                // A claim never takes a task that is too late.
                self.expire();
                if self.state.name() == StateName::Queued {
                    self.go(State::Claimed { session: SESSION });
                }
            }
            State::Queued { readiness: Readiness::Waiting | Readiness::Parked, .. }
            | State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => {}
        }
    }

    fn start(&mut self) {
        match self.state {
            State::Claimed { session } => {
                self.runs += 1;
                self.history.push(Fact::Started);
                self.go(State::Running { session, started_at: self.now });
            }
            State::Queued { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => {}
        }
    }

    fn end(&mut self, outcome: &Outcome) {
        match outcome {
            // Only a started attempt can succeed or fail: a lazy start is written with the outcome.
            Outcome::Success | Outcome::Failed(_) => self.start(),
            Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled => {}
        }
        let held = match self.state {
            State::Claimed { .. } => LeasePhase::Claimed,
            State::Running { .. } => LeasePhase::Running,
            // The lease is lost: nothing is written.
            State::Queued { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return,
        };
        let asked = self.cancel_requested;
        let decided = decide(&self.facts(held), outcome, &self.policy, self.now);
        self.history.push(Fact::Ended(held, outcome.clone()));
        self.failures = decided.failures;
        self.crashes = decided.crashes;
        self.node_deaths = decided.node_deaths;
        self.suspect |= decided.becomes_suspect;
        assert_eq!(decided.becomes_suspect, *outcome == Outcome::NodeDied);
        assert_eq!(decided.effect, self.effect_of(outcome, &decided.effect));
        self.enter(decided.next);
        assert!(
            !asked || self.state.name().is_terminal(),
            "a cancel was asked for, and {:?} is no end",
            self.state
        );
    }

    /// The effect that the table specifies. The time of a hold is only known from the answer.
    fn effect_of(&self, outcome: &Outcome, answered: &Effect) -> Effect {
        let Outcome::Failed(failure) = outcome else {
            return if *outcome == Outcome::Success { Effect::BreakerSuccess } else { Effect::None };
        };
        match failure.class {
            ErrorClass::Transient
            | ErrorClass::Partial
            | ErrorClass::Timeout
            | ErrorClass::Stuck
            | ErrorClass::Crash => Effect::BreakerFailure,
            ErrorClass::Permanent => Effect::None,
            ErrorClass::QueueStop => Effect::PauseQueue,
            ErrorClass::Budget => Effect::PauseForBudget,
            ErrorClass::UsageLimit => {
                let longest = self.now.after(MAX_ACCOUNT_HOLD);
                assert!(
                    matches!(answered, Effect::HoldAccount(until) if (self.now..=longest).contains(until))
                );
                *answered
            }
            ErrorClass::RateLimited => match answered {
                Effect::HoldUntil(until) if *until >= self.now => *answered,
                Effect::HoldUntil(_)
                | Effect::HoldAccount(_)
                | Effect::None
                | Effect::BreakerSuccess
                | Effect::BreakerFailure
                | Effect::PauseQueue
                | Effect::PauseForBudget => panic!("rate limited, and the others hear {answered:?}"),
            },
        }
    }

    fn enter(&mut self, next: Next) {
        let finished_at = self.now;
        match next {
            Next::Queue { run_at, why } => {
                assert!(run_at >= self.now, "it would be due in the past");
                let too_late = lapsed(self.not_after, run_at) || lapsed(self.deadline, run_at);
                assert!(!too_late, "it would be queued for a time when it may not run");
                let (readiness, why) = arrival(run_at, self.now, why);
                self.go(State::Queued { readiness, why, run_at });
            }
            Next::Complete => self.go(State::Completed { finished_at }),
            Next::Fail(reason) => self.go(State::Failed { finished_at, reason }),
            Next::Cancel(reason) => self.go(State::Cancelled { finished_at, reason }),
        }
    }

    fn cancel(&mut self) {
        let before = self.state;
        match cancel(&self.state) {
            Cancelling::Now(reason) => self.enter(Next::Cancel(reason)),
            Cancelling::Mark => {
                assert!(before.name().is_leased());
                self.cancel_requested = true;
            }
            Cancelling::Ended(name) => {
                assert!(name.is_terminal());
                assert_eq!(self.state, before);
            }
        }
    }

    fn replay(&mut self) {
        match replay(&self.state) {
            Replaying::Requeue => {
                assert!(self.state.name().is_terminal() && self.state.name() != StateName::Completed);
                self.failures = 0;
                self.crashes = 0;
                self.node_deaths = 0;
                self.cancel_requested = false;
                self.not_after = None;
                self.deadline = None;
                self.history.clear();
                self.runs_before = self.runs;
                self.enter(Next::Queue { run_at: self.now, why: Wait::Replayed });
                assert!(matches!(self.state, State::Queued { readiness: Readiness::Ready, .. }));
            }
            Replaying::Hasten => match self.state {
                State::Queued { why, .. } => {
                    let (readiness, why) = arrival(self.now, self.now, why);
                    assert_eq!(readiness, Readiness::Ready);
                    self.state = State::Queued { readiness, why, run_at: self.now };
                }
                State::Claimed { .. }
                | State::Running { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. } => panic!("{:?} does not wait", self.state),
            },
            Replaying::Refused(name) => {
                assert_eq!(name, self.state.name());
                assert!(!matches!(name, StateName::Failed | StateName::Cancelled));
            }
        }
    }

    fn expire(&mut self) {
        match self.state {
            State::Queued { .. } if too_late(self.not_after, self.deadline, self.now).is_some() => {
                let late = too_late(self.not_after, self.deadline, self.now);
                match late {
                    Some(State::Cancelled { reason, .. }) => {
                        assert!(lapsed(self.not_after, self.now));
                        self.enter(Next::Cancel(reason));
                    }
                    Some(State::Failed { reason, .. }) => {
                        assert!(!lapsed(self.not_after, self.now) && lapsed(self.deadline, self.now));
                        self.enter(Next::Fail(reason));
                    }
                    other => panic!("too late leads to {other:?}"),
                }
            }
            State::Queued { .. }
            | State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => {}
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        match self.state {
            State::Queued { why, run_at, .. } => {
                let (readiness, why) = arrival(run_at, self.now, why);
                assert_eq!(readiness == Readiness::Ready, run_at <= self.now);
                self.state = State::Queued { readiness, why, run_at };
            }
            State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => {}
        }
    }

    /// Changes the state, along an edge of the diagram only.
    fn go(&mut self, to: State) {
        let edge = (self.state.name(), to.name());
        assert!(EDGES.contains(&edge), "{} -> {} is not in the diagram", edge.0.name(), edge.1.name());
        if edge.0.is_terminal() {
            assert_eq!(edge.1, StateName::Queued, "only a replay changes an end");
        }
        self.seen.insert(edge);
        self.state = to;
    }

    /// Recounts the history in the words of the table.
    fn recount(&self) {
        let ends = || {
            self.history.iter().filter_map(|fact| match fact {
                Fact::Started => None,
                Fact::Ended(held, outcome) => Some((*held, outcome)),
            })
        };
        let with_class = |classes: &[&str]| {
            let names = ends().map(|(_, outcome)| outcome.ending().name());
            names.filter(|name| classes.contains(name)).count()
        };
        let failures = with_class(&["transient", "partial", "timeout", "stuck", "permanent", "crash"]);
        let crashes = with_class(&["crash"]);
        let dead = |(held, outcome): &(LeasePhase, &Outcome)| {
            *held == LeasePhase::Running && **outcome == Outcome::NodeDied
        };
        let starts = self.history.iter().filter(|fact| **fact == Fact::Started).count();
        let counted = [self.failures, self.crashes, self.node_deaths, self.runs - self.runs_before];
        let recounted = [failures, crashes, ends().filter(dead).count(), starts];
        assert_eq!(counted.map(|count| count as usize), recounted, "failures, crashes, node deaths, runs");

        assert!(self.failures <= self.policy.retry.attempts, "more failures than attempts");
        assert!(self.crashes <= self.policy.max_crashes, "more crashes than the quarantine lets through");
        assert!(
            self.node_deaths <= self.policy.max_node_deaths,
            "more dead nodes than the quarantine lets through"
        );
        let lost_with_a_node = ends().any(|(_, outcome)| *outcome == Outcome::NodeDied);
        assert!(self.suspect || !lost_with_a_node, "a lease was lost with its node, and it is not suspect");
        let may_run_again = !self.state.name().is_terminal();
        if may_run_again {
            assert!(self.failures < self.policy.retry.attempts, "it runs again with no try left");
            assert!(self.crashes < self.policy.max_crashes);
            assert!(self.node_deaths < self.policy.max_node_deaths);
        }
    }
}

/// How long after it is first due a task is useful, and may start attempts.
#[derive(Clone, Copy, Debug)]
struct Ends {
    not_after: Option<Duration>,
    deadline: Option<Duration>,
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let retry_after = prop::option::of((0..100_000_u64).prop_map(Duration::from_millis));
    let failed =
        (prop::sample::select(ErrorClass::ALL.to_vec()), retry_after).prop_map(|(class, retry_after)| {
            Outcome::Failed(Failure { retry_after, ..Failure::new(class, "it broke") })
        });
    prop_oneof![
        1 => Just(Outcome::Success),
        8 => failed,
        2 => Just(Outcome::NodeDied),
        2 => Just(Outcome::HandedBack),
        1 => Just(Outcome::Cancelled),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Claim),
        4 => Just(Op::Start),
        6 => any_outcome().prop_map(Op::End),
        1 => Just(Op::Cancel),
        2 => Just(Op::Replay),
        2 => Just(Op::Expire),
        6 => (0..200_000_u64).prop_map(|ms| Op::Pass(Duration::from_millis(ms))),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (1..6_u32, 1..5_u32, 1..5_u32, 0..100_u64).prop_map(|(attempts, max_crashes, max_node_deaths, base)| {
        let retry = RetryPolicy { attempts, base: Duration::from_secs(base), ..RetryPolicy::default() };
        Policy { retry, max_crashes, max_node_deaths, ..Policy::default() }
    })
}

fn any_ends() -> impl Strategy<Value = Ends> {
    let end = || prop::option::weighted(0.3, (0..1_000_000_u64).prop_map(Duration::from_millis));
    (end(), end()).prop_map(|(not_after, deadline)| Ends { not_after, deadline })
}

fn any_task() -> impl Strategy<Value = (Policy, Duration, Ends)> {
    let scheduled_in = prop_oneof![Just(Duration::ZERO), (0..100_000_u64).prop_map(Duration::from_millis)];
    (any_policy(), scheduled_in, any_ends())
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn wherever_a_task_is_driven_the_diagram_and_the_table_hold(
        (policy, scheduled_in, ends) in any_task(), ops in prop::collection::vec(any_op(), 1..80),
    ) {
        let mut task = Model::enqueued(policy, scheduled_in, ends);
        for op in &ops {
            task.apply(op);
        }
    }

    #[test]
    fn an_end_stays_as_it_is_under_everything_but_a_replay(
        (policy, scheduled_in, ends) in any_task(), ops in prop::collection::vec(any_op(), 1..80),
    ) {
        let mut task = Model::enqueued(policy, scheduled_in, ends);
        for op in &ops {
            let before = task.state;
            task.apply(op);
            if before.name().is_terminal() && !matches!(op, Op::Replay) {
                prop_assert_eq!(task.state, before);
            }
            if before.name() == StateName::Completed {
                prop_assert_eq!(task.state, before, "not even a replay runs completed work again");
            }
        }
    }

    #[test]
    fn a_requested_cancel_ends_the_task_with_the_lease_however_that_ends(
        (policy, scheduled_in, ends) in any_task(),
        before in prop::collection::vec(any_op(), 0..40),
        started in any::<bool>(),
        outcome in any_outcome(),
    ) {
        let mut task = Model::enqueued(policy, scheduled_in, ends);
        for op in &before {
            task.apply(op);
        }
        for op in [Op::Replay, Op::Pass(Duration::from_secs(3_600)), Op::Claim] {
            task.apply(&op);
        }
        if started {
            task.apply(&Op::Start);
        }
        prop_assume!(task.state.name().is_leased());
        task.apply(&Op::Cancel);
        prop_assert!(task.cancel_requested && task.state.name().is_leased(), "a mark, not a state");
        task.apply(&Op::End(outcome.clone()));
        let expected = if outcome == Outcome::Success { StateName::Completed } else { StateName::Cancelled };
        prop_assert_eq!(task.state.name(), expected);
    }

    #[test]
    fn a_task_that_only_fails_comes_to_an_end_within_its_attempts(
        (policy, scheduled_in, _) in any_task(),
        classes in prop::collection::vec(0..4_usize, 6),
    ) {
        let failing = [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Crash, ErrorClass::Stuck];
        let mut task = Model::enqueued(policy, scheduled_in, Ends { not_after: None, deadline: None });
        for class in classes {
            task.apply(&Op::Pass(Duration::from_secs(3_600)));
            task.apply(&Op::Claim);
            task.apply(&Op::End(Outcome::Failed(Failure::new(failing[class], "again"))));
        }
        prop_assert_eq!(task.state.name(), StateName::Failed);
        prop_assert!(task.runs <= policy.retry.attempts);
    }
}

#[test]
fn every_edge_of_the_diagram_is_reached() {
    let mut seed = Seed::new(1);
    let mut seen = BTreeSet::new();
    for _ in 0..2_000 {
        let end = |seed: &mut Seed| seed.chance(30).then(|| Duration::from_millis(seed.below(500_000)));
        let ends = Ends { not_after: end(&mut seed), deadline: end(&mut seed) };
        let mut task = Model::enqueued(Policy::default(), Duration::ZERO, ends);
        for _ in 0..40 {
            let class = ErrorClass::ALL[usize::try_from(seed.below(9)).unwrap()];
            let op = match seed.below(12) {
                0..=2 => Op::Claim,
                3 => Op::Start,
                4 => Op::End(Outcome::Success),
                5 => Op::End(Outcome::Failed(Failure::new(class, "it broke"))),
                6 => Op::End(Outcome::NodeDied),
                7 => Op::End(Outcome::HandedBack),
                8 => Op::Cancel,
                9 => Op::Replay,
                10 => Op::Expire,
                _ => Op::Pass(Duration::from_millis(seed.below(200_000))),
            };
            task.apply(&op);
        }
        seen.extend(task.seen);
    }
    assert_eq!(seen, BTreeSet::from(EDGES));
}

#[test]
fn a_task_whose_time_has_not_come_waits_and_says_for_what() {
    let later = START.after(Duration::from_millis(1));
    for why in Wait::ALL {
        assert_eq!(arrival(START, START, why), (Readiness::Ready, why));
        // These now wait only for a time.
        let waits_for = if matches!(why, Wait::New | Wait::Dependency) { Wait::Scheduled } else { why };
        assert_eq!(arrival(later, START, why), (Readiness::Waiting, waits_for));
    }
}

#[test]
fn a_wish_for_now_is_granted_where_only_time_is_in_the_way() {
    for why in Wait::ALL {
        let waiting = State::Queued { readiness: Readiness::Waiting, why, run_at: START };
        let elsewhere = [Wait::Concurrency, Wait::BreakerOpen, Wait::Dependency].contains(&why);
        let expected = if elsewhere { Replaying::Refused(StateName::Queued) } else { Replaying::Hasten };
        assert_eq!(replay(&waiting), expected, "{}", why.name());
        for readiness in [Readiness::Ready, Readiness::Parked] {
            let state = State::Queued { readiness, why, run_at: START };
            assert_eq!(replay(&state), Replaying::Refused(StateName::Queued), "{readiness:?} {}", why.name());
        }
    }
}
