//! Races over plans: one unique key, the last place in a queue, one due time of a schedule, and a task that is enqueued after another
//! just as that one finishes.

use std::sync::Arc;

use ostler_core::{Missed, OnConflict, Outcome, Overlap, Overrides, Priority, Readiness, StateName, Wait};

use super::super::scene::{KIND, QUEUE, TTL, one};
use super::rounds::{clear, connections, finish};
use super::run::{Side, Stage, Stagger, both};
use ostler_store::Store;
use ostler_store::calls::{Enqueued, Finished, NewTask, QueueChange};
use ostler_store::schedules::{
    Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, TaskTemplate,
};
use ostler_store::unique::Unique;

async fn enqueue(store: Arc<dyn Store>, task: NewTask) -> Enqueued {
    one(store.enqueue(vec![task]).await.expect("enqueue answers"))
}

pub(super) async fn two_tasks_with_one_key(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let task =
        |on_conflict| NewTask { unique: Some(Unique { on_conflict, ..Unique::new("k") }), ..s.draft() };
    let (left, right) = (task(OnConflict::Keep), task(OnConflict::Reject));
    let ids = [left.id, right.id];
    let [one, other] = connections(stage);
    let answers = both(stagger, enqueue(one, left), enqueue(other, right)).await;
    let winner = match answers {
        (Enqueued::Created(id), Enqueued::Rejected { holder }) => {
            assert_eq!([id, holder], [ids[0]; 2]);
            Side::Left
        }
        (Enqueued::Existing(id), Enqueued::Created(holder)) => {
            assert_eq!([id, holder], [ids[1]; 2]);
            Side::Right
        }
        other => panic!("one of both is there, and the answers are {other:?}"),
    };
    assert_eq!(s.counts().await.queued, 1);
    clear(s, ids[winner as usize], &[]).await;
    winner
}

pub(super) async fn two_tasks_at_the_limit(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    s.configure(QueueChange::Limit(Some(1))).await;
    let (left, right) = (s.draft(), s.draft());
    let ids = [left.id, right.id];
    let [one, other] = connections(stage);
    let answers = both(stagger, enqueue(one, left), enqueue(other, right)).await;
    let winner = match answers {
        (Enqueued::Created(_), Enqueued::QueueFull { limit: 1 }) => Side::Left,
        (Enqueued::QueueFull { limit: 1 }, Enqueued::Created(_)) => Side::Right,
        other => panic!("there is room for one, and the answers are {other:?}"),
    };
    assert_eq!(s.counts().await.queued, 1);
    s.configure(QueueChange::Limit(None)).await;
    clear(s, ids[winner as usize], &[]).await;
    winner
}

pub(super) async fn finish_and_enqueue_after(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let lease = s.leased(node).await;
    let first = lease.task();
    let task = NewTask { after: vec![first], ..s.draft() };
    let id = task.id;
    let [one, other] = connections(stage);
    let answers = both(stagger, finish(one, lease, Outcome::Success), enqueue(other, task)).await;
    assert_eq!(answers, (Finished::Recorded(StateName::Completed), Enqueued::Created(id)));
    // Whichever side was first, the task does not wait for a finished one.
    assert!(s.show(id).await.after.is_empty());
    let winner = match s.waits(id).await {
        (Readiness::Ready, Wait::New) => Side::Left,
        (Readiness::Ready, Wait::Dependency) => Side::Right,
        other => panic!("it is ready, and not {other:?}"),
    };
    clear(s, id, &[]).await;
    clear(s, first, &[node]).await;
    winner
}

pub(super) async fn two_firings(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let (queue, kind, payload) = (QUEUE.to_owned(), KIND.to_owned(), "{}".to_owned());
    let task = TaskTemplate { queue, kind, payload, priority: Priority::NORMAL, overrides: Overrides::NONE };
    let (name, spec) = ("nightly".to_owned(), "every minute".to_owned());
    let (overlap, missed, next_at) = (Overlap::Queue, Missed::One, Some(s.now()));
    let schedule = Schedule { name: name.clone(), spec, overlap, missed, task: task.clone(), next_at };
    assert_eq!(s.store.put_schedule(schedule).await, Ok(PutAnswer::Created));
    let ids = [s.task_id(), s.task_id()];
    let next = Some(s.now().after(TTL));
    let firing = |id| Firing { schedule: name.clone(), expected: s.now(), next, task: Some(task.task(id)) };
    let fires =
        |store: Arc<dyn Store>, firing| async move { store.fire(firing).await.expect("fire answers") };
    let [one, other] = connections(stage);
    let winner = match both(stagger, fires(one, firing(ids[0])), fires(other, firing(ids[1]))).await {
        (Fired::Enqueued(id), Fired::NotDue) if id == ids[0] => Side::Left,
        (Fired::NotDue, Fired::Enqueued(id)) if id == ids[1] => Side::Right,
        other => panic!("one run is made, and the answers are {other:?}"),
    };
    let kept = s.store.schedules().await.expect("schedules answers").remove(0);
    assert_eq!((kept.schedule.next_at, kept.last_task), (next, Some(ids[winner as usize])));
    assert_eq!(s.counts().await.queued, 1, "one run");
    assert_eq!(s.store.change_schedule(&name, ScheduleChange::Remove).await, Ok(ScheduleAnswer::Done));
    clear(s, ids[winner as usize], &[]).await;
    winner
}
