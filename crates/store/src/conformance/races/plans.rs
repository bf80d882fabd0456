//! Races about plans: one key, and a task that comes to wait for another as that one ends.

use std::sync::Arc;

use ostler_core::{OnConflict, Outcome, Readiness, StateName, Wait};

use super::super::scene::one;
use super::rounds::{clear, connections, finish};
use super::run::{Side, Stage, Stagger, both};
use crate::calls::{Enqueued, Finished, NewTask};
use crate::contract::Store;
use crate::plans::Unique;

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
    // Whoever was first, nobody waits for what has ended.
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
