//! Show: one task with its attempts and steps.

use ostler_core::{EventBody, Outcome};

use super::super::scene::Scene;
use super::runner::cases;
use ostler_store::calls::{NewStep, Prune};
use ostler_store::views::TaskRef;

cases![an_unknown_task_is_not_there, a_second_connection_sees_the_same, a_pruned_task_is_not_there];

async fn an_unknown_task_is_not_there(s: &Scene) {
    assert!(s.find(s.task_id()).await.is_none());
    let key = TaskRef::Key { queue: "nowhere".to_owned(), key: "nothing".to_owned() };
    assert_eq!(s.store.show(key).await, Ok(None));
}

async fn a_second_connection_sees_the_same(s: &Scene) {
    let node = s.join().await;
    let second = s.fixture.second().await;
    let lease = s.running(node).await;
    let step = NewStep { name: "fetched".to_owned(), value: "1".to_owned() };
    s.store.save_step(lease.as_ref(), step).await.expect("save_step answers");
    let event = EventBody::line("a");
    second.append(lease.as_ref(), vec![event]).await.expect("append answers");
    s.finish(lease, Outcome::HandedBack).await;
    s.add().await;
    let there = super::super::picture::Picture::take(second.as_ref()).await;
    assert_eq!(s.picture().await, there);
    assert_eq!(there.tasks.len(), 2);
}

async fn a_pruned_task_is_not_there(s: &Scene) {
    let node = s.join().await;
    let id = s.completed(node).await;
    s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
    assert!(s.find(id).await.is_none());
}
