//! Dependencies: a task waits until others have finished, and their outcomes decide what happens to it.

use std::time::Duration;

use ostler_core::{
    CancelReason, ErrorClass, OnFailed, Outcome, Readiness, SessionId, State, StateName, TaskId, Wait,
};

use super::super::scene::{Scene, TICK, failure, invalid};
use super::runner::cases;
use ostler_store::MAX_AFTER;
use ostler_store::calls::{CancelAnswer, Enqueued, Finished, MadeReady, NewTask, QueueChange, ReplayAnswer};

cases![
    a_task_waits_for_all_that_it_is_to_wait_for,
    who_waits_is_ready_as_soon_as_the_other_is_done,
    an_end_that_was_not_started_durably_frees_too,
    a_completed_task_does_not_hold_up_others,
    a_task_that_is_not_there_cannot_be_waited_for,
    a_task_cannot_wait_for_itself_or_for_too_many,
    the_same_task_twice_is_once,
    a_task_of_the_same_call_can_be_waited_for,
    who_waits_is_cancelled_with_the_other,
    who_waits_runs_all_the_same,
    who_waits_goes_on_waiting_for_another_life,
    a_retry_is_not_an_end,
    every_way_to_end_counts,
    an_end_because_of_another_is_an_end_for_others,
    a_task_that_comes_after_a_failure_is_treated_as_those_before,
    the_time_of_a_freed_task_counts,
    a_freed_task_takes_its_turn_as_of_now,
    a_freed_task_waits_for_its_key,
    a_task_that_waits_takes_no_place_of_its_key,
];

pub(super) fn after(s: &Scene, others: &[TaskId], on_failed: OnFailed) -> NewTask {
    NewTask { after: others.to_vec(), on_failed, ..s.draft() }
}

/// Enqueues a task that waits for `others`, with `OnFailed::Cancel`.
pub(super) async fn add_after(s: &Scene, others: &[TaskId]) -> TaskId {
    s.enqueue(after(s, others, OnFailed::Cancel)).await
}

/// Runs the one ready task, with this outcome.
pub(super) async fn end(s: &Scene, node: SessionId, outcome: Outcome) -> Finished {
    let lease = s.run(node).await;
    s.finish(lease, outcome).await
}

pub(super) const BLOCKED: (Readiness, Wait) = (Readiness::Waiting, Wait::Dependency);
pub(super) const FREED: (Readiness, Wait) = (Readiness::Ready, Wait::Dependency);

fn cancelled(s: &Scene) -> State {
    State::Cancelled { finished_at: s.now(), reason: CancelReason::Dependency }
}

async fn a_task_waits_for_all_that_it_is_to_wait_for(s: &Scene) {
    let node = s.join().await;
    let (first, second) = (s.add().await, s.add().await);
    let id = add_after(s, &[second, first]).await;
    assert_eq!(s.waits(id).await, BLOCKED);
    assert_eq!(s.show(id).await.after, [first, second], "the oldest first");
    assert_eq!(s.counts().await.queued, 3);
    let leases = s.claim(node, 10).await;
    assert_eq!(leases.len(), 2, "who waits is not claimed");
    let mut leases = leases.into_iter().map(|claimed| claimed.lease);
    s.finish(leases.next().expect("two were claimed"), Outcome::Success).await;
    assert_eq!(s.waits(id).await, BLOCKED);
    assert_eq!(s.show(id).await.after, [second]);
    assert_eq!(s.store.make_ready(10).await, Ok(MadeReady::default()), "no moment ends this wait");
    s.finish(leases.next().expect("two were claimed"), Outcome::Success).await;
    assert_eq!(s.waits(id).await, FREED);
    assert!(s.show(id).await.after.is_empty());
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn who_waits_is_ready_as_soon_as_the_other_is_done(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let ids = [add_after(s, &[first]).await, add_after(s, &[first]).await, s.add().await];
    let chained = add_after(s, &[ids[0]]).await;
    let mut claimed = s.claim(node, 1).await;
    s.start(&claimed[0].lease).await;
    s.finish(claimed.remove(0).lease, Outcome::Success).await;
    assert_eq!(s.waits(ids[0]).await, FREED);
    assert_eq!(s.waits(ids[1]).await, FREED);
    assert_eq!(s.waits(chained).await, BLOCKED, "it waits for another one");
}

async fn an_end_that_was_not_started_durably_frees_too(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let before = add_after(s, &[first]).await;
    let lease = s.lease(node).await;
    let meanwhile = add_after(s, &[first]).await;
    s.finish_run(lease, Outcome::Success, TICK).await;
    for id in [before, meanwhile] {
        assert_eq!(s.waits(id).await, FREED);
    }
    assert_eq!(s.show(first).await.attempts.len(), 1);
}

async fn a_completed_task_does_not_hold_up_others(s: &Scene) {
    let node = s.join().await;
    let done = s.completed(node).await;
    for choice in OnFailed::ALL {
        let id = s.enqueue(after(s, &[done], choice)).await;
        assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::New));
        assert!(s.show(id).await.after.is_empty());
    }
}

