//! Transition events: the log of a task says how it changed its state, other than by a plain start or success.

use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, Outcome, State, StateName, TaskId, Timestamp};

use super::super::scene::{Scene, TICK, TTL, failure};
use super::dependencies::add_after;
use super::runner::cases;
use ostler_store::calls::{ClaimAnswer, Report};

cases![
    a_plain_success_leaves_no_event,
    a_retry_has_the_class_of_the_failure_and_its_next_time,
    a_task_that_failed_for_good_says_why,
    a_task_that_was_stopped_says_so,
    a_cancelled_task_says_so,
    a_task_whose_dependency_failed_says_so,
    a_late_task_says_so,
    a_replayed_task_says_so,
    a_dead_node_and_a_hand_back_are_told_of_attempts_that_began,
];

/// The transitions of a task, in order.
async fn transitions(s: &Scene, id: TaskId) -> Vec<(StateName, String, Option<Timestamp>)> {
    let told = s.events(id).await.into_iter().map(|event| {
        let EventBody::Transition { state, why, run_at } = event.body else {
            panic!("no other event was written: {event:?}")
        };
        (state, why, run_at)
    });
    told.collect()
}

fn ended(state: StateName, why: &str) -> (StateName, String, Option<Timestamp>) {
    (state, why.to_owned(), None)
}

async fn a_plain_success_leaves_no_event(s: &Scene) {
    let node = s.join().await;
    let id = s.completed(node).await;
    assert_eq!(transitions(s, id).await, []);
    let lease = s.leased(node).await;
    let id = lease.task();
    s.finish_run(lease, Outcome::Success, TICK).await;
    assert_eq!(transitions(s, id).await, []);
}

async fn a_retry_has_the_class_of_the_failure_and_its_next_time(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let (id, token) = (lease.task(), lease.as_ref().token);
    s.finish(lease, failure(ErrorClass::Timeout)).await;
    let State::Queued { run_at, .. } = s.task(id).await.state else { panic!("it is retried") };
    assert!(run_at > s.now(), "there is a backoff");
    assert_eq!(transitions(s, id).await, [(StateName::Queued, "timeout".to_owned(), Some(run_at))]);
    let event = &s.events(id).await[0];
    assert_eq!((event.number, event.token, event.at), (1, token, s.now()), "of the attempt that failed");
}

async fn a_task_that_failed_for_good_says_why(s: &Scene) {
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    assert_eq!(transitions(s, id).await, [ended(StateName::Failed, "permanent")]);
}

async fn a_task_that_was_stopped_says_so(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.cancel(id).await;
    assert_eq!(transitions(s, id).await, [], "it has not stopped yet");
    s.finish(lease, Outcome::Cancelled).await;
    assert_eq!(transitions(s, id).await, [ended(StateName::Cancelled, "requested")]);
}

async fn a_cancelled_task_says_so(s: &Scene) {
    let id = s.add().await;
    s.cancel(id).await;
    s.cancel(id).await;
    assert_eq!(transitions(s, id).await, [ended(StateName::Cancelled, "requested")], "once");
}

async fn a_task_whose_dependency_failed_says_so(s: &Scene) {
    let first = s.add().await;
    let (next, last) = (add_after(s, &[first]).await, s.task_id());
    s.cancel(first).await;
    assert_eq!(transitions(s, next).await, [ended(StateName::Cancelled, "dependency")]);
    let mut draft = s.draft();
    (draft.id, draft.after) = (last, vec![first]);
    s.enqueue(draft).await;
    assert_eq!(transitions(s, last).await, [ended(StateName::Cancelled, "dependency")]);
}

async fn a_late_task_says_so(s: &Scene) {
    let too_late = s.add_with(|task| task.not_after = Some(s.in_ms(5))).await;
    let due = s.add_with(|task| task.deadline = Some(s.in_ms(5))).await;
    s.pass(Duration::from_millis(6));
    s.store.make_ready(10).await.expect("make_ready answers");
    assert_eq!(transitions(s, too_late).await, [ended(StateName::Cancelled, "expired")]);
    assert_eq!(transitions(s, due).await, [ended(StateName::Failed, "deadline")]);
    let found_by_a_claim = s.add_with(|task| task.deadline = Some(s.in_ms(5))).await;
    let node = s.join().await;
    s.pass(Duration::from_millis(6));
    let claimed = s.store.claim(s.asks(node, 10)).await.expect("a claim answers");
    assert!(matches!(claimed, ClaimAnswer::Tasks { tasks, .. } if tasks.is_empty()));
    assert_eq!(transitions(s, found_by_a_claim).await, [ended(StateName::Failed, "deadline")]);
}

async fn a_replayed_task_says_so(s: &Scene) {
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    s.replay(id).await;
    let expected = [ended(StateName::Failed, "permanent"), ended(StateName::Queued, "replayed")];
    assert_eq!(transitions(s, id).await, expected);
}

async fn a_dead_node_and_a_hand_back_are_told_of_attempts_that_began(s: &Scene) {
    let node = s.join().await;
    let (begun, claimed) = (s.running(node).await, s.leased(node).await);
    let ids = (begun.task(), claimed.task());
    s.store.finish(Report::hand_backs(vec![begun, claimed])).await.expect("finish answers");
    let back = (StateName::Queued, "handed_back".to_owned(), Some(s.now()));
    assert_eq!((transitions(s, ids.0).await, transitions(s, ids.1).await), (vec![back.clone()], Vec::new()));
    s.cancel(ids.1).await;
    let lease = s.run(node).await;
    let id = lease.task();
    let before = transitions(s, id).await;
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    let after = transitions(s, id).await;
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert_eq!(
        (after.last().map(|told| told.0), &*after.last().expect("one").1),
        (Some(StateName::Queued), "node_died")
    );
}
