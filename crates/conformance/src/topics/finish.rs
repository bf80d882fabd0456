//! Finish: every outcome of an attempt, through the one path.

use std::time::Duration;

use ostler_core::{
    Backoff, CancelReason, Ending, ErrorClass, FailReason, Failure, Jitter, Outcome, Overrides, Readiness,
    State, StateName, TaskId, Timestamp, Wait,
};

use super::super::scene::{QUEUE, Scene, TICK, failure, one, report, with_token};
use super::runner::cases;
use ostler_store::calls::{Finished, QueueChange, Ran, Report};
use ostler_store::{Lease, LeaseRef};
use ostler_store::{MAX_DETAILS_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES};

const SECOND: Duration = Duration::from_secs(1);

cases![
    a_success_completes_the_task,
    a_run_whose_start_was_not_written_is_written_with_its_end,
    a_start_that_was_written_stands,
    what_never_ran_has_no_attempt,
    an_output_belongs_to_a_success,
    a_failure_that_may_pass_backs_off,
    the_last_try_ends_in_failed,
    a_longer_wait_that_was_asked_for_wins,
    a_permanent_failure_ends_at_once,
    a_rate_limit_waits_and_is_no_failure,
    a_lane_stop_pauses_the_queue_with_its_reason,
    a_budget_pauses_the_queue_with_its_reason,
    a_pause_keeps_its_first_reason,
    crashes_end_in_quarantine,
    a_node_death_can_be_reported,
    a_cancelled_run_is_cancelled,
    the_rules_of_the_queue_hold_when_the_attempt_ends,
    long_failures_are_cut_and_marked,
    nothing_to_finish_is_nothing_done,
    a_report_with_another_token_is_lost,
    a_report_for_an_unknown_task_is_lost,
    a_report_for_a_task_that_is_not_leased_is_lost,
    reports_are_answered_one_by_one,
];

const fn recorded(state: StateName) -> Finished {
    Finished::Recorded(state)
}

/// A policy without randomness.
const fn exact(attempts: u32) -> Overrides {
    Overrides {
        attempts: Some(attempts),
        backoff: Some(Backoff::Exponential),
        base: Some(SECOND),
        max: Some(Duration::from_secs(3)),
        jitter: Some(Jitter::Off),
        max_crashes: Some(2),
        max_node_deaths: Some(2),
        timeout: None,
    }
}

/// A running task with the exact policy.
async fn exact_run(s: &Scene, attempts: u32) -> (TaskId, Lease) {
    let node = s.join().await;
    let id = s.add_with(|task| task.overrides = exact(attempts)).await;
    (id, s.run(node).await)
}

fn waits(why: Wait, run_at: Timestamp) -> State {
    State::Queued { readiness: Readiness::Waiting, why, run_at }
}

async fn a_success_completes_the_task(s: &Scene) {
    let (id, lease) = exact_run(s, 3).await;
    s.pass(SECOND);
    let output = Some("{\"sent\":true}".to_owned());
    let answers =
        s.store.finish(vec![Report { output: output.clone(), ..report(lease, Outcome::Success) }]).await;
    assert_eq!(answers.expect("finish answers"), vec![recorded(StateName::Completed)]);
    let shown = s.show(id).await;
    assert_eq!(shown.task.state, State::Completed { finished_at: s.now() });
    assert_eq!((shown.task.output, shown.task.failures, shown.task.runs), (output, 0, 1));
    let end = shown.attempts[0].end.as_ref().expect("the attempt has ended");
    assert_eq!((end.ending, end.finished_at, end.failure.as_ref()), (Ending::Success, s.now(), None));
    assert_eq!(shown.attempts[0].took(), Some(SECOND));
}

async fn a_run_whose_start_was_not_written_is_written_with_its_end(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await;
    let id = lease.task();
    let worker = s.worker();
    let ran = Some(Ran { worker, took: SECOND });
    s.pass(Duration::from_secs(5));
    let answers = s.store.finish(vec![Report { ran, ..report(lease, Outcome::Success) }]).await;
    assert_eq!(answers.expect("finish answers"), vec![recorded(StateName::Completed)]);
    let shown = s.show(id).await;
    assert_eq!((shown.task.runs, shown.attempts.len()), (1, 1));
    let attempt = &shown.attempts[0];
    assert_eq!((attempt.number, attempt.token, attempt.session, attempt.worker), (1, 1, node, worker));
    assert_eq!((attempt.started_at, attempt.took()), (s.now().before(SECOND), Some(SECOND)));
}

