//! Show: one task with its attempts and steps.

use ostler_core::{EventBody, Outcome, TaskId};

use super::super::scene::{Scene, invalid};
use super::runner::cases;
use ostler_store::MAX_PAGE;
use ostler_store::calls::{NewStep, NewTask, Prune};
use ostler_store::views::{FoundIds, IdScan, TaskRef};

cases![
    an_unknown_task_is_not_there,
    a_second_connection_sees_the_same,
    a_pruned_task_is_not_there,
    a_task_is_found_by_the_beginning_and_by_the_end_of_its_id,
    no_more_ids_are_found_than_were_asked_for,
    which_of_many_tasks_exist_is_answered_in_their_order,
];

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

async fn which_of_many_tasks_exist_is_answered_in_their_order(s: &Scene) {
    let node = s.join().await;
    let pruned = s.completed(node).await;
    s.store.prune(Prune::Tasks(vec![pruned])).await.expect("prune answers");
    let (ended, queued, unknown) = (s.completed(node).await, s.add().await, s.task_id());
    let asked = vec![queued, unknown, pruned, ended, queued];
    assert_eq!(s.store.existing(asked).await, Ok(vec![queued, ended, queued]));
    assert_eq!(s.store.existing(Vec::new()).await, Ok(Vec::new()));
    invalid("too many tasks", s.store.existing(vec![queued; MAX_PAGE + 1]).await);
}

/// Adds a task with this id.
async fn add(s: &Scene, id: &str) -> TaskId {
    let id = id.parse().expect("an id");
    s.enqueue(NewTask { id, ..s.draft() }).await
}

async fn found(s: &Scene, part: &str, limit: usize) -> FoundIds {
    s.store.find_ids(part.parse().expect("a part of an id"), limit).await.expect("find_ids answers")
}

async fn a_task_is_found_by_the_beginning_and_by_the_end_of_its_id(s: &Scene) {
    let low = add(s, "00000000000000000000000000").await;
    let high = add(s, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ").await;
    let one = add(s, "3AAAAAAAAABBBBBBBBBBCCCC7D").await;
    let other = add(s, "3AAAAAAABBBBBBBBBBBBCC3AAA").await;
    let whole = |ids: &[TaskId]| FoundIds { ids: ids.to_vec(), scan: IdScan::Whole };
    assert_eq!(found(s, "0000", 9).await, whole(&[low]));
    assert_eq!(found(s, "7zzz", 9).await, whole(&[high]));
    assert_eq!(found(s, "zzzz", 9).await, whole(&[high]), "no id begins so");
    assert_eq!(found(s, "3AAAAAAAAA", 9).await, whole(&[one]));
    assert_eq!(found(s, "CC7D", 9).await, whole(&[one]));
    assert_eq!(found(s, "BCC3AAA", 9).await, whole(&[other]));
    assert_eq!(found(s, "3AAA", 9).await, whole(&[other, one]), "an id that begins and ends so is one id");
    assert_eq!(found(s, "AAAA", 9).await, whole(&[]), "the middle of an id is no part of it");
}

async fn no_more_ids_are_found_than_were_asked_for(s: &Scene) {
    let mut ids = Vec::new();
    for letter in ["A", "B", "C"] {
        ids.push(add(s, &format!("4XYZ000000000000000000000{letter}")).await);
    }
    ids.reverse();
    assert_eq!(found(s, "4XYZ", 3).await, FoundIds { ids: ids.clone(), scan: IdScan::Whole });
    assert_eq!(found(s, "4XYZ", 2).await, FoundIds { ids: ids[..2].to_vec(), scan: IdScan::Cut });
    for first in 0..3 {
        ids.push(add(s, &format!("{first}0000000000000000000004XYZ")).await);
    }
    ids.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(found(s, "4XYZ", 4).await, FoundIds { ids: ids[..4].to_vec(), scan: IdScan::Cut });
}
