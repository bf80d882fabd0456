//! The outcome table of `decide`, row by row: the transition for each outcome, its counters, and its effect on
//! others; then what overrides the table: cancel, `not_after`, `deadline`.

use std::time::Duration;

use ostler_core::{
    Backoff, CancelReason, Effect, ErrorClass, Facts, FailReason, Failure, Id, Jitter, LeasePhase, Next,
    Outcome, Policy, RetryPolicy, TaskId, Timestamp, Transition, Wait, decide,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// Delays of exactly 10, 20, 40… seconds, so that a row can state the time.
fn policy() -> Policy {
    let retry = RetryPolicy {
        attempts: 20,
        backoff: Backoff::Exponential,
        base: secs(10),
        max: secs(3_600),
        jitter: Jitter::Off,
    };
    Policy { retry, ..Policy::default() }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn running() -> Facts {
    Facts {
        id: TaskId(Id::from_bits(0x0193_2f5c_0011_2233_4455_6677_8899_aabb)),
        phase: LeasePhase::Running,
        failures: 0,
        crashes: 0,
        node_deaths: 0,
        cancel_requested: false,
        not_after: None,
        deadline: None,
    }
}

fn claimed() -> Facts {
    Facts { phase: LeasePhase::Claimed, ..running() }
}

fn failed(class: ErrorClass) -> Outcome {
    Outcome::Failed(Failure::new(class, "it broke"))
}

fn failed_for(class: ErrorClass, retry_after: Duration) -> Outcome {
    Outcome::Failed(Failure { retry_after: Some(retry_after), ..Failure::new(class, "it broke") })
}

fn queue_in(wait: Duration, why: Wait) -> Next {
    Next::Queue { run_at: NOW.after(wait), why }
}

/// One row: the task and outcome, the next state, and the counters.
struct Row {
    says: &'static str,
    task: Facts,
    outcome: Outcome,
    next: Next,
    /// Added to failures, crashes and node deaths.
    counts: [u32; 3],
    effect: Effect,
}

fn row(
    says: &'static str,
    task: Facts,
    outcome: Outcome,
    next: Next,
    counts: [u32; 3],
    effect: Effect,
) -> Row {
    Row { says, task, outcome, next, counts, effect }
}

/// Every row of the table, for a task without a cancellation or a passed limit.
#[rustfmt::skip]
fn table() -> Vec<Row> {
    use ErrorClass::{Budget, Crash, QueueStop, Partial, Permanent, RateLimited, Stuck, Timeout, Transient, UsageLimit};
    let at_once = Duration::ZERO;
    let after_two = Facts { failures: 2, ..running() };
    let last_try = Facts { failures: 19, ..running() };
    let two_crashes = Facts { failures: 2, crashes: 2, ..running() };
    let last_try_and_two_crashes = Facts { crashes: 2, ..last_try };
    let nine_deaths = Facts { node_deaths: 9, ..running() };
    let mut rows = vec![
        row("success completes", running(), Outcome::Success, Next::Complete, [0, 0, 0], Effect::BreakerSuccess),
        row("success after failures completes and keeps the counts", two_crashes, Outcome::Success, Next::Complete, [0, 0, 0], Effect::BreakerSuccess),

        row("permanent fails at once", running(), failed(Permanent), Next::Fail(FailReason::Permanent), [1, 0, 0], Effect::None),
        row("permanent fails at once, whatever it says about later", running(), failed_for(Permanent, secs(5)), Next::Fail(FailReason::Permanent), [1, 0, 0], Effect::None),
        row("permanent on the last try is still permanent", last_try, failed(Permanent), Next::Fail(FailReason::Permanent), [1, 0, 0], Effect::None),

        row("rate limited waits until then", running(), failed_for(RateLimited, secs(90)), queue_in(secs(90), Wait::RateLimited), [0, 0, 0], Effect::HoldUntil(NOW.after(secs(90)))),
        row("rate limited believes a short time too", running(), failed_for(RateLimited, secs(1)), queue_in(secs(1), Wait::RateLimited), [0, 0, 0], Effect::HoldUntil(NOW.after(secs(1)))),
        row("rate limited without a time waits as after a first failure", after_two, failed(RateLimited), queue_in(secs(10), Wait::RateLimited), [0, 0, 0], Effect::HoldUntil(NOW.after(secs(10)))),
        row("rate limited is no failure on the last try", last_try, failed_for(RateLimited, secs(90)), queue_in(secs(90), Wait::RateLimited), [0, 0, 0], Effect::HoldUntil(NOW.after(secs(90)))),

        row("a usage limit waits until it resets", running(), failed_for(UsageLimit, secs(90)), queue_in(secs(90), Wait::UsageLimit), [0, 0, 0], Effect::HoldAccount(NOW.after(secs(90)))),
        row("a usage limit without a reset waits for a quarter of an hour", last_try, failed(UsageLimit), queue_in(secs(900), Wait::UsageLimit), [0, 0, 0], Effect::HoldAccount(NOW.after(secs(900)))),
        row("a usage limit lasts eight days at most", running(), failed_for(UsageLimit, secs(10_000_000)), queue_in(secs(691_200), Wait::UsageLimit), [0, 0, 0], Effect::HoldAccount(NOW.after(secs(691_200)))),

        row("queue stop pauses the queue", running(), failed(QueueStop), queue_in(at_once, Wait::Paused), [0, 0, 0], Effect::PauseQueue),
        row("queue stop is no failure on the last try", last_try, failed(QueueStop), queue_in(at_once, Wait::Paused), [0, 0, 0], Effect::PauseQueue),
        row("budget pauses and asks", running(), failed(Budget), queue_in(at_once, Wait::Budget), [0, 0, 0], Effect::PauseForBudget),
        row("budget is no failure on the last try", last_try, failed(Budget), queue_in(at_once, Wait::Budget), [0, 0, 0], Effect::PauseForBudget),

        row("a first crash backs off", running(), failed(Crash), queue_in(secs(10), Wait::Retry), [1, 1, 0], Effect::BreakerFailure),
        row("a second crash backs off longer", Facts { failures: 1, crashes: 1, ..running() }, failed(Crash), queue_in(secs(20), Wait::Retry), [1, 1, 0], Effect::BreakerFailure),
        row("a third crash is quarantine", two_crashes, failed(Crash), Next::Fail(FailReason::Crashes), [1, 1, 0], Effect::BreakerFailure),
        row("a crash on the last try exhausts it", last_try, failed(Crash), Next::Fail(FailReason::Exhausted), [1, 1, 0], Effect::BreakerFailure),
        row("quarantine says more than exhausted", last_try_and_two_crashes, failed(Crash), Next::Fail(FailReason::Crashes), [1, 1, 0], Effect::BreakerFailure),
        row("another error is not quarantined by earlier crashes", two_crashes, failed(Transient), queue_in(secs(40), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),

        row("a node that dies under a running task", running(), Outcome::NodeDied, queue_in(at_once, Wait::LeaseExpired), [0, 0, 1], Effect::None),
        row("a node that dies before it began", claimed(), Outcome::NodeDied, queue_in(at_once, Wait::LeaseExpired), [0, 0, 0], Effect::None),
        row("the tenth node is quarantine", nine_deaths, Outcome::NodeDied, Next::Fail(FailReason::NodeDeaths), [0, 0, 1], Effect::None),
        row("the tenth is not counted before it began", Facts { phase: LeasePhase::Claimed, ..nine_deaths }, Outcome::NodeDied, queue_in(at_once, Wait::LeaseExpired), [0, 0, 0], Effect::None),
        row("a limit that was lowered meanwhile waits for the next run", Facts { node_deaths: 12, ..claimed() }, Outcome::NodeDied, queue_in(at_once, Wait::LeaseExpired), [0, 0, 0], Effect::None),
        row("a node's death is no failure on the last try", last_try, Outcome::NodeDied, queue_in(at_once, Wait::LeaseExpired), [0, 0, 1], Effect::None),

        row("handed back while it ran", running(), Outcome::HandedBack, queue_in(at_once, Wait::HandedBack), [0, 0, 0], Effect::None),
        row("handed back before it began", claimed(), Outcome::HandedBack, queue_in(at_once, Wait::HandedBack), [0, 0, 0], Effect::None),
        row("handing back is no failure on the last try", last_try, Outcome::HandedBack, queue_in(at_once, Wait::HandedBack), [0, 0, 0], Effect::None),

        row("cancelled while it ran", running(), Outcome::Cancelled, Next::Cancel(CancelReason::Requested), [0, 0, 0], Effect::None),
        row("cancelled before it began", claimed(), Outcome::Cancelled, Next::Cancel(CancelReason::Requested), [0, 0, 0], Effect::None),
    ];
    for class in [Transient, Partial, Timeout, Stuck] {
        rows.extend([
            row("a first failure backs off", running(), failed(class), queue_in(secs(10), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),
            row("a third failure backs off longer", after_two, failed(class), queue_in(secs(40), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),
            row("a longer retry_after wins", after_two, failed_for(class, secs(41)), queue_in(secs(41), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),
            row("a shorter retry_after does not", after_two, failed_for(class, secs(39)), queue_in(secs(40), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),
            row("a retry_after above the longest backoff wins too", running(), failed_for(class, secs(7_200)), queue_in(secs(7_200), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),
            row("the last try but one leaves one", Facts { failures: 18, ..running() }, failed(class), queue_in(secs(3_600), Wait::Retry), [1, 0, 0], Effect::BreakerFailure),
            row("the last try exhausts it", last_try, failed(class), Next::Fail(FailReason::Exhausted), [1, 0, 0], Effect::BreakerFailure),
            row("a retry_after does not give another try", last_try, failed_for(class, secs(90)), Next::Fail(FailReason::Exhausted), [1, 0, 0], Effect::BreakerFailure),
        ]);
    }
    rows
}

fn expected(row: &Row, next: Next) -> Transition {
    let [failures, crashes, node_deaths] = row.counts;
    Transition {
        next,
        failures: row.task.failures + failures,
        crashes: row.task.crashes + crashes,
        node_deaths: row.task.node_deaths + node_deaths,
        becomes_suspect: row.outcome == Outcome::NodeDied,
        effect: row.effect,
    }
}

fn check(row: &Row, task: &Facts, next: Next, also: &str) {
    let decided = decide(task, &row.outcome, &policy(), NOW);
    assert_eq!(decided, expected(row, next), "{} ({}){also}", row.says, row.outcome.ending().name());
}

#[test]
fn every_row_is_decided_as_the_table_says() {
    for row in table() {
        check(&row, &row.task, row.next, "");
    }
}

#[test]
fn the_table_has_a_row_for_every_outcome() {
    let rows = table();
    let has = |name: &str| rows.iter().any(|row| row.outcome.ending().name() == name);
    for class in ErrorClass::ALL {
        assert!(has(class.name()), "{}", class.name());
    }
    for name in ["success", "node_died", "handed_back", "cancelled"] {
        assert!(has(name), "{name}");
    }
}

#[test]
fn a_requested_cancel_ends_whatever_is_not_completed() {
    for row in table() {
        let next = match row.next {
            Next::Complete => Next::Complete,
            Next::Queue { .. } | Next::Fail(_) | Next::Cancel(_) => Next::Cancel(CancelReason::Requested),
        };
        let long_ago = Some(NOW.before(secs(1)));
        let asked = Facts { cancel_requested: true, ..row.task };
        check(&row, &asked, next, ", cancel requested");
        check(&row, &Facts { not_after: long_ago, ..asked }, next, ", cancel requested, and too late");
        check(&row, &Facts { deadline: long_ago, ..asked }, next, ", cancel requested, and out of time");
    }
}

#[test]
fn what_would_run_after_not_after_is_cancelled_as_expired() {
    for row in table() {
        let next = match row.next {
            Next::Queue { .. } => Next::Cancel(CancelReason::Expired),
            Next::Complete | Next::Fail(_) | Next::Cancel(_) => row.next,
        };
        let passed =
            Facts { not_after: Some(first_moment(&row.next).before(Duration::from_millis(1))), ..row.task };
        check(&row, &passed, next, ", not_after passed");
        // Both have passed: "too late to be useful" says more than "took too long".
        check(&row, &Facts { deadline: passed.not_after, ..passed }, next, ", not_after and deadline passed");
        let in_time = Facts { not_after: Some(first_moment(&row.next)), ..row.task };
        check(&row, &in_time, row.next, ", not_after just reached");
    }
}

#[test]
fn what_would_run_after_the_deadline_is_failed() {
    for row in table() {
        let next = match row.next {
            Next::Queue { .. } => Next::Fail(FailReason::Deadline),
            Next::Complete | Next::Fail(_) | Next::Cancel(_) => row.next,
        };
        let passed =
            Facts { deadline: Some(first_moment(&row.next).before(Duration::from_millis(1))), ..row.task };
        check(&row, &passed, next, ", deadline passed");
        let in_time = Facts { deadline: Some(first_moment(&row.next)), ..row.task };
        check(&row, &in_time, row.next, ", deadline just reached");
    }
}

/// The next run time of the task, or now.
fn first_moment(next: &Next) -> Timestamp {
    match next {
        Next::Queue { run_at, .. } => *run_at,
        Next::Complete | Next::Fail(_) | Next::Cancel(_) => NOW,
    }
}

#[test]
fn an_attempt_that_was_claimed_only_fails_like_a_running_one() {
    // An inline handler may start lazily: its outcome is then the first write.
    for row in table().iter().filter(|row| row.outcome.failure().is_some() || row.outcome == Outcome::Success)
    {
        check(row, &Facts { phase: LeasePhase::Claimed, ..row.task }, row.next, ", claimed only");
    }
}

#[test]
fn the_default_policy_quarantines_at_three_crashes_and_ten_node_deaths_and_fails_at_four_failures() {
    let policy = Policy::default();
    let ends = |outcome: Outcome| {
        let mut task = running();
        for tries in 1..100 {
            let decided = decide(&task, &outcome, &policy, NOW);
            let Next::Queue { .. } = decided.next else { return (tries, decided.next) };
            let Transition { failures, crashes, node_deaths, .. } = decided;
            task = Facts { failures, crashes, node_deaths, ..task };
        }
        panic!("it never ends");
    };
    assert_eq!(ends(failed(ErrorClass::Crash)), (3, Next::Fail(FailReason::Crashes)));
    assert_eq!(ends(Outcome::NodeDied), (10, Next::Fail(FailReason::NodeDeaths)));
    assert_eq!(ends(failed(ErrorClass::Transient)), (4, Next::Fail(FailReason::Exhausted)));
}

#[test]
fn one_attempt_is_one_attempt() {
    for attempts in [0, 1] {
        let once = Policy { retry: RetryPolicy { attempts, ..policy().retry }, ..policy() };
        let decided = decide(&running(), &failed(ErrorClass::Transient), &once, NOW);
        assert_eq!((decided.next, decided.failures), (Next::Fail(FailReason::Exhausted), 1));
    }
}

#[test]
fn counts_and_moments_at_their_end_saturate() {
    let full = Facts { failures: u32::MAX, crashes: u32::MAX, node_deaths: u32::MAX, ..running() };
    let last = Timestamp::from_millis(i64::MAX);
    for row in table() {
        let decided = decide(&full, &row.outcome, &policy(), last);
        assert_eq!(
            (decided.failures, decided.crashes, decided.node_deaths),
            (u32::MAX, u32::MAX, u32::MAX),
            "{}",
            row.says
        );
    }
    let for_ever = failed_for(ErrorClass::RateLimited, Duration::MAX);
    let decided = decide(&running(), &for_ever, &policy(), NOW);
    assert_eq!(decided.next, Next::Queue { run_at: last, why: Wait::RateLimited });
}

#[test]
fn tasks_that_fail_together_come_back_apart_and_each_always_at_the_same_time() {
    let spread = Policy { retry: RetryPolicy { jitter: Jitter::Half, ..policy().retry }, ..policy() };
    let run_at = |bits: u128| {
        let task = Facts { id: TaskId(Id::from_bits(bits)), ..running() };
        let decided = decide(&task, &failed(ErrorClass::Transient), &spread, NOW);
        let again = decide(&task, &failed(ErrorClass::Transient), &spread, NOW);
        assert_eq!(decided, again);
        match decided.next {
            Next::Queue { run_at, .. } => run_at.millis(),
            Next::Complete | Next::Fail(_) | Next::Cancel(_) => panic!("it has tries left"),
        }
    };
    let mut moments: Vec<i64> = (0..1_000).map(run_at).collect();
    let (first, last) = (NOW.after(secs(5)).millis(), NOW.after(secs(10)).millis());
    assert!(moments.iter().all(|moment| (first..=last).contains(moment)));
    moments.sort_unstable();
    moments.dedup();
    assert!(moments.len() > 800, "a thousand tasks come back at only {} moments", moments.len());
}