async fn a_start_that_was_written_stands(s: &Scene) {
    let (id, lease) = exact_run(s, 3).await;
    let before = s.show(id).await.attempts;
    s.pass(SECOND);
    s.finish_run(lease, Outcome::Success, Duration::from_millis(3)).await;
    let shown = s.show(id).await;
    assert_eq!((shown.task.runs, shown.attempts.len()), (1, 1));
    assert_eq!(shown.attempts[0].worker, before[0].worker);
    assert_eq!(
        (shown.attempts[0].started_at, shown.attempts[0].took()),
        (before[0].started_at, Some(SECOND))
    );
}

async fn what_never_ran_has_no_attempt(s: &Scene) {
    let node = s.join().await;
    let id = s.add_with(|task| task.overrides = exact(3)).await;
    let lease = s.lease(node).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, recorded(StateName::Queued));
    let shown = s.show(id).await;
    assert_eq!((shown.task.runs, shown.task.failures, shown.attempts.len()), (0, 1, 0));
    let lanes = s.store.survey().await.expect("survey answers").lanes;
    assert_eq!(lanes[0].recent_ms, Vec::<u32>::new(), "what never ran took no time");
}

async fn an_output_belongs_to_a_success(s: &Scene) {
    let (id, lease) = exact_run(s, 3).await;
    let output = Some("1".to_owned());
    s.store
        .finish(vec![Report { output, ..report(lease, failure(ErrorClass::Permanent)) }])
        .await
        .expect("answers");
    assert_eq!(s.task(id).await.output, None);
}

async fn a_failure_that_may_pass_backs_off(s: &Scene) {
    for class in [ErrorClass::Transient, ErrorClass::Partial, ErrorClass::Timeout, ErrorClass::Stuck] {
        let (id, lease) = exact_run(s, 3).await;
        let said = Failure {
            details: Some("long story".to_owned()),
            step: Some("post".to_owned()),
            hint: Some("buy stamps".to_owned()),
            exit_code: Some(17),
            ..Failure::new(class, "no stamps")
        };
        assert_eq!(
            s.finish(lease, Outcome::Failed(said.clone())).await,
            recorded(StateName::Queued),
            "{class:?}"
        );
        let shown = s.show(id).await;
        let task = &shown.task;
        assert_eq!(task.state, waits(Wait::Retry, s.now().after(SECOND)), "{class:?}");
        assert_eq!((task.failures, task.crashes, task.runs), (1, 0, 1));
        assert_eq!((task.first_failure_at, task.last_failure_at), (Some(s.now()), Some(s.now())));
        assert_eq!(task.last_failure.as_ref(), Some(&said));
        let end = shown.attempts[0].end.as_ref().expect("the attempt has ended");
        assert_eq!((end.ending, end.failure.as_ref()), (Ending::Failed(class), Some(&said)));
    }
}

async fn the_last_try_ends_in_failed(s: &Scene) {
    let (id, mut lease) = exact_run(s, 3).await;
    let node = s.join().await;
    let first = s.now();
    for (wait, failures) in [(1, 1), (2, 2)] {
        s.finish(lease, failure(ErrorClass::Transient)).await;
        assert_eq!(s.task(id).await.state, waits(Wait::Retry, s.now().after(wait * SECOND)));
        assert_eq!(s.task(id).await.failures, failures);
        s.pass(wait * SECOND);
        assert_eq!(s.store.make_ready(10).await.map(|made| made.due), Ok(1));
        lease = s.run(node).await;
    }
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, recorded(StateName::Failed));
    let shown = s.show(id).await;
    assert_eq!(shown.task.state, State::Failed { finished_at: s.now(), reason: FailReason::Exhausted });
    assert_eq!((shown.task.failures, shown.task.runs, shown.attempts.len()), (3, 3, 3));
    assert_eq!((shown.task.first_failure_at, shown.task.last_failure_at), (Some(first), Some(s.now())));
}

async fn a_longer_wait_that_was_asked_for_wins(s: &Scene) {
    for (asked, expected) in [(Duration::from_secs(100), 100), (TICK, 1)] {
        let (id, lease) = exact_run(s, 3).await;
        let said = Failure { retry_after: Some(asked), ..Failure::new(ErrorClass::Transient, "later") };
        s.finish(lease, Outcome::Failed(said.clone())).await;
        let task = s.task(id).await;
        assert_eq!(task.state, waits(Wait::Retry, s.now().after(expected * SECOND)));
        assert_eq!(task.last_failure, Some(said));
    }
}

async fn a_permanent_failure_ends_at_once(s: &Scene) {
    let (id, lease) = exact_run(s, 3).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Permanent)).await, recorded(StateName::Failed));
    let task = s.task(id).await;
    assert_eq!(task.state, State::Failed { finished_at: s.now(), reason: FailReason::Permanent });
    assert_eq!(task.failures, 1);
}

