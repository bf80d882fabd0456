//! Late tasks: `not_after` cancels them, a deadline fails them.

use std::time::Duration;

use ostler_core::{CancelReason, ErrorClass, FailReason, Failure, Outcome, State, StateName};

use super::super::scene::{Scene, TICK, failure};
use super::runner::cases;
use ostler_store::calls::{ClaimAnswer, Finished, Kinds, MadeReady, NewTask, QueueChange, ReplayAnswer};

cases![
    a_task_that_is_too_late_is_cancelled_by_maintenance,
    a_task_that_waits_can_be_too_late_too,
    too_late_comes_before_due,
    a_bite_counts_both,
    a_claim_never_takes_what_is_too_late,
    a_claim_never_takes_what_is_past_its_deadline,
    the_last_moment_is_still_in_time,
    a_run_may_go_on_past_both,
    a_retry_past_not_after_is_cancelled,
    a_retry_past_the_deadline_fails,
    both_lapsed_is_cancelled,
    a_deadline_that_passes_while_a_task_waits_fails_it,
    whatever_a_task_waits_for_its_deadline_counts,
    the_first_of_both_ends_counts,
    a_maintenance_that_comes_late_ends_a_task_by_what_lapsed,
];

const SECOND: Duration = Duration::from_secs(1);

fn cancelled(s: &Scene) -> State {
    State::Cancelled { finished_at: s.now(), reason: CancelReason::Expired }
}

fn failed(s: &Scene) -> State {
    State::Failed { finished_at: s.now(), reason: FailReason::Deadline }
}

async fn a_task_that_is_too_late_is_cancelled_by_maintenance(s: &Scene) {
    let id = s.add_with(|task| task.not_after = Some(s.in_ms(5))).await;
    let next = Some(s.in_ms(6));
    s.pass(Duration::from_millis(5));
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 0, freed: 0, next }));
    s.pass(TICK);
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 1, freed: 0, next: None }));
    assert_eq!(s.task(id).await.state, cancelled(s));
    assert!(s.show(id).await.attempts.is_empty());
}

async fn a_task_that_waits_can_be_too_late_too(s: &Scene) {
    let id = s
        .add_with(|task| {
            task.run_at = Some(s.in_ms(100));
            task.not_after = Some(s.in_ms(5));
        })
        .await;
    s.pass(Duration::from_millis(6));
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 1, freed: 0, next: None }));
    assert_eq!(s.task(id).await.state, cancelled(s));
}

async fn too_late_comes_before_due(s: &Scene) {
    let id = s
        .add_with(|task| {
            task.run_at = Some(s.in_ms(5));
            task.not_after = Some(s.in_ms(10));
        })
        .await;
    s.pass(Duration::from_millis(11));
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 1, freed: 0, next: None }));
    assert_eq!(s.task(id).await.state, cancelled(s));
}

async fn a_bite_counts_both(s: &Scene) {
    for ms in [3, 2, 1] {
        s.add_with(|task| task.not_after = Some(s.in_ms(ms))).await;
        s.add_with(|task| task.run_at = Some(s.in_ms(ms))).await;
    }
    s.pass(SECOND);
    let made = s.store.make_ready(4).await.expect("make_ready answers");
    assert_eq!((made.due, made.expired), (1, 3));
    assert!(made.next.is_some_and(|next| next <= s.now()), "in the past: there is more to do");
    let made = s.store.make_ready(4).await.expect("make_ready answers");
    assert_eq!((made.due, made.expired, made.next), (2, 0, None));
}

async fn a_claim_never_takes_what_is_too_late(s: &Scene) {
    let node = s.join().await;
    let late = s.add_with(|task| task.not_after = Some(s.in_ms(5))).await;
    let fit = s.add().await;
    s.pass(Duration::from_millis(6));
    assert_eq!(s.claim_ids(node, 10).await, vec![fit]);
    let task = s.task(late).await;
    assert_eq!((task.state, task.token, task.runs), (cancelled(s), 0, 0));
}

async fn a_claim_never_takes_what_is_past_its_deadline(s: &Scene) {
    let node = s.join().await;
    let late = s.add_with(|task| task.deadline = Some(s.in_ms(5))).await;
    s.pass(Duration::from_millis(6));
    assert!(s.claim(node, 10).await.is_empty());
    let task = s.task(late).await;
    assert_eq!((task.state, task.token, task.failures), (failed(s), 0, 0));
}

async fn the_last_moment_is_still_in_time(s: &Scene) {
    let node = s.join().await;
    let at = s.in_ms(5);
    let id = s
        .add_with(|task| {
            task.not_after = Some(at);
            task.deadline = Some(at);
        })
        .await;
    s.pass(Duration::from_millis(5));
    assert_eq!(s.claim_ids(node, 10).await, vec![id]);
}

