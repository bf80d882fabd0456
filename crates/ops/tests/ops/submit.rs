//! Submissions: times of the store, repeated ids and keys, refusals, and the bounded wait.

use std::time::Duration;

use ostler_core::{OnConflict, StateName, Timestamp};
use ostler_ops::submit::{
    BatchError, NotEnqueued, SubmitAnswer, SubmitRequest, line_view, submit, submit_batch, wait,
};
use ostler_ops::task_name::NamedTask;
use ostler_ops::{Missing, OpsError, Refusal, Unsuccessful};
use ostler_store::calls::{NewTask, Prune, QueueChange};
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;
use ostler_store::{Bounds, Clock as _, ErrorKind, MAX_AFTER, Store as _};

use crate::world::{QUEUE, World};

const HOUR: Duration = Duration::from_secs(3_600);

fn plain(task: NewTask) -> SubmitRequest {
    SubmitRequest { task, delay: None, deadline: None, after: Vec::new() }
}

fn request(world: &World) -> SubmitRequest {
    plain(world.ids.new_task(QUEUE, "send"))
}

#[tokio::test]
async fn delay_and_deadline_are_counted_by_the_clock_of_the_store() {
    let world = World::new();
    let later = SubmitRequest { delay: Some(HOUR), deadline: Some(2 * HOUR), ..request(&world) };
    later.check(Bounds::default(), Timestamp::ZERO).expect("it is valid, whatever the caller's clock shows");
    let answer = submit(world.store(), &later).await.expect("it is accepted");
    assert_eq!(answer, SubmitAnswer::Created(later.task.id));
    let task = world.store.show(TaskRef::Id(answer.id())).await.expect("read").expect("it is there").task;
    assert_eq!(task.deadline, Some(world.clock.now().after(2 * HOUR)));
    assert!(world.claim(world.node("a", "{}").await, QUEUE, 1).await.is_empty(), "it is not due");
}

#[tokio::test]
async fn a_repeated_id_is_the_same_task_and_an_id_of_other_work_is_refused() {
    let world = World::new();
    let first = request(&world);
    submit(world.store(), &first).await.expect("it is accepted");
    let again = submit(world.store(), &first).await.expect("it is accepted once");
    assert_eq!(again, SubmitAnswer::SameId(first.task.id));
    assert_eq!(serde_json::to_value(again.view()).expect("JSON")["result"], "existing");
    let other = plain(NewTask { payload: "2".to_owned(), ..first.task.clone() });
    let refused = submit(world.store(), &other).await;
    assert!(matches!(refused, Err(OpsError::Refused(Refusal::IdTaken { .. }))), "{refused:?}");
}

#[tokio::test]
async fn a_key_that_another_task_has_is_kept_replaced_or_rejected() {
    let world = World::new();
    let keyed = |on_conflict| {
        let unique = Some(Unique { on_conflict, ..Unique::new("k".to_owned()) });
        plain(NewTask { unique, ..world.ids.new_task(QUEUE, "send") })
    };
    let first = keyed(OnConflict::Keep);
    submit(world.store(), &first).await.expect("it is accepted");
    let holder = first.task.id;
    for (on_conflict, answer) in [
        (OnConflict::Keep, SubmitAnswer::SameKey(holder)),
        (OnConflict::Reject, SubmitAnswer::Rejected(holder)),
        (OnConflict::Replace, SubmitAnswer::Replaced(holder)),
    ] {
        assert_eq!(submit(world.store(), &keyed(on_conflict)).await, Ok(answer));
    }
}