async fn a_rate_limit_waits_and_is_no_failure(s: &Scene) {
    let (id, lease) = exact_run(s, 1).await;
    let said = Failure { retry_after: Some(7 * SECOND), ..Failure::new(ErrorClass::RateLimited, "429") };
    assert_eq!(s.finish(lease, Outcome::Failed(said)).await, recorded(StateName::Queued));
    let task = s.task(id).await;
    assert_eq!(task.state, waits(Wait::RateLimited, s.now().after(7 * SECOND)));
    assert_eq!((task.failures, task.runs), (0, 1));
}

async fn pauses(s: &Scene, class: ErrorClass, why: Wait) {
    let (id, lease) = exact_run(s, 1).await;
    let node = s.join().await;
    assert_eq!(s.finish(lease, failure(class)).await, recorded(StateName::Queued));
    let task = s.task(id).await;
    let readiness = Readiness::Ready;
    assert_eq!(task.state, State::Queued { readiness, why, run_at: s.now() });
    assert_eq!(task.failures, 0);
    let settings = s.store.queue_settings(QUEUE).await.expect("configure answers");
    assert_eq!(settings.paused.as_deref(), Some("the post office is closed"));
    assert!(s.claim(node, 10).await.is_empty(), "nothing is claimed from a paused queue");
    s.configure(QueueChange::Resume).await;
    assert_eq!(s.claim_ids(node, 10).await, vec![id]);
}

async fn a_lane_stop_pauses_the_queue_with_its_reason(s: &Scene) {
    pauses(s, ErrorClass::QueueStop, Wait::Paused).await;
}

async fn a_budget_pauses_the_queue_with_its_reason(s: &Scene) {
    pauses(s, ErrorClass::Budget, Wait::Budget).await;
}

async fn a_pause_keeps_its_first_reason(s: &Scene) {
    let (_, lease) = exact_run(s, 1).await;
    s.configure(QueueChange::Pause("strike".to_owned())).await;
    s.finish(lease, failure(ErrorClass::QueueStop)).await;
    let settings = s.store.queue_settings(QUEUE).await.expect("configure answers");
    assert_eq!(settings.paused.as_deref(), Some("strike"));
}

async fn crashes_end_in_quarantine(s: &Scene) {
    let (id, lease) = exact_run(s, 9).await;
    let node = s.join().await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Crash)).await, recorded(StateName::Queued));
    let task = s.task(id).await;
    assert_eq!((task.state, task.crashes, task.failures), (waits(Wait::Retry, s.now().after(SECOND)), 1, 1));
    s.pass(SECOND);
    s.store.make_ready(10).await.expect("make_ready answers");
    let lease = s.run(node).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Crash)).await, recorded(StateName::Failed));
    let task = s.task(id).await;
    assert_eq!(task.state, State::Failed { finished_at: s.now(), reason: FailReason::Crashes });
    assert_eq!((task.crashes, task.failures), (2, 2));
}

async fn a_node_death_can_be_reported(s: &Scene) {
    let (id, lease) = exact_run(s, 9).await;
    assert_eq!(s.finish(lease, Outcome::NodeDied).await, recorded(StateName::Queued));
    let shown = s.show(id).await;
    assert_eq!((shown.task.node_deaths, shown.task.suspect, shown.task.failures), (1, true, 0));
    assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::LeaseExpired));
    assert_eq!(shown.attempts[0].end.as_ref().map(|end| end.ending), Some(Ending::NodeDied));
    let node = s.join().await;
    let again = s.claim(node, 1).await.remove(0);
    assert_eq!((again.suspect, again.node_deaths), (true, 1));
}

async fn a_cancelled_run_is_cancelled(s: &Scene) {
    let (id, lease) = exact_run(s, 9).await;
    assert_eq!(s.finish(lease, Outcome::Cancelled).await, recorded(StateName::Cancelled));
    let shown = s.show(id).await;
    assert_eq!(shown.task.state, State::Cancelled { finished_at: s.now(), reason: CancelReason::Requested });
    assert_eq!(shown.attempts[0].end.as_ref().map(|end| end.ending), Some(Ending::Cancelled));
}

async fn the_rules_of_the_queue_hold_when_the_attempt_ends(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.configure(QueueChange::Overrides(exact(1))).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, recorded(StateName::Failed));
    assert_eq!(s.task(id).await.failures, 1);
}

