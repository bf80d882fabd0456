//! Actions on many tasks: batches, answers, and the operator's approval.

use async_trait::async_trait;
use ostler_core::{Id, Priority, StateName, TaskId};
use ostler_ops::OpsError;
use ostler_ops::act::{ACT_BATCH, Act, Acted, Approval, Operator, act};
use ostler_ops::selection::{SelectedBy, Selector};
use ostler_ops::task_name::NamedTask;
use ostler_store::Store as _;
use ostler_store::calls::{NewTask, QueueChange, Replay};
use ostler_store::unique::Unique;
use ostler_store::views::{Filter, TaskRef};
use ostler_wire::action::{ActionResult, ActionView};

use crate::world::{QUEUE, World};

/// An operator with prepared answers, which records the questions and the progress it got.
struct Told {
    answer: Approval,
    asked: Vec<usize>,
    progress: Vec<(usize, usize)>,
}

impl Told {
    fn new(answer: Approval) -> Self {
        Self { answer, asked: Vec::new(), progress: Vec::new() }
    }
}

#[async_trait]
impl Operator for Told {
    async fn approve(&mut self, tasks: usize) -> Approval {
        self.asked.push(tasks);
        self.answer
    }

    fn progress(&mut self, done: usize, of: usize) {
        self.progress.push((done, of));
    }
}

fn all() -> Selector {
    Selector::Matching(Filter { queue: Some(QUEUE.to_owned()), ..Filter::default() })
}

fn named(ids: &[TaskId]) -> Selector {
    Selector::Named(ids.iter().copied().map(NamedTask::Id).collect())
}

async fn answers(world: &World, selector: &Selector, what: &Act<'_>) -> Vec<ActionView> {
    match act(world.store(), selector, what, &mut Told::new(Approval::GoOn)).await.expect("it is done") {
        Acted::Done { answers, .. } => answers,
        Acted::Declined => panic!("it was approved"),
    }
}

fn results(answers: &[ActionView]) -> Vec<ActionResult> {
    answers.iter().map(|answer| answer.result).collect()
}

#[tokio::test]
async fn many_tasks_are_acted_on_in_batches_with_progress() {
    let world = World::new();
    let count = ACT_BATCH + 1;
    world.enqueue(count).await;
    let mut operator = Told::new(Approval::GoOn);
    let done = act(world.store(), &all(), &Act::Cancel, &mut operator).await.expect("it is done");
    let Acted::Done { by: SelectedBy::Filter, answers } = done else { panic!("{done:?}") };
    assert_eq!(answers.len(), count);
    assert!(answers.iter().all(|answer| answer.result == ActionResult::Cancelled));
    assert_eq!(operator.asked, [count], "asked once");
    assert_eq!(operator.progress, [(ACT_BATCH, count), (count, count)]);
}

#[tokio::test]
async fn an_operator_who_declines_changes_nothing_and_nothing_is_asked_about_none() {
    let world = World::new();
    let mut operator = Told::new(Approval::Stop);
    let none = act(world.store(), &all(), &Act::Cancel, &mut operator).await;
    assert_eq!(none, Ok(Acted::Done { by: SelectedBy::Filter, answers: Vec::new() }));
    assert_eq!(operator.asked, [0; 0]);
    let id = world.enqueue(1).await[0];
    let declined = act(world.store(), &all(), &Act::Cancel, &mut operator).await;
    assert_eq!((declined, operator.asked.as_slice()), (Ok(Acted::Declined), &[1][..]));
    assert_eq!(world.state(id).await, Some(StateName::Queued));
}

#[tokio::test]
async fn named_tasks_are_not_asked_about_and_each_has_its_answer() {
    let world = World::new();
    let done = world.enqueue(1).await[0];
    world.complete(1).await;
    let (waiting, unknown) = (world.enqueue(1).await[0], world.ids.task());
    let mut operator = Told::new(Approval::Stop);
    let selector = named(&[done, unknown, waiting]);
    let acted = act(world.store(), &selector, &Act::Cancel, &mut operator).await.expect("it is done");
    let Acted::Done { by: SelectedBy::Name, answers } = acted else { panic!("{acted:?}") };
    let expected = [ActionResult::Refused, ActionResult::NotFound, ActionResult::Cancelled];
    assert_eq!(results(&answers), expected);
    assert_eq!(answers[0].state, Some("completed"));
    assert!(operator.asked.is_empty());
}

#[tokio::test]
async fn the_dependents_of_a_cancelled_task_are_cancelled_before_the_answer() {
    let world = World::new();
    let first = world.enqueue(1).await[0];
    let after = NewTask { after: vec![first], ..world.ids.new_task(QUEUE, "send") };
    let second = world.put(after).await;
    answers(&world, &named(&[first]), &Act::Cancel).await;
    assert_eq!(world.state(second).await, Some(StateName::Cancelled));
}

#[tokio::test]
async fn only_dead_letters_are_replayed_and_dropped_as_such() {
    let world = World::new();
    let dead = world.enqueue(2).await;
    world.fail(2).await;
    let waiting = world.enqueue(1).await[0];
    let selector = named(&[dead[0], waiting, world.ids.task()]);
    let mut dropped = results(&answers(&world, &selector, &Act::DropLetters).await);
    dropped.sort();
    assert_eq!(dropped, [ActionResult::Dropped, ActionResult::Refused, ActionResult::NotFound]);
    assert_eq!((world.state(dead[0]).await, world.state(waiting).await), (None, Some(StateName::Queued)));
    let replayed = answers(&world, &all(), &Act::ReplayLetters(Replay::default())).await;
    assert_eq!(results(&replayed), [ActionResult::Requeued]);
    assert_eq!(world.state(dead[1]).await, Some(StateName::Queued));
}

#[tokio::test]
async fn a_copy_has_the_settings_of_its_task_but_not_its_key() {
    let world = World::new();
    let task = NewTask {
        priority: Priority::new(7).expect("a priority"),
        unique: Some(Unique::new("k".to_owned())),
        folder: Some("/srv".to_owned()),
        ..world.ids.new_task(QUEUE, "send")
    };
    let id = world.put(task).await;
    world.complete(1).await;
    let next = || -> Id { world.ids.task().0 };
    let act = Act::Copy { payload: Some(r#"{"n":2}"#.to_owned()), ids: &next };
    let answers = answers(&world, &named(&[id]), &act).await;
    assert_eq!(results(&answers), [ActionResult::Copied]);
    let copy: TaskId = answers[0].copy.as_deref().expect("its id").parse().expect("an id");
    let copy = world.store.show(TaskRef::Id(copy)).await.expect("it is read").expect("it is there").task;
    assert_eq!((copy.priority.points(), copy.folder.as_deref()), (7, Some("/srv")));
    assert_eq!((copy.unique_key, copy.payload.as_str()), (None, r#"{"n":2}"#));
}

#[tokio::test]
async fn a_copy_for_a_full_queue_is_refused_with_its_limit() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    world.complete(1).await;
    world.store.configure(QUEUE, vec![QueueChange::Limit(Some(1))]).await.expect("it is configured");
    world.enqueue(1).await;
    let next = || -> Id { world.ids.task().0 };
    let what = Act::Copy { payload: None, ids: &next };
    let full = act(world.store(), &named(&[id]), &what, &mut Told::new(Approval::GoOn)).await;
    assert_eq!(full, Err(OpsError::QueueFull { queue: QUEUE.to_owned(), limit: 1 }));
}
