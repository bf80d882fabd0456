//! Outbox entry kinds for finished attempts: the rows of one table.

use ostler_core::{
    CancelReason, EndKind, ErrorClass, FailReason, Failure, Outcome, Readiness, State, Timestamp, Wait,
    end_kind,
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
        (completed, Some(Outcome::Success), Some(EndKind::Completed)),
        (dead, Some(failed(ErrorClass::Permanent)), Some(EndKind::Failed)),
        (dead, Some(Outcome::NodeDied), Some(EndKind::Failed)),
        (dead, None, Some(EndKind::Failed)),
        (queued(Wait::Retry), Some(failed(ErrorClass::Crash)), Some(EndKind::Retry)),
        (queued(Wait::RateLimited), Some(failed(ErrorClass::RateLimited)), Some(EndKind::Retry)),
        (queued(Wait::Paused), Some(failed(ErrorClass::QueueStop)), Some(EndKind::Retry)),
        (queued(Wait::Budget), Some(failed(ErrorClass::Budget)), Some(EndKind::Retry)),
        (queued(Wait::HandedBack), Some(Outcome::HandedBack), None),
        (queued(Wait::LeaseExpired), Some(Outcome::NodeDied), None),
        (queued(Wait::New), None, None),
        (cancelled, Some(Outcome::Cancelled), None),
        (cancelled, Some(failed(ErrorClass::Transient)), None),
        (cancelled, None, None),
    ];
    for (state, outcome, expected) in rows {
        assert_eq!(end_kind(&state, outcome.as_ref()), expected, "{state:?} after {outcome:?}");
    }
}

#[test]
fn every_name_is_read_back() {
    assert!(EndKind::ALL.into_iter().all(|what| EndKind::named(what.name()) == Some(what)));
    assert_eq!(EndKind::named("hung up"), None);
}