async fn a_run_may_go_on_past_both(s: &Scene) {
    let node = s.join().await;
    s.add_with(|task| {
        task.not_after = Some(s.in_ms(5));
        task.deadline = Some(s.in_ms(5));
    })
    .await;
    let lease = s.run(node).await;
    s.pass(SECOND);
    assert_eq!(
        s.store.make_ready(100).await,
        Ok(MadeReady::default()),
        "a leased task is its node's business"
    );
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
}

async fn a_retry_past_not_after_is_cancelled(s: &Scene) {
    let node = s.join().await;
    let id = s.add_with(|task| task.not_after = Some(s.in_ms(100))).await;
    let lease = s.run(node).await;
    let later = Failure { retry_after: Some(SECOND), ..Failure::new(ErrorClass::Transient, "later") };
    assert_eq!(s.finish(lease, Outcome::Failed(later)).await, Finished::Recorded(StateName::Cancelled));
    assert_eq!((s.task(id).await.state, s.task(id).await.failures), (cancelled(s), 1));
}

async fn a_retry_past_the_deadline_fails(s: &Scene) {
    let node = s.join().await;
    let id = s.add_with(|task| task.deadline = Some(s.in_ms(100))).await;
    let lease = s.run(node).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Failed));
    assert_eq!(s.task(id).await.state, failed(s));
}

async fn both_lapsed_is_cancelled(s: &Scene) {
    let node = s.join().await;
    let id = s
        .add_with(|task| {
            task.not_after = Some(s.in_ms(5));
            task.deadline = Some(s.in_ms(1));
        })
        .await;
    s.pass(SECOND);
    assert!(s.claim(node, 10).await.is_empty());
    assert_eq!(s.task(id).await.state, cancelled(s));
}

async fn a_deadline_that_passes_while_a_task_waits_fails_it(s: &Scene) {
    let id = s.add_with(|task| task.deadline = Some(s.in_ms(5))).await;
    let next = Some(s.in_ms(6));
    s.pass(Duration::from_millis(5));
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 0, freed: 0, next }));
    s.pass(TICK);
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 1, freed: 0, next: None }));
    assert_eq!(s.task(id).await.state, failed(s));
    assert_eq!((s.counts().await.queued, s.counts().await.failed), (0, 1));
    assert_eq!(s.replay(id).await, ReplayAnswer::Requeued);
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady::default()), "another life has no deadline");
}

async fn whatever_a_task_waits_for_its_deadline_counts(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let deadline = Some(s.in_ms(5_000));
    let keyed = |task: &mut NewTask| (task.deadline, task.limit_key) = (deadline, Some("k".to_owned()));
    let ready = s.add_with(keyed).await;
    let parked = s.add_with(keyed).await;
    let scheduled = s.add_with(|task| (task.deadline, task.run_at) = (deadline, Some(s.in_ms(90_000)))).await;
    let retried = s.add_with(|task| (task.deadline, task.kind) = (deadline, "fails".to_owned())).await;
    let mut claim = s.asks(node, 1);
    claim.kinds = Kinds::Only(vec!["fails".to_owned()]);
    let ClaimAnswer::Tasks { tasks: mut claimed, .. } = s.store.claim(claim).await.expect("claim answers")
    else {
        panic!("the session is alive")
    };
    s.finish(claimed.remove(0).lease, failure(ErrorClass::Transient)).await;
    s.pass(Duration::from_millis(5_001));
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady { due: 0, expired: 4, freed: 0, next: None }));
    for id in [ready, parked, scheduled, retried] {
        assert_eq!(s.task(id).await.state, failed(s));
    }
}

async fn the_first_of_both_ends_counts(s: &Scene) {
    let (soon, later) = (Some(s.in_ms(5)), Some(s.in_ms(50)));
    let fails = s.add_with(|task| (task.deadline, task.not_after) = (soon, later)).await;
    let cancels = s.add_with(|task| (task.deadline, task.not_after) = (later, soon)).await;
    s.pass(Duration::from_millis(6));
    assert_eq!(s.store.make_ready(100).await.map(|made| made.expired), Ok(2));
    assert_eq!(s.task(fails).await.state, failed(s));
    assert_eq!(s.task(cancels).await.state, cancelled(s));
    let shown = s.task(fails).await;
    assert_eq!((shown.deadline, shown.not_after), (soon, later));
}

async fn a_maintenance_that_comes_late_ends_a_task_by_what_lapsed(s: &Scene) {
    let (soon, later) = (Some(s.in_ms(5)), Some(s.in_ms(50)));
    let id = s.add_with(|task| (task.deadline, task.not_after) = (soon, later)).await;
    s.pass(SECOND);
    assert_eq!(s.store.make_ready(100).await.map(|made| made.expired), Ok(1));
    assert_eq!(s.task(id).await.state, cancelled(s), "it was too late to be useful, too");
}
