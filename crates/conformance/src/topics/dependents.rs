//! Dependent tasks: requests about a waiting task, pruning, and large numbers of them.

use std::time::Duration;

use ostler_core::{OnConflict, OnFailed, Outcome, Readiness, StateName, TaskId, Wait};

use super::super::scene::{Scene, TICK, heard};
use super::dependencies::{BLOCKED, FREED, add_after, after, end};
use super::runner::cases;
use ostler_store::ErrorKind;
use ostler_store::MAX_CASCADE;
use ostler_store::calls::{CancelAnswer, Enqueued, MadeReady, NewTask, Prune, ReplayAnswer};
use ostler_store::release_all_dependents;
use ostler_store::unique::Unique;

cases![
    who_waits_can_be_cancelled_and_replayed,
    who_waits_can_be_too_late,
    who_waits_is_not_hastened,
    who_waits_can_be_replaced_and_still_waits,
    a_replacement_is_still_waited_for,
    a_replacement_that_would_wait_for_others_is_refused,
    a_pruned_task_does_not_hold_up_others,
    a_reused_row_has_no_dependents_of_the_removed_task,
    many_who_wait_are_seen_to_in_bites,
    many_who_wait_keep_a_task_from_being_pruned,
    a_long_chain_is_cancelled_link_by_link,
    an_end_that_frees_rings_the_bell,
];

// ---- requests about a waiting task ----

async fn who_waits_can_be_cancelled_and_replayed(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    assert_eq!(s.cancel(id).await, CancelAnswer::Cancelled);
    assert!(s.show(id).await.after.is_empty());
    assert_eq!(s.replay(id).await, ReplayAnswer::Requeued);
    assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::Replayed), "a claim gets it now");
    assert_eq!(s.cancel(first).await, CancelAnswer::Cancelled);
    assert_eq!(s.waits(id).await.0, Readiness::Ready, "they have nothing to do with each other any more");
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn who_waits_can_be_too_late(s: &Scene) {
    let first = s.add().await;
    let id = s.enqueue(NewTask { not_after: Some(s.in_ms(5)), ..after(s, &[first], OnFailed::Wait) }).await;
    let next = s.enqueue(after(s, &[id], OnFailed::Run)).await;
    s.pass(Duration::from_millis(6));
    assert_eq!(s.store.make_ready(10).await, Ok(MadeReady { due: 0, expired: 1, freed: 1, next: None }));
    assert_eq!(s.state(id).await, StateName::Cancelled);
    assert_eq!(s.waits(next).await, FREED);
}

async fn who_waits_is_not_hastened(s: &Scene) {
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    assert_eq!(s.replay(id).await, ReplayAnswer::Refused(StateName::Queued));
    assert_eq!(s.waits(id).await, BLOCKED);
}

async fn who_waits_can_be_replaced_and_still_waits(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let task = NewTask { unique: Some(Unique::new("k")), ..after(s, &[first], OnFailed::Cancel) };
    let id = s.enqueue(task).await;
    let unique = Some(Unique { on_conflict: OnConflict::Replace, ..Unique::new("k") });
    let new = NewTask { unique, payload: "2".to_owned(), ..s.draft() };
    assert_eq!(s.store.enqueue(vec![new]).await, Ok(vec![Enqueued::Replaced(id)]));
    let shown = s.show(id).await;
    assert_eq!((s.waits(id).await, shown.after), (BLOCKED, vec![first]), "what it waits for stays");
    assert_eq!(shown.task.payload, "2");
    end(s, node, Outcome::Success).await;
    assert_eq!(s.waits(id).await, FREED);
}

async fn a_replacement_is_still_waited_for(s: &Scene) {
    let node = s.join().await;
    let unique = Some(Unique { on_conflict: OnConflict::Replace, ..Unique::new("k") });
    let first = s.enqueue(NewTask { unique: unique.clone(), ..s.draft() }).await;
    let id = add_after(s, &[first]).await;
    let new = NewTask { unique, ..s.draft() };
    assert_eq!(s.store.enqueue(vec![new]).await, Ok(vec![Enqueued::Replaced(first)]));
    assert_eq!(s.waits(first).await.0, Readiness::Ready);
    let lease = s.lease(node).await;
    s.finish_run(lease, Outcome::Success, TICK).await;
    assert_eq!(s.waits(id).await, FREED);
}

async fn a_replacement_that_would_wait_for_others_is_refused(s: &Scene) {
    let first = s.add().await;
    let unique = Some(Unique { on_conflict: OnConflict::Replace, ..Unique::new("k") });
    let wish = || NewTask { unique: unique.clone(), ..after(s, &[first], OnFailed::Cancel) };
    // Refused whether or not the key is taken: the answer does not depend on which task was first.
    let free = s.store.enqueue(vec![wish()]).await.expect_err("it is refused");
    assert_eq!(free.kind(), ErrorKind::Invalid, "{free}");
    let id = s.enqueue(NewTask { unique: Some(Unique::new("k")), ..s.draft() }).await;
    let taken = s.store.enqueue(vec![s.draft(), wish()]).await.expect_err("it is refused");
    assert!(taken.to_string().contains("cannot wait for others"), "{taken}");
    assert_eq!(s.waits(id).await.0, Readiness::Ready, "the one that is there is as it was");
    assert_eq!(s.counts().await.queued, 2, "and nothing else of the call was taken in");
}

