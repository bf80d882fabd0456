//! Unique keys: one task holds the key at a time, for as long as the task is kept or for a set time. A later task with
//! the key is answered with the holder, replaces it, or is refused.

use std::time::Duration;

use ostler_core::{
    ErrorClass, EventBody, KeyHold, OnConflict, Outcome, Overrides, Priority, Readiness, State, StateName,
    TaskId, Wait,
};

use super::super::scene::{KIND, QUEUE, Scene, TICK, TRACE, failure};
use super::outbox::{hear, tell};
use super::runner::cases;
use ostler_store::calls::{Enqueued, NewStep, NewTask, Prune, QueueChange, Replay, ReplayAnswer, Saved};
use ostler_store::outbox::OutboxFilter;
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;

cases![
    a_repeated_key_answers_with_the_task_that_has_it,
    a_key_twice_in_one_call_makes_one_task,
    a_key_belongs_to_its_queue,
    a_key_is_compared_exactly,
    a_key_is_taken_while_its_task_is_leased_or_ended,
    a_key_is_free_when_its_task_is_pruned,
    a_key_finds_its_task,
    many_tasks_have_no_key,
    a_key_with_a_time_is_free_when_the_time_is_over,
    a_key_is_free_after_its_time_whatever_its_task_does,
    a_key_that_was_given_on_finds_the_new_task_alone,
    a_full_queue_leaves_an_old_key_where_it_is,
    a_key_held_until_the_end_is_free_once_its_task_has_ended,
    a_queue_says_how_long_keys_are_held,
    a_replay_takes_its_key_back_or_is_refused,
    a_replaced_task_holds_the_key_as_the_new_one_says,
    a_key_that_is_taken_can_be_a_refusal,
    a_task_that_waits_takes_over_what_the_new_one_brings,
    a_replacement_is_counted_from_the_beginning,
    a_replacement_holds_the_key_from_now_on,
    a_replacement_moves_to_the_kind_and_the_limit_key_of_the_new_one,
    a_replacement_that_was_parked_makes_no_room,
    what_is_told_of_a_replaced_task_is_of_what_it_was,
    a_full_queue_does_not_stop_a_replacement,
    a_task_that_runs_or_has_ended_is_not_replaced,
];

fn keyed(s: &Scene, key: &str) -> NewTask {
    NewTask { unique: Some(Unique::new(key)), ..s.draft() }
}

fn held(s: &Scene, hold_ms: Option<u64>, on_conflict: OnConflict) -> NewTask {
    let hold = hold_ms.map(|ms| KeyHold::For(Duration::from_millis(ms)));
    NewTask { unique: Some(Unique { key: "k".to_owned(), hold, on_conflict }), ..s.draft() }
}

/// A task that replaces the holder of the key.
fn replacing(s: &Scene) -> NewTask {
    NewTask { payload: "\"new\"".to_owned(), ..held(s, None, OnConflict::Replace) }
}

async fn ask(s: &Scene, task: NewTask) -> Enqueued {
    s.store.enqueue(vec![task]).await.expect("enqueue answers")[0]
}

