//! Cancel: immediate while no worker has the task, otherwise a request to its worker.

use ostler_core::{CancelReason, ErrorClass, FailReason, Outcome, Readiness, State, StateName, Wait};

use super::super::scene::{Scene, TICK, TTL, failure};
use super::runner::cases;
use ostler_store::calls::{CancelAnswer, Finished};

cases![
    a_queued_task_is_cancelled_at_once,
    a_waiting_task_is_cancelled_at_once,
    a_task_that_waits_for_its_retry_is_cancelled_at_once,
    a_leased_task_is_marked,
    the_first_request_counts,
    a_marked_task_ends_cancelled_however_it_ends,
    a_marked_task_that_succeeds_is_completed,
    a_cancel_is_acknowledged_by_the_holder_only,
    an_ended_task_stays_as_it_is,
    an_unknown_task_is_not_found,
    nothing_to_cancel_is_nothing_done,
    cancels_are_answered_one_by_one,
];

fn cancelled(s: &Scene) -> State {
    State::Cancelled { finished_at: s.now(), reason: CancelReason::Requested }
}

async fn a_queued_task_is_cancelled_at_once(s: &Scene) {
    let node = s.join().await;
    let id = s.add().await;
    s.pass(TICK);
    assert_eq!(s.cancel(id).await, CancelAnswer::Cancelled);
    let task = s.task(id).await;
    assert_eq!((task.state, task.cancel_requested_at), (cancelled(s), None));
    assert!(s.claim(node, 10).await.is_empty());
}

async fn a_waiting_task_is_cancelled_at_once(s: &Scene) {
    let id = s.add_with(|task| task.run_at = Some(s.in_ms(5))).await;
    assert_eq!(s.cancel(id).await, CancelAnswer::Cancelled);
    s.pass(std::time::Duration::from_millis(5));
    assert_eq!(s.store.make_ready(10).await.map(|made| (made.due, made.next)), Ok((0, None)));
    assert_eq!(s.state(id).await, StateName::Cancelled);
}

async fn a_task_that_waits_for_its_retry_is_cancelled_at_once(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.finish(lease, failure(ErrorClass::Transient)).await;
    assert_eq!(s.waits(id).await, (Readiness::Waiting, Wait::Retry));
    assert_eq!(s.cancel(id).await, CancelAnswer::Cancelled);
    let task = s.task(id).await;
    assert_eq!((task.state, task.failures), (cancelled(s), 1));
    s.pass(TTL / 2);
    assert_eq!(s.store.make_ready(10).await.map(|made| (made.due, made.next)), Ok((0, None)));
    assert!(s.claim(node, 10).await.is_empty(), "no retry comes");
}

async fn a_leased_task_is_marked(s: &Scene) {
    let node = s.join().await;
    let claimed = s.leased(node).await.task();
    let running = s.running(node).await.task();
    for (id, state) in [(claimed, StateName::Claimed), (running, StateName::Running)] {
        assert_eq!(s.cancel(id).await, CancelAnswer::Requested);
        let task = s.task(id).await;
        assert_eq!((task.state.name(), task.cancel_requested_at), (state, Some(s.now())));
    }
}

async fn the_first_request_counts(s: &Scene) {
    let node = s.join().await;
    let id = s.running(node).await.task();
    let first = s.now();
    s.cancel(id).await;
    s.pass(TICK);
    assert_eq!(s.cancel(id).await, CancelAnswer::Requested);
    assert_eq!(s.task(id).await.cancel_requested_at, Some(first));
}

async fn a_marked_task_ends_cancelled_however_it_ends(s: &Scene) {
    let node = s.join().await;
    let endings = [
        Outcome::Cancelled,
        Outcome::HandedBack,
        Outcome::NodeDied,
        failure(ErrorClass::Transient),
        failure(ErrorClass::Permanent),
        failure(ErrorClass::RateLimited),
    ];
    for outcome in endings {
        let lease = s.running(node).await;
        let id = lease.task();
        s.cancel(id).await;
        let answer = s.finish(lease, outcome.clone()).await;
        assert_eq!(answer, Finished::Recorded(StateName::Cancelled), "{outcome:?}");
        assert_eq!(s.task(id).await.state, cancelled(s), "{outcome:?}");
    }
}

async fn a_marked_task_that_succeeds_is_completed(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    s.cancel(lease.task()).await;
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
}

async fn a_cancel_is_acknowledged_by_the_holder_only(s: &Scene) {
    let node = s.join().await;
    let old = s.running(node).await.as_ref();
    s.finish(ostler_store::Lease::granted(old), Outcome::HandedBack).await;
    let lease = s.run(node).await;
    s.cancel(lease.task()).await;
    let before = s.picture().await;
    let answer = s.finish(ostler_store::Lease::granted(old), Outcome::Cancelled).await;
    assert_eq!(answer, Finished::LeaseLost);
    assert_eq!(s.picture().await, before);
    assert_eq!(s.finish(lease, Outcome::Cancelled).await, Finished::Recorded(StateName::Cancelled));
}

async fn an_ended_task_stays_as_it_is(s: &Scene) {
    let node = s.join().await;
    let completed = s.completed(node).await;
    let failed = s.dead_letter(node).await;
    let cancelled = s.add().await;
    s.cancel(cancelled).await;
    s.pass(TICK);
    let before = s.picture().await;
    for (id, state) in
        [(completed, StateName::Completed), (failed, StateName::Failed), (cancelled, StateName::Cancelled)]
    {
        assert_eq!(s.cancel(id).await, CancelAnswer::Ended(state));
    }
    assert_eq!(s.picture().await, before);
    let reason = s.task(failed).await.state;
    assert!(matches!(reason, State::Failed { reason: FailReason::Permanent, .. }));
}

async fn an_unknown_task_is_not_found(s: &Scene) {
    assert_eq!(s.cancel(s.task_id()).await, CancelAnswer::NotFound);
}

async fn nothing_to_cancel_is_nothing_done(s: &Scene) {
    s.add().await;
    let before = s.picture().await;
    assert_eq!(s.store.cancel(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(s.picture().await, before);
}

async fn cancels_are_answered_one_by_one(s: &Scene) {
    let node = s.join().await;
    let held = s.leased(node).await.task();
    let queued = s.add().await;
    let answers = s.store.cancel(vec![queued, s.task_id(), held, queued]).await;
    let expected = vec![
        CancelAnswer::Cancelled,
        CancelAnswer::NotFound,
        CancelAnswer::Requested,
        CancelAnswer::Ended(StateName::Cancelled),
    ];
    assert_eq!(answers, Ok(expected));
}