async fn a_task_that_is_not_there_cannot_be_waited_for(s: &Scene) {
    let there = s.add().await;
    let before = s.picture().await;
    let unknown = s.task_id();
    let task = after(s, &[there, unknown], OnFailed::Run);
    let id = task.id;
    let answers = s.store.enqueue(vec![task]).await;
    assert_eq!(answers, Ok(vec![Enqueued::NoSuchTask(unknown)]));
    assert!(s.find(id).await.is_none());
    assert_eq!(s.picture().await, before);
    let both = s.store.enqueue(vec![after(s, &[unknown], OnFailed::Run), s.draft()]).await;
    assert!(matches!(both.as_deref(), Ok([Enqueued::NoSuchTask(_), Enqueued::Created(_)])), "{both:?}");
}

async fn a_task_cannot_wait_for_itself_or_for_too_many(s: &Scene) {
    let id = s.task_id();
    invalid("itself", s.store.enqueue(vec![NewTask { id, after: vec![id], ..s.draft() }]).await);
    let other = s.add().await;
    let many = |count: usize| after(s, &vec![other; count], OnFailed::Run);
    invalid("too many", s.store.enqueue(vec![many(MAX_AFTER + 1)]).await);
    s.enqueue(many(MAX_AFTER)).await;
    let too_many_together = (0..101).map(|_| many(MAX_AFTER)).collect();
    invalid("too many in one call", s.store.enqueue(too_many_together).await);
}

async fn the_same_task_twice_is_once(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let id = add_after(s, &[first, first]).await;
    assert_eq!(s.show(id).await.after, [first]);
    end(s, node, Outcome::Success).await;
    assert_eq!(s.waits(id).await, FREED);
}

async fn a_task_of_the_same_call_can_be_waited_for(s: &Scene) {
    let first = s.draft();
    let second = after(s, &[first.id], OnFailed::Cancel);
    let ids = [first.id, second.id];
    assert_eq!(s.store.enqueue(vec![first, second]).await, Ok(ids.map(Enqueued::Created).to_vec()));
    assert_eq!(s.show(ids[1]).await.after, [ids[0]]);
}

// ---- failures ----

async fn who_waits_is_cancelled_with_the_other(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    let next = add_after(s, &[id]).await;
    s.pass(TICK);
    end(s, node, failure(ErrorClass::Permanent)).await;
    for id in [id, next] {
        let shown = s.show(id).await;
        assert_eq!(shown.task.state, cancelled(s));
        assert!(shown.after.is_empty() && shown.attempts.is_empty());
    }
    let counts = s.counts().await;
    assert_eq!((counts.queued, counts.failed, counts.cancelled), (0, 1, 2));
}

async fn who_waits_runs_all_the_same(s: &Scene) {
    let node = s.join().await;
    let (first, second) = (s.add().await, s.add().await);
    let id = s.enqueue(after(s, &[first, second], OnFailed::Run)).await;
    s.cancel(first).await;
    assert_eq!(s.show(id).await.after, [second]);
    end(s, node, failure(ErrorClass::Permanent)).await;
    assert_eq!(s.waits(id).await, FREED);
}

async fn who_waits_goes_on_waiting_for_another_life(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let id = s.enqueue(after(s, &[first], OnFailed::Wait)).await;
    end(s, node, failure(ErrorClass::Permanent)).await;
    assert_eq!((s.waits(id).await, s.show(id).await.after), (BLOCKED, vec![first]));
    let late = s.enqueue(after(s, &[first], OnFailed::Wait)).await;
    assert_eq!(s.waits(late).await, BLOCKED, "one that comes after the failure waits as well");
    assert_eq!(s.replay(first).await, ReplayAnswer::Requeued);
    assert_eq!(s.waits(id).await, BLOCKED);
    end(s, node, Outcome::Success).await;
    for id in [id, late] {
        assert_eq!((s.waits(id).await, s.show(id).await.after), (FREED, vec![]));
    }
}

async fn a_retry_is_not_an_end(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    assert_eq!(end(s, node, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Queued));
    assert_eq!(s.waits(id).await, BLOCKED);
    s.pass(Duration::from_secs(30));
    s.store.make_ready(10).await.expect("make_ready answers");
    end(s, node, Outcome::HandedBack).await;
    assert_eq!(s.waits(id).await, BLOCKED);
    end(s, node, Outcome::Success).await;
    assert_eq!(s.waits(id).await, FREED);
}