fn named(queue: &str, key: &str) -> TaskRef {
    TaskRef::Key { queue: queue.to_owned(), key: key.to_owned() }
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
    s.finish(lease, Outcome::Success).await;
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

// ---- with a hold time ----

async fn a_key_with_a_time_is_free_when_the_time_is_over(s: &Scene) {
    let first = s.enqueue(held(s, Some(10), OnConflict::Keep)).await;
    s.pass(Duration::from_millis(9));
    assert_eq!(ask(s, keyed(s, "k")).await, Enqueued::Existing(first), "its last moment");
    s.pass(TICK);
    assert_eq!(found(s, QUEUE, "k").await, Some(first), "no other task came: it is still found by the key");
    let second = s.enqueue(held(s, Some(10), OnConflict::Reject)).await;
    assert_eq!(s.counts().await.queued, 2);
    s.pass(Duration::from_millis(9));
    assert_eq!(ask(s, keyed(s, "k")).await, Enqueued::Existing(second), "its time began anew");
}

async fn a_key_is_free_after_its_time_whatever_its_task_does(s: &Scene) {
    let node = s.join().await;
    for wish in OnConflict::ALL {
        s.enqueue(held(s, Some(5), OnConflict::Keep)).await;
        let lease = s.run(node).await;
        s.pass(Duration::from_millis(5));
        let next = s.enqueue(held(s, Some(1), wish)).await;
        s.finish(lease, Outcome::Success).await;
        s.cancel(next).await;
        s.pass(TICK);
    }
}

async fn a_key_that_was_given_on_finds_the_new_task_alone(s: &Scene) {
    let first = s.enqueue(held(s, Some(1), OnConflict::Keep)).await;
    assert_eq!(s.task(first).await.unique_key.as_deref(), Some("k"));
    s.pass(TICK);
    let second = s.enqueue(keyed(s, "k")).await;
    assert_eq!(found(s, QUEUE, "k").await, Some(second));
    assert_eq!(s.task(first).await.unique_key, None);
    s.cancel(first).await;
    s.store.prune(Prune::Tasks(vec![first])).await.expect("prune answers");
    assert_eq!(found(s, QUEUE, "k").await, Some(second), "the key does not go with who had it before");
}

async fn a_full_queue_leaves_an_old_key_where_it_is(s: &Scene) {
    let first = s.enqueue(held(s, Some(1), OnConflict::Keep)).await;
    s.configure(QueueChange::Limit(Some(1))).await;
    s.pass(TICK);
    assert_eq!(ask(s, keyed(s, "k")).await, Enqueued::QueueFull { limit: 1 });
    assert_eq!(found(s, QUEUE, "k").await, Some(first));
}

// ---- until the end ----

fn until_end(s: &Scene) -> NewTask {
    NewTask { unique: Some(Unique { hold: Some(KeyHold::End), ..Unique::new("k") }), ..s.draft() }
}

async fn replayed(s: &Scene, id: TaskId) -> ReplayAnswer {
    s.store.replay(vec![id], Replay::default()).await.expect("replay answers")[0]
}

async fn a_key_held_until_the_end_is_free_once_its_task_has_ended(s: &Scene) {
    let node = s.join().await;
    for outcome in [Outcome::Success, failure(ErrorClass::Permanent)] {
        let first = s.enqueue(until_end(s)).await;
        assert_eq!(ask(s, until_end(s)).await, Enqueued::Existing(first), "it waits");
        let lease = s.run(node).await;
        assert_eq!(ask(s, until_end(s)).await, Enqueued::Existing(first), "it runs");
        s.finish(lease, outcome).await;
        assert_eq!(
            found(s, QUEUE, "k").await,
            Some(first),
            "no other task came: it is still found by the key"
        );
        let second = s.enqueue(until_end(s)).await;
        assert_eq!(found(s, QUEUE, "k").await, Some(second), "the key means the newest task");
        assert_eq!(s.task(first).await.unique_key, None);
        s.cancel(second).await;
    }
    // Whatever the new task says: how long the key is held is a matter of the task that has it.
    s.enqueue(keyed(s, "k")).await;
}

async fn a_queue_says_how_long_keys_are_held(s: &Scene) {
    s.configure(QueueChange::KeyHold(KeyHold::End)).await;
    let first = s.enqueue(keyed(s, "k")).await;
    assert_eq!(ask(s, keyed(s, "k")).await, Enqueued::Existing(first));
    s.cancel(first).await;
    let kept = s.enqueue(NewTask {
        unique: Some(Unique { hold: Some(KeyHold::Removed), ..Unique::new("k") }),
        ..s.draft()
    });
    let kept = kept.await;
    s.cancel(kept).await;
    assert_eq!(ask(s, keyed(s, "k")).await, Enqueued::Existing(kept), "a task may say otherwise");
    let other = s.enqueue(keyed(s, "other")).await;
    s.configure(QueueChange::KeyHold(KeyHold::Removed)).await;
    s.cancel(other).await;
    s.enqueue(keyed(s, "other")).await;
}

async fn a_replay_takes_its_key_back_or_is_refused(s: &Scene) {
    let first = s.enqueue(until_end(s)).await;
    s.cancel(first).await;
    assert_eq!(replayed(s, first).await, ReplayAnswer::Requeued, "it still has its key");
    s.cancel(first).await;
    let second = s.enqueue(until_end(s)).await;
    let before = s.picture().await;
    assert_eq!(replayed(s, first).await, ReplayAnswer::KeyTaken { holder: second });
    assert_eq!(s.picture().await, before, "nothing was written");
    s.cancel(second).await;
    assert_eq!(replayed(s, first).await, ReplayAnswer::Requeued, "the other one has ended");
    assert_eq!(found(s, QUEUE, "k").await, Some(first));
    assert_eq!(replayed(s, second).await, ReplayAnswer::KeyTaken { holder: first });
    s.cancel(first).await;
    s.store.prune(Prune::Tasks(vec![first])).await.expect("prune answers");
    assert_eq!(replayed(s, second).await, ReplayAnswer::Requeued, "the other one is gone");
    assert_eq!(ask(s, until_end(s)).await, Enqueued::Existing(second));
    s.store.amend(second, Overrides { attempts: Some(2), ..Overrides::NONE }).await.expect("amend answers");
    s.cancel(second).await;
    let third = s.enqueue(keyed(s, "k")).await;
    assert_eq!(
        replayed(s, second).await,
        ReplayAnswer::KeyTaken { holder: third },
        "amended, it knows its key"
    );
    s.cancel(third).await;
    assert_eq!(replayed(s, second).await, ReplayAnswer::KeyTaken { holder: third }, "that one keeps the key");
}

async fn a_replaced_task_holds_the_key_as_the_new_one_says(s: &Scene) {
    let first = s.enqueue(keyed(s, "k")).await;
    let mut new = until_end(s);
    new.unique.as_mut().expect("it has a key").on_conflict = OnConflict::Replace;
    assert_eq!(ask(s, new).await, Enqueued::Replaced(first));
    s.cancel(first).await;
    let second = s.enqueue(until_end(s)).await;
    assert_eq!(replayed(s, first).await, ReplayAnswer::KeyTaken { holder: second });
}

// ---- refused ----

async fn a_key_that_is_taken_can_be_a_refusal(s: &Scene) {
    let node = s.join().await;
    let holder = s.enqueue(keyed(s, "k")).await;
    for _ in 0..2 {
        let before = s.picture().await;
        let refused = held(s, None, OnConflict::Reject);
        let id = refused.id;
        assert_eq!(ask(s, refused).await, Enqueued::Rejected { holder });
        assert!(s.find(id).await.is_none());
        assert_eq!(s.picture().await, before);
        if s.state(holder).await == StateName::Queued {
            let lease = s.run(node).await;
            s.finish(lease, Outcome::Success).await;
        }
    }
    let again = NewTask { id: holder, ..held(s, None, OnConflict::Reject) };
    assert_eq!(ask(s, again).await, Enqueued::Existing(holder), "a repeat of a call is not a refusal");
}

// ---- replaced ----

async fn a_task_that_waits_takes_over_what_the_new_one_brings(s: &Scene) {
    let id = s.enqueue(keyed(s, "k")).await;
    let (created_at, rank) = (s.now(), s.task(id).await.rank);
    s.pass(Duration::from_secs(1));
    let overrides = Overrides { attempts: Some(7), ..Overrides::NONE };
    let new = NewTask {
        priority: Priority::new(3).expect("a priority"),
        run_at: Some(s.in_ms(50)),
        overrides,
        not_after: Some(s.in_ms(100)),
        deadline: Some(s.in_ms(90)),
        folder: Some("/tmp/new".to_owned()),
        traceparent: TRACE.parse().ok(),
        ..replacing(s)
    };
    let wanted = new.clone();
    assert_eq!(ask(s, new).await, Enqueued::Replaced(id));
    let task = s.task(id).await;
    assert!(s.find(wanted.id).await.is_none(), "there is one task, with the id it had");
    assert_eq!((task.payload, task.priority), (wanted.payload, wanted.priority));
    assert_eq!((task.overrides, task.folder), (overrides, wanted.folder));
    assert_eq!((&task.traceparent, task.traceparent.is_some()), (&wanted.traceparent, true));
    assert_eq!((task.not_after, task.deadline), (wanted.not_after, wanted.deadline));
    assert_eq!((task.created_at, task.unique_key.as_deref()), (created_at, Some("k")));
    assert_ne!(task.rank, rank, "it takes its turn anew");
    let (readiness, why) = (Readiness::Waiting, Wait::Scheduled);
    assert_eq!(task.state, State::Queued { readiness, why, run_at: s.in_ms(50) });
    assert_eq!(ask(s, replacing(s)).await, Enqueued::Replaced(id));
    assert_eq!(
        s.waits(id).await,
        (Readiness::Ready, Wait::New),
        "and waits no more, if the next one does not"
    );
    assert_eq!((s.task(id).await.not_after, s.task(id).await.deadline), (None, None));
    assert_eq!(s.counts().await.submitted(), 1);
}

async fn a_replacement_is_counted_from_the_beginning(s: &Scene) {
    let node = s.join().await;
    let id = s.enqueue(keyed(s, "k")).await;
    let lease = s.run(node).await;
    let step = NewStep { name: "fetched".to_owned(), value: "1".to_owned() };
    assert_eq!(s.store.save_step(lease.as_ref(), step).await, Ok(Saved::Recorded));
    let session = EventBody::Session { id: "s-1".to_owned() };
    s.store.append(lease.as_ref(), vec![session]).await.expect("append answers");
    s.finish(lease, failure(ErrorClass::Crash)).await;
    assert_eq!((s.task(id).await.failures, s.task(id).await.crashes), (1, 1));
    assert_eq!(ask(s, replacing(s)).await, Enqueued::Replaced(id));
    let shown = s.show(id).await;
    assert_eq!((shown.task.failures, shown.task.crashes), (0, 0));
    assert!(shown.steps.is_empty(), "they were of other work");
    assert_eq!((shown.task.runs, shown.attempts.len()), (1, 1), "what happened is kept");
    let claimed = s.claim(node, 1).await.remove(0);
    assert_eq!((claimed.payload.as_str(), claimed.attempt), ("\"new\"", 2));
    assert_eq!(s.show(id).await.session_before(claimed.lease.as_ref().token), None, "it was of other work");
}

async fn a_replacement_holds_the_key_from_now_on(s: &Scene) {
    let id = s.enqueue(held(s, Some(10), OnConflict::Keep)).await;
    s.pass(Duration::from_millis(8));
    let again = NewTask { id: s.task_id(), ..held(s, Some(10), OnConflict::Replace) };
    assert_eq!(ask(s, again).await, Enqueued::Replaced(id));
    s.pass(Duration::from_millis(9));
    assert_eq!(ask(s, keyed(s, "k")).await, Enqueued::Existing(id));
    s.pass(TICK);
    s.enqueue(keyed(s, "k")).await;
}

async fn a_replacement_moves_to_the_kind_and_the_limit_key_of_the_new_one(s: &Scene) {
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let node = s.join().await;
    let first = s.enqueue(NewTask { limit_key: Some("a".to_owned()), ..keyed(s, "k") }).await;
    let parked = s.add_keyed("a").await;
    assert_eq!(s.waits(parked).await, (Readiness::Parked, Wait::Concurrency));
    let kind = "sort".to_owned();
    let new = NewTask { kind, limit_key: Some("b".to_owned()), ..replacing(s) };
    assert_eq!(ask(s, new).await, Enqueued::Replaced(first));
    assert_eq!(s.waits(parked).await.0, Readiness::Ready, "its key has room");
    let task = s.task(first).await;
    assert_eq!((task.kind.as_str(), task.limit_key.as_deref()), ("sort", Some("b")));
    let lanes = s.store.survey().await.expect("survey answers").lanes;
    let queued: Vec<(&str, u64)> =
        lanes.iter().map(|lane| (lane.kind.as_str(), lane.counts.queued)).collect();
    assert_eq!(queued, [("send", 1), ("sort", 1)]);
    let other = s.add_keyed("b").await;
    assert_eq!(s.waits(other).await, (Readiness::Parked, Wait::Concurrency), "it has a place of its new key");
    assert_eq!(s.claim(node, 10).await.len(), 2);
    let without = NewTask { limit_key: None, ..replacing(s) };
    assert_eq!(ask(s, without).await, Enqueued::Existing(first), "it is leased now");
}

async fn a_replacement_that_was_parked_makes_no_room(s: &Scene) {
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let ready = s.add_keyed("a").await;
    let parked = s.enqueue(NewTask { limit_key: Some("a".to_owned()), ..keyed(s, "k") }).await;
    let last = s.add_keyed("a").await;
    assert_eq!(
        ask(s, NewTask { limit_key: Some("a".to_owned()), ..replacing(s) }).await,
        Enqueued::Replaced(parked)
    );
    assert_eq!(s.waits(ready).await.0, Readiness::Ready);
    assert_eq!(s.waits(parked).await, (Readiness::Parked, Wait::Concurrency));
    s.cancel(ready).await;
    assert_eq!(s.waits(last).await.0, Readiness::Ready, "who was replaced stands at the end of the line");
    assert_eq!(s.waits(parked).await.0, Readiness::Parked);
}

async fn what_is_told_of_a_replaced_task_is_of_what_it_was(s: &Scene) {
    let node = s.join().await;
    tell(s, OutboxFilter::ALL).await;
    let id = s.enqueue(keyed(s, "k")).await;
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Transient)).await;
    assert_eq!(ask(s, NewTask { kind: "sort".to_owned(), ..replacing(s) }).await, Enqueued::Replaced(id));
    let telling = hear(s, node, 10).await.remove(0);
    assert_eq!((telling.task, telling.kind.as_str()), (id, KIND));
}

async fn a_full_queue_does_not_stop_a_replacement(s: &Scene) {
    let id = s.enqueue(keyed(s, "k")).await;
    s.configure(QueueChange::Limit(Some(1))).await;
    assert_eq!(ask(s, replacing(s)).await, Enqueued::Replaced(id));
    assert_eq!(s.task(id).await.payload, "\"new\"");
}

async fn a_task_that_runs_or_has_ended_is_not_replaced(s: &Scene) {
    let node = s.join().await;
    let id = s.enqueue(keyed(s, "k")).await;
    let lease = s.lease(node).await;
    let existing = Enqueued::Existing(id);
    assert_eq!(ask(s, replacing(s)).await, existing);
    s.start(&lease).await;
    assert_eq!(ask(s, replacing(s)).await, existing);
    s.finish(lease, failure(ErrorClass::Permanent)).await;
    assert_eq!(ask(s, replacing(s)).await, existing);
    assert_eq!(s.task(id).await.payload, "{}");
}