#[tokio::test]
async fn dependencies_are_named_by_id_or_key_and_must_exist() {
    let world = World::new();
    let unique = Some(Unique::new("first".to_owned()));
    let first = world.put(NewTask { unique, ..world.ids.new_task(QUEUE, "send") }).await;
    let key = NamedTask::Key { queue: QUEUE.to_owned(), key: "first".to_owned() };
    let second = SubmitRequest { after: vec![key], ..request(&world) };
    let id = submit(world.store(), &second).await.expect("it is accepted").id();
    let found = world.store.show(TaskRef::Id(id)).await.expect("read").expect("it is there");
    assert_eq!(found.after, [first]);
    let unknown = world.ids.task();
    let third = SubmitRequest { after: vec![NamedTask::Id(unknown)], ..request(&world) };
    assert_eq!(submit(world.store(), &third).await, Err(Missing::Dependency(unknown).into()));
    let many = SubmitRequest { after: vec![NamedTask::Id(first); MAX_AFTER + 1], ..request(&world) };
    let refused = many.check(Bounds::default(), world.clock.now());
    assert!(matches!(refused, Err(OpsError::Store(error)) if error.kind() == ErrorKind::Invalid));
}

#[tokio::test]
async fn a_batch_has_an_answer_for_each_request_and_a_name_that_is_not_found_stores_nothing_of_it() {
    let world = World::new();
    let (first, unknown) = (request(&world), world.ids.task());
    let other = plain(NewTask { payload: "2".to_owned(), ..first.task.clone() });
    let lost = SubmitRequest { after: vec![NamedTask::Id(unknown)], ..request(&world) };
    let nameless = NamedTask::Key { queue: QUEUE.to_owned(), key: "of no task".to_owned() };
    let wrong = SubmitRequest { after: vec![nameless], ..request(&world) };
    let refused = submit_batch(world.store(), &[first.clone(), wrong]).await;
    assert!(matches!(refused, Err(BatchError::Request(1, OpsError::Missing(_)))), "{refused:?}");
    assert_eq!(world.state(first.task.id).await, None);
    let all = [first.clone(), first.clone(), other, lost];
    let answers = submit_batch(world.store(), &all).await.expect("they are answered");
    let id = first.task.id;
    let taken = NotEnqueued::IdTaken { id, queue: QUEUE.to_owned(), kind: "send".to_owned() };
    let expected = [
        Ok(SubmitAnswer::Created(id)),
        Ok(SubmitAnswer::SameId(id)),
        Err(taken),
        Err(NotEnqueued::NoSuchTask(unknown)),
    ];
    assert_eq!(answers, expected);
    let words: Vec<&str> = answers.iter().map(|answer| line_view(1, answer).result.name()).collect();
    assert_eq!(words, ["created", "existing", "id_taken", "no_such_task"]);
}

#[tokio::test]
async fn a_full_queue_says_its_limit() {
    let world = World::new();
    world.store.configure(QUEUE, vec![QueueChange::Limit(Some(1))]).await.expect("it is configured");
    world.enqueue(1).await;
    let full = submit(world.store(), &request(&world)).await.expect_err("it is full");
    assert_eq!(full.to_string(), "the queue \"mail\" is full: 1 tasks are waiting, its limit");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_task_with_its_removal_or_at_its_bound() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    assert_eq!(wait(world.store(), id, Some(HOUR)).await, Err(Unsuccessful::NotFinished(id).into()));
    let (waited, ()) = tokio::join!(wait(world.store(), id, None), world.complete(1));
    assert_eq!(waited.map(|task| task.state.name()), Ok(StateName::Completed));
    world.store.prune(Prune::Tasks(vec![id])).await.expect("it is removed");
    assert_eq!(wait(world.store(), id, None).await, Err(Missing::Removed(id).into()));
}

/// Time is paused: it passes only while all wait, so a wait that ends by a hint takes none.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_task_does_and_not_at_its_next_poll() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    let ends = async {
        // By then the waiter polls rarely, and this is between two polls.
        tokio::time::sleep(Duration::from_millis(60_300)).await;
        world.complete(1).await;
        tokio::time::Instant::now()
    };
    let (waited, ended) = tokio::join!(wait(world.store(), id, None), ends);
    assert_eq!(waited.map(|task| task.state.name()), Ok(StateName::Completed));
    assert_eq!(ended.elapsed(), Duration::ZERO);
}
