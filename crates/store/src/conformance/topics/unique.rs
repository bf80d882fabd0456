//! Unique keys: while a task with the key is kept, a repeat answers with that one.

use ostler_core::TaskId;

use super::super::scene::{QUEUE, Scene};
use super::runner::cases;
use crate::calls::{Enqueued, NewTask, Prune};
use crate::views::Which;

cases![
    a_repeated_key_answers_with_the_task_that_has_it,
    a_key_twice_in_one_call_makes_one_task,
    a_key_belongs_to_its_queue,
    a_key_is_compared_exactly,
    a_key_is_taken_while_its_task_is_leased_or_ended,
    a_key_is_free_when_its_task_is_pruned,
    a_key_finds_its_task,
    many_tasks_have_no_key,
];

fn keyed(s: &Scene, key: &str) -> NewTask {
    NewTask { unique_key: Some(key.to_owned()), ..s.draft() }
}

fn named(queue: &str, key: &str) -> Which {
    Which::Key { queue: queue.to_owned(), key: key.to_owned() }
}

async fn found(s: &Scene, queue: &str, key: &str) -> Option<TaskId> {
    s.store.show(named(queue, key)).await.expect("show answers").map(|detail| detail.task.id)
}

async fn a_repeated_key_answers_with_the_task_that_has_it(s: &Scene) {
    let id = s.enqueue(keyed(s, "order-7")).await;
    let before = s.picture().await;
    let again = NewTask { kind: "other".to_owned(), payload: "[1]".to_owned(), ..keyed(s, "order-7") };
    let refused = again.id;
    assert_eq!(s.store.enqueue(vec![again]).await, Ok(vec![Enqueued::Existing(id)]));
    assert_eq!(s.picture().await, before);
    assert!(s.find(refused).await.is_none());
}

async fn a_key_twice_in_one_call_makes_one_task(s: &Scene) {
    let first = keyed(s, "k");
    let id = first.id;
    let answers = s.store.enqueue(vec![first, keyed(s, "k"), keyed(s, "k")]).await;
    assert_eq!(answers, Ok(vec![Enqueued::Created(id), Enqueued::Existing(id), Enqueued::Existing(id)]));
    assert_eq!(s.counts().await.submitted(), 1);
}

async fn a_key_belongs_to_its_queue(s: &Scene) {
    let here = s.enqueue(keyed(s, "k")).await;
    let there = s.enqueue(NewTask { queue: "parcels".to_owned(), ..keyed(s, "k") }).await;
    assert_eq!(found(s, QUEUE, "k").await, Some(here));
    assert_eq!(found(s, "parcels", "k").await, Some(there));
}

async fn a_key_is_compared_exactly(s: &Scene) {
    for key in ["key", "KEY", "key ", "ke\u{301}y", "k\u{e9}y"] {
        s.enqueue(keyed(s, key)).await;
    }
    assert_eq!(s.counts().await.submitted(), 5);
}

async fn a_key_is_taken_while_its_task_is_leased_or_ended(s: &Scene) {
    let node = s.join().await;
    let id = s.enqueue(keyed(s, "k")).await;
    let existing = Ok(vec![Enqueued::Existing(id)]);
    let lease = s.run(node).await;
    assert_eq!(s.store.enqueue(vec![keyed(s, "k")]).await, existing);
    s.finish(lease, ostler_core::Outcome::Success).await;
    assert_eq!(s.store.enqueue(vec![keyed(s, "k")]).await, existing);
    assert_eq!(s.claim_ids(node, 10).await, Vec::new(), "nothing was enqueued");
}

async fn a_key_is_free_when_its_task_is_pruned(s: &Scene) {
    let id = s.enqueue(keyed(s, "k")).await;
    s.cancel(id).await;
    assert_eq!(s.store.prune(Prune::Tasks(vec![id])).await.map(|pruned| pruned.tasks), Ok(1));
    assert_eq!(found(s, QUEUE, "k").await, None);
    let next = s.enqueue(keyed(s, "k")).await;
    assert_eq!(found(s, QUEUE, "k").await, Some(next));
}

async fn a_key_finds_its_task(s: &Scene) {
    let id = s.enqueue(keyed(s, "k")).await;
    assert_eq!(found(s, QUEUE, "k").await, Some(id));
    assert_eq!(found(s, QUEUE, "K").await, None);
    assert_eq!(found(s, "parcels", "k").await, None);
}

async fn many_tasks_have_no_key(s: &Scene) {
    s.add().await;
    s.add().await;
    assert_eq!(s.counts().await.queued, 2);
}
