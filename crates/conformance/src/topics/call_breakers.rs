//! Call breakers: circuit breakers around calls that handlers make, by name.

use std::time::Duration;

use ostler_core::{BreakerPolicy, BreakerState, CallAdmission, CallResult, CallVerdict, Pass, Trip};

use super::super::scene::Scene;
use super::runner::cases;
use ostler_store::ErrorKind;
use ostler_store::call_breakers::{BreakerUse, MAX_CALL_BREAKERS};

cases![
    failures_open_it_for_every_process_and_a_probe_closes_it,
    each_name_has_a_breaker_of_its_own,
    a_success_between_failures_leaves_nothing_behind,
    a_call_that_began_before_it_opened_decides_nothing,
    of_two_callers_after_the_reset_time_one_is_the_probe,
    the_least_recently_changed_is_forgotten_above_the_bound,
    an_impossible_name_or_policy_is_refused,
];

const RESET: Duration = Duration::from_secs(60);
const AFTER_TWO: BreakerPolicy = BreakerPolicy { trip: Trip::Consecutive(2), reset: RESET };

async fn ask(s: &Scene, name: &str) -> Pass {
    s.store.call_breaker(name, AFTER_TWO, BreakerUse::Ask).await.expect("call_breaker answers")
}

async fn report(s: &Scene, name: &str, admission: CallAdmission, verdict: CallVerdict) {
    let result = BreakerUse::Report(CallResult { admission, verdict });
    let answer = s.store.call_breaker(name, AFTER_TWO, result).await;
    assert_eq!(answer, Ok(Pass::Go), "a report is taken");
}

/// Opens a breaker.
async fn trip(s: &Scene, name: &str) {
    for _ in 0..2 {
        assert_eq!(ask(s, name).await, Pass::Go);
        report(s, name, CallAdmission::Usual, CallVerdict::Failure).await;
    }
}

async fn failures_open_it_for_every_process_and_a_probe_closes_it(s: &Scene) {
    trip(s, "stripe").await;
    let until = s.fixture.now().after(RESET);
    assert_eq!(ask(s, "stripe").await, Pass::Wait(Some(until)));
    let second = s.fixture.second().await;
    let there = second.call_breaker("stripe", AFTER_TWO, BreakerUse::Ask).await;
    assert_eq!(there, Ok(Pass::Wait(Some(until))), "another process sees it too");
    let shown = second.call_breakers().await.expect("call_breakers answers");
    let [record] = shown.as_slice() else { panic!("one breaker, not {shown:?}") };
    assert_eq!((record.name.as_str(), record.state), ("stripe", BreakerState::Open { until }));
    assert_eq!(record.changed_at, s.fixture.now());
    s.fixture.advance(RESET);
    assert_eq!(ask(s, "stripe").await, Pass::Probe);
    report(s, "stripe", CallAdmission::Probe, CallVerdict::Success).await;
    assert_eq!(ask(s, "stripe").await, Pass::Go);
    assert_eq!(s.store.call_breakers().await, Ok(Vec::new()), "a closed one is not remembered");
}

async fn each_name_has_a_breaker_of_its_own(s: &Scene) {
    trip(s, "b").await;
    trip(s, "a").await;
    assert_eq!(ask(s, "c").await, Pass::Go);
    let names = s.store.call_breakers().await.expect("call_breakers answers");
    assert_eq!(names.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

async fn a_success_between_failures_leaves_nothing_behind(s: &Scene) {
    for _ in 0..5 {
        report(s, "stripe", CallAdmission::Usual, CallVerdict::Failure).await;
        report(s, "stripe", CallAdmission::Usual, CallVerdict::None).await;
        report(s, "stripe", CallAdmission::Usual, CallVerdict::Success).await;
    }
    assert_eq!(s.store.call_breakers().await, Ok(Vec::new()));
    assert_eq!(ask(s, "stripe").await, Pass::Go);
}

async fn a_call_that_began_before_it_opened_decides_nothing(s: &Scene) {
    trip(s, "stripe").await;
    s.fixture.advance(RESET);
    assert_eq!(ask(s, "stripe").await, Pass::Probe);
    report(s, "stripe", CallAdmission::Usual, CallVerdict::Success).await;
    assert!(matches!(ask(s, "stripe").await, Pass::Wait(_)), "the probe is still out");
    report(s, "stripe", CallAdmission::Probe, CallVerdict::Failure).await;
    let until = s.fixture.now().after(RESET);
    assert_eq!(ask(s, "stripe").await, Pass::Wait(Some(until)));
}

async fn of_two_callers_after_the_reset_time_one_is_the_probe(s: &Scene) {
    trip(s, "stripe").await;
    s.fixture.advance(RESET);
    let second = s.fixture.second().await;
    let (one, other) =
        tokio::join!(ask(s, "stripe"), second.call_breaker("stripe", AFTER_TWO, BreakerUse::Ask));
    let passes = [one, other.expect("call_breaker answers")];
    assert_eq!(passes.iter().filter(|pass| **pass == Pass::Probe).count(), 1, "{passes:?}");
}

async fn the_least_recently_changed_is_forgotten_above_the_bound(s: &Scene) {
    for number in 0..=MAX_CALL_BREAKERS {
        report(s, &format!("b{number:04}"), CallAdmission::Usual, CallVerdict::Failure).await;
        s.fixture.advance(Duration::from_millis(1));
    }
    let kept = s.store.call_breakers().await.expect("call_breakers answers");
    assert_eq!((kept.len(), kept[0].name.as_str()), (MAX_CALL_BREAKERS, "b0001"));
}

async fn an_impossible_name_or_policy_is_refused(s: &Scene) {
    let never = BreakerPolicy { trip: Trip::Consecutive(0), ..AFTER_TWO };
    let long = "x".repeat(10_000);
    for (name, policy) in [("", AFTER_TWO), ("a\0b", AFTER_TWO), (long.as_str(), AFTER_TWO), ("a", never)] {
        let refused = s.store.call_breaker(name, policy, BreakerUse::Ask).await;
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    }
}