// ---- pruning, and large numbers ----

async fn a_pruned_task_does_not_hold_up_others(s: &Scene) {
    let node = s.join().await;
    let first = s.dead_letter(node).await;
    let id = s.enqueue(after(s, &[first], OnFailed::Wait)).await;
    assert_eq!(s.store.prune(Prune::Tasks(vec![first])).await.map(|pruned| pruned.tasks), Ok(1));
    assert_eq!((s.waits(id).await, s.show(id).await.after), (FREED, vec![]));
    let task = after(s, &[first], OnFailed::Wait);
    assert_eq!(s.store.enqueue(vec![task]).await, Ok(vec![Enqueued::NoSuchTask(first)]));
}

/// A store may reuse the row of a removed task for another one.
async fn a_reused_row_has_no_dependents_of_the_removed_task(s: &Scene) {
    let node = s.join().await;
    let waits = s.add().await;
    s.cancel(waits).await;
    let first = s.add().await;
    let id = add_after(s, &[first]).await;
    s.cancel(first).await;
    assert_eq!(s.store.prune(Prune::Tasks(vec![first, id])).await.map(|pruned| pruned.tasks), Ok(2));
    let second = s.add().await;
    let next = add_after(s, &[second]).await;
    assert_eq!(s.show(next).await.after, [second]);
    end(s, node, Outcome::Success).await;
    assert_eq!(s.waits(next).await, FREED);
}

async fn many_who_wait_are_seen_to_in_bites(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    let many: Vec<NewTask> = (0..MAX_CASCADE + 30).map(|_| after(s, &[first], OnFailed::Cancel)).collect();
    let ids: Vec<TaskId> = many.iter().map(|task| task.id).collect();
    s.store.enqueue(many).await.expect("enqueue answers");
    end(s, node, Outcome::Success).await;
    let ended = s.now();
    assert_eq!(s.waits(ids[MAX_CASCADE - 1]).await, FREED);
    assert_eq!(s.waits(ids[MAX_CASCADE]).await, BLOCKED, "one verb does not see to all of them");
    s.pass(TICK);
    let next = |made: &MadeReady| made.next;
    let made = s.store.make_ready(0).await.expect("make_ready answers");
    assert_eq!(next(&made), Some(ended), "in the past: there is more to do");
    assert_eq!(s.waits(ids[MAX_CASCADE]).await, BLOCKED);
    let made = s.store.make_ready(20).await.expect("make_ready answers");
    assert_eq!((next(&made), made.due), (Some(ended), 0));
    assert_eq!(s.waits(ids[MAX_CASCADE + 19]).await, FREED);
    assert_eq!(s.waits(ids[MAX_CASCADE + 20]).await, BLOCKED);
    assert_eq!(s.store.make_ready(20).await, Ok(MadeReady { freed: 10, ..MadeReady::default() }));
    assert_eq!(s.waits(ids[MAX_CASCADE + 29]).await, FREED);
}

async fn many_who_wait_keep_a_task_from_being_pruned(s: &Scene) {
    let node = s.join().await;
    let first = s.dead_letter(node).await;
    let many: Vec<NewTask> = (0..=MAX_CASCADE).map(|_| after(s, &[first], OnFailed::Wait)).collect();
    let last = many[MAX_CASCADE].id;
    s.store.enqueue(many).await.expect("enqueue answers");
    let prune = || s.store.prune(Prune::Tasks(vec![first]));
    assert_eq!(prune().await.map(|pruned| pruned.tasks), Ok(0), "not all could be seen to");
    assert_eq!((s.waits(last).await, s.show(last).await.after), (BLOCKED, vec![first]));
    assert_eq!(prune().await.map(|pruned| pruned.tasks), Ok(1));
    assert_eq!(s.waits(last).await, FREED);
}

async fn a_long_chain_is_cancelled_link_by_link(s: &Scene) {
    let first = s.add().await;
    let mut chain: Vec<NewTask> = Vec::new();
    for _ in 0..MAX_CASCADE + 10 {
        let before = chain.last().map_or(first, |task| task.id);
        chain.push(after(s, &[before], OnFailed::Cancel));
    }
    let ids: Vec<TaskId> = chain.iter().map(|task| task.id).collect();
    s.store.enqueue(chain).await.expect("enqueue answers");
    s.cancel(first).await;
    assert_eq!(s.state(ids[MAX_CASCADE - 1]).await, StateName::Cancelled);
    assert_eq!(s.waits(ids[MAX_CASCADE]).await, BLOCKED);
    release_all_dependents(&*s.store).await.expect("make_ready answers");
    assert_eq!(s.store.make_ready(100).await, Ok(MadeReady::default()), "no task is left over");
    assert_eq!(s.counts().await.cancelled, MAX_CASCADE as u64 + 11);
}

async fn an_end_that_frees_rings_the_bell(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    add_after(s, &[first]).await;
    let lease = s.run(node).await;
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    s.finish(lease, Outcome::Success).await;
    heard("the end of a task that another waits for", &mut wakeups).await;
}