/// A cancel, a task that is late at a claim, one that maintenance finds late, and a node that dies once too often.
async fn every_way_to_end_counts(s: &Scene) {
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    assert_eq!(s.cancel(first).await, CancelAnswer::Cancelled);
    assert_eq!(s.task(id).await.state, cancelled(s));

    let node = s.join().await;
    let first = s.add_with(|task| task.not_after = Some(s.in_ms(1))).await;
    let id = add_after(s, &[first]).await;
    s.pass(2 * TICK);
    assert!(s.claim(node, 10).await.is_empty());
    assert_eq!(s.task(id).await.state, cancelled(s));

    let first = s.add_with(|task| task.deadline = Some(s.in_ms(1))).await;
    let id = s.enqueue(after(s, &[first], OnFailed::Run)).await;
    s.pass(2 * TICK);
    let made = s.store.make_ready(10).await;
    assert_eq!(made, Ok(MadeReady { due: 0, expired: 1, freed: 1, next: None }));
    assert_eq!(s.waits(id).await, FREED);
    s.cancel(id).await;

    let doomed = s.join().await;
    let first = s.add_with(|task| task.overrides.max_node_deaths = Some(1)).await;
    let id = add_after(s, &[first]).await;
    s.run(doomed).await;
    s.fixture.kill(doomed).await;
    assert_eq!(s.store.expire(10).await.map(|expired| expired.tasks), Ok(1));
    assert_eq!((s.state(first).await, s.task(id).await.state), (StateName::Failed, cancelled(s)));

    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    s.run(node).await;
    s.cancel(first).await;
    assert_eq!(s.waits(id).await, BLOCKED, "a mark is not an end");
    s.store.leave(node).await.expect("leave answers");
    assert_eq!(s.task(id).await.state, cancelled(s), "the node went, and the mark counts");
}

async fn an_end_because_of_another_is_an_end_for_others(s: &Scene) {
    let first = s.add().await;
    let second = add_after(s, &[first]).await;
    let runs = s.enqueue(after(s, &[second], OnFailed::Run)).await;
    let waits = s.enqueue(after(s, &[second], OnFailed::Wait)).await;
    s.cancel(first).await;
    assert_eq!(s.task(second).await.state, cancelled(s));
    assert_eq!((s.waits(runs).await, s.waits(waits).await), (FREED, BLOCKED));
}

async fn a_task_that_comes_after_a_failure_is_treated_as_those_before(s: &Scene) {
    let node = s.join().await;
    let dead = s.dead_letter(node).await;
    let id = add_after(s, &[dead]).await;
    assert_eq!(s.task(id).await.state, cancelled(s));
    let next = add_after(s, &[id]).await;
    assert_eq!(s.task(next).await.state, cancelled(s));
    let runs = s.enqueue(after(s, &[dead, id], OnFailed::Run)).await;
    assert_eq!(s.waits(runs).await, (Readiness::Ready, Wait::New));
    assert_eq!((s.counts().await.cancelled, s.counts().await.queued), (2, 1));
}

// ---- time, ranks and keys ----

async fn the_time_of_a_freed_task_counts(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let run_at = s.in_ms(50);
    let id = s.enqueue(NewTask { run_at: Some(run_at), ..after(s, &[first], OnFailed::Cancel) }).await;
    assert_eq!(s.waits(id).await, BLOCKED);
    end(s, node, Outcome::Success).await;
    let (readiness, why) = (Readiness::Waiting, Wait::Scheduled);
    assert_eq!(s.task(id).await.state, State::Queued { readiness, why, run_at });
    s.pass(Duration::from_millis(50));
    assert_eq!(s.store.make_ready(10).await, Ok(MadeReady { due: 1, expired: 0, freed: 0, next: None }));
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn a_freed_task_takes_its_turn_as_of_now(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    let lease = s.run(node).await;
    s.pass(Duration::from_secs(1));
    let meanwhile = s.add().await;
    s.pass(Duration::from_secs(1));
    s.finish(lease, Outcome::Success).await;
    let last = s.add().await;
    assert_eq!(s.claim_ids(node, 10).await, [meanwhile, id, last]);
}

async fn a_freed_task_waits_for_its_key(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let first = s.add().await;
    let keyed = |task: NewTask| NewTask { limit_key: Some("k".to_owned()), ..task };
    let id = s.enqueue(keyed(after(s, &[first], OnFailed::Cancel))).await;
    let lease = s.run(node).await;
    let other = s.add_keyed("k").await;
    assert_eq!(s.waits(other).await.0, Readiness::Ready);
    s.finish(lease, Outcome::Success).await;
    assert_eq!(s.waits(id).await, (Readiness::Parked, Wait::Concurrency));
    s.cancel(other).await;
    assert_eq!(s.waits(id).await.0, Readiness::Ready);
}

async fn a_task_that_waits_takes_no_place_of_its_key(s: &Scene) {
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let first = s.add().await;
    let keyed = |task: NewTask| NewTask { limit_key: Some("k".to_owned()), ..task };
    let id = s.enqueue(keyed(after(s, &[first], OnFailed::Cancel))).await;
    let other = s.add_keyed("k").await;
    assert_eq!(s.waits(other).await.0, Readiness::Ready);
    s.configure(QueueChange::KeyConcurrency(None)).await;
    s.configure(QueueChange::KeyConcurrency(Some(5))).await;
    assert_eq!(s.waits(id).await, BLOCKED, "no change of a cap frees it");
}
