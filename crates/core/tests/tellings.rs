//! What is told of an ended attempt: the rows of one table.

use ostler_core::{
    CancelReason, ErrorClass, FailReason, Failure, Outcome, Readiness, State, Timestamp, Told, Wait, told,
};

const NOW: Timestamp = Timestamp::ZERO;

fn queued(why: Wait) -> State {
    State::Queued { readiness: Readiness::Waiting, why, run_at: NOW }
}

fn failed(class: ErrorClass) -> Outcome {
    Outcome::Failed(Failure::new(class, "no"))
}

#[test]
fn ends_and_failures_are_told_and_moves_are_not() {
    let completed = State::Completed { finished_at: NOW };
    let dead = State::Failed { finished_at: NOW, reason: FailReason::Exhausted };
    let cancelled = State::Cancelled { finished_at: NOW, reason: CancelReason::Expired };
    let rows = [
        (completed, Some(Outcome::Success), Some(Told::Completed)),
        (dead, Some(failed(ErrorClass::Permanent)), Some(Told::Failed)),
        (dead, Some(Outcome::NodeDied), Some(Told::Failed)),
        (dead, None, Some(Told::Failed)),
        (queued(Wait::Retry), Some(failed(ErrorClass::Crash)), Some(Told::Retry)),
        (queued(Wait::RateLimited), Some(failed(ErrorClass::RateLimited)), Some(Told::Retry)),
        (queued(Wait::Paused), Some(failed(ErrorClass::QueueStop)), Some(Told::Retry)),
        (queued(Wait::Budget), Some(failed(ErrorClass::Budget)), Some(Told::Retry)),
        (queued(Wait::HandedBack), Some(Outcome::HandedBack), None),
        (queued(Wait::LeaseExpired), Some(Outcome::NodeDied), None),
        (queued(Wait::New), None, None),
        (cancelled, Some(Outcome::Cancelled), None),
        (cancelled, Some(failed(ErrorClass::Transient)), None),
        (cancelled, None, None),
    ];
    for (state, outcome, expected) in rows {
        assert_eq!(told(&state, outcome.as_ref()), expected, "{state:?} after {outcome:?}");
    }
}

#[test]
fn every_name_is_read_back() {
    assert!(Told::ALL.into_iter().all(|what| Told::named(what.name()) == Some(what)));
    assert_eq!(Told::named("hung up"), None);
}