async fn long_failures_are_cut_and_marked(s: &Scene) {
    let whole = Failure {
        details: Some("d".repeat(MAX_DETAILS_BYTES)),
        step: Some("s".repeat(MAX_NAME_BYTES)),
        hint: Some("h".repeat(MAX_MESSAGE_BYTES)),
        ..Failure::new(ErrorClass::Permanent, "m".repeat(MAX_MESSAGE_BYTES))
    };
    let (id, lease) = exact_run(s, 3).await;
    s.finish(lease, Outcome::Failed(whole.clone())).await;
    assert_eq!(s.task(id).await.last_failure.as_ref(), Some(&whole), "what just fits is kept");
    let more = |text: &Option<String>| text.as_ref().map(|text| format!("{text}\u{e9}\0"));
    let long = Failure {
        message: format!("{}\u{e9}", whole.message),
        details: more(&whole.details),
        step: more(&whole.step),
        hint: more(&whole.hint),
        ..whole
    };
    let (id, lease) = exact_run(s, 3).await;
    assert_eq!(
        s.finish(lease, Outcome::Failed(long)).await,
        recorded(StateName::Failed),
        "it is never refused"
    );
    let shown = s.show(id).await;
    let kept = shown.task.last_failure.expect("the failure is kept");
    let fits = |text: &str, most: usize| text.len() <= most && text.ends_with("(cut)");
    assert!(fits(&kept.message, MAX_MESSAGE_BYTES), "the message is cut and marked");
    for (text, most) in
        [(&kept.details, MAX_DETAILS_BYTES), (&kept.step, MAX_NAME_BYTES), (&kept.hint, MAX_MESSAGE_BYTES)]
    {
        assert!(text.as_deref().is_some_and(|text| fits(text, most)), "cut and marked at {most}");
    }
    assert_eq!(shown.attempts[0].end.as_ref().and_then(|end| end.failure.clone()), Some(kept));
}

async fn nothing_to_finish_is_nothing_done(s: &Scene) {
    assert_eq!(s.store.finish(Vec::new()).await.expect("finish answers"), Vec::new());
}

async fn a_report_with_another_token_is_lost(s: &Scene) {
    let node = s.join().await;
    let first = s.running(node).await.as_ref();
    s.finish(Lease::granted(first), Outcome::HandedBack).await;
    let now = s.run(node).await.as_ref();
    let before = s.picture().await;
    for outcome in [Outcome::Success, failure(ErrorClass::Permanent), Outcome::Cancelled, Outcome::NodeDied] {
        for token in [0, first.token, now.token + 1] {
            let lease = Lease::granted(with_token(now, token));
            let answer = s.finish(lease, outcome.clone()).await;
            assert_eq!(answer, Finished::LeaseLost, "{outcome:?} with token {token}");
        }
    }
    assert_eq!(s.picture().await, before, "a lost lease writes nothing");
}

async fn a_report_for_an_unknown_task_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let before = s.picture().await;
    let foreign = Lease::granted(LeaseRef { task: s.task_id(), ..lease });
    assert_eq!(s.finish(foreign, Outcome::Success).await, Finished::LeaseLost);
    assert_eq!(s.picture().await, before);
}

async fn a_report_for_a_task_that_is_not_leased_is_lost(s: &Scene) {
    let node = s.join().await;
    for outcome in [Outcome::Success, failure(ErrorClass::Permanent), failure(ErrorClass::Transient)] {
        let kept = s.running(node).await.as_ref();
        s.finish(Lease::granted(kept), outcome.clone()).await;
        let before = s.picture().await;
        for second in [Outcome::Success, Outcome::HandedBack, Outcome::Cancelled] {
            let answer = s.finish(Lease::granted(kept), second.clone()).await;
            assert_eq!(answer, Finished::LeaseLost, "{second:?} after {outcome:?}");
        }
        assert_eq!(s.picture().await, before, "the first report stands");
    }
}

async fn reports_are_answered_one_by_one(s: &Scene) {
    let node = s.join().await;
    for _ in 0..3 {
        s.add().await;
    }
    let leases: Vec<LeaseRef> = s.claim(node, 3).await.iter().map(|claimed| claimed.lease.as_ref()).collect();
    let said = |lease, outcome| report(Lease::granted(lease), outcome);
    let answers = s
        .store
        .finish(vec![
            said(leases[2], Outcome::Success),
            said(leases[2], Outcome::Success),
            said(leases[0], failure(ErrorClass::Permanent)),
            said(with_token(leases[1], 5), Outcome::Success),
            said(leases[1], Outcome::Cancelled),
        ])
        .await
        .expect("finish answers");
    let expected = [
        recorded(StateName::Completed),
        Finished::LeaseLost,
        recorded(StateName::Failed),
        Finished::LeaseLost,
        recorded(StateName::Cancelled),
    ];
    assert_eq!(answers, expected);
    let none = one(s.store.finish(vec![said(leases[1], Outcome::Success)]).await.expect("finish answers"));
    assert_eq!(none, Finished::LeaseLost);
}
