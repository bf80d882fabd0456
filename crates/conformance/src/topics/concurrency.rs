//! Concurrency limits: how many tasks of a queue run at once, across all nodes.

use std::time::Duration;

use ostler_core::{Closed, ErrorClass, Outcome, TaskId, Wait};

use super::super::scene::{QUEUE, Scene, TICK, TTL, failure, heard, invalid};
use super::holds::look;
use super::runner::cases;
use ostler_store::Lease;
use ostler_store::calls::{NewTask, QueueChange};

cases![
    so_many_run_at_once_over_all_nodes,
    every_end_makes_room_and_rings,
    kinds_and_keys_share_the_places,
    a_place_of_a_queue_is_no_place_of_another,
    a_queue_whose_places_are_taken_is_not_looked_at,
    a_dead_node_frees_its_places,
    it_holds_together_with_that_of_a_key,
    it_can_be_changed_and_lifted,
    a_lower_one_leaves_what_runs,
    that_all_places_are_taken_is_shown,
    none_at_all_is_refused,
];

async fn most(s: &Scene, cap: u32) {
    s.configure(QueueChange::Concurrency(Some(cap))).await;
}

async fn add(s: &Scene, count: usize) -> Vec<TaskId> {
    let tasks: Vec<NewTask> = (0..count).map(|_| s.draft()).collect();
    let ids = tasks.iter().map(|task| task.id).collect();
    s.store.enqueue(tasks).await.expect("enqueue answers");
    ids
}

async fn so_many_run_at_once_over_all_nodes(s: &Scene) {
    let (one, two) = (s.join().await, s.join().await);
    most(s, 3).await;
    let ids = add(s, 6).await;
    assert_eq!(s.claim_ids(one, 2).await, ids[..2]);
    assert_eq!(look(s, two, 10).await, (ids[2..3].to_vec(), None));
    assert_eq!(look(s, one, 10).await, (vec![], None));
}

async fn every_end_makes_room_and_rings(s: &Scene) {
    let node = s.join().await;
    most(s, 1).await;
    let mut bell = s.store.wakeups();
    let endings = [
        Outcome::Success,
        failure(ErrorClass::Permanent),
        failure(ErrorClass::Transient),
        Outcome::Cancelled,
        Outcome::HandedBack,
    ];
    for outcome in endings {
        s.add().await;
        s.add().await;
        let mut begun = s.claim(node, 10).await;
        assert_eq!(begun.len(), 1, "{outcome:?}");
        let first = begun.remove(0).lease;
        bell.arm();
        s.finish(first, outcome.clone()).await;
        heard(&format!("{outcome:?}"), &mut bell).await;
        let next: Vec<Lease> = s.claim(node, 10).await.into_iter().map(|claimed| claimed.lease).collect();
        assert_eq!(next.len(), 1, "{outcome:?}");
        // A success whose start was not recorded.
        for lease in next {
            bell.arm();
            s.finish_run(lease, Outcome::Success, TICK).await;
            heard("a run", &mut bell).await;
        }
        while let Some(claimed) = s.claim(node, 10).await.pop() {
            s.finish(claimed.lease, Outcome::Success).await;
        }
    }
}

async fn kinds_and_keys_share_the_places(s: &Scene) {
    let node = s.join().await;
    most(s, 2).await;
    s.add_keyed("a").await;
    s.add_keyed("b").await;
    s.add_with(|task| task.kind = "other".to_owned()).await;
    assert_eq!(s.claim(node, 10).await.len(), 2);
    assert!(s.claim(node, 10).await.is_empty());
}

async fn a_place_of_a_queue_is_no_place_of_another(s: &Scene) {
    let node = s.join().await;
    most(s, 1).await;
    add(s, 2).await;
    s.add_with(|task| task.queue = "parcels".to_owned()).await;
    s.add_with(|task| task.queue = "parcels".to_owned()).await;
    assert_eq!(s.claim(node, 10).await.len(), 1);
    let mut elsewhere = s.asks(node, 10);
    elsewhere.queue = "parcels".to_owned();
    let answer = s.store.claim(elsewhere).await.expect("a claim is answered");
    let ostler_store::calls::ClaimAnswer::Tasks { tasks, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(tasks.len(), 2);
}

async fn a_queue_whose_places_are_taken_is_not_looked_at(s: &Scene) {
    let node = s.join().await;
    most(s, 1).await;
    add(s, 1).await;
    let lease = s.lease(node).await;
    let late = s.in_ms(5);
    let id = s.add_with(|task| task.not_after = Some(late)).await;
    s.pass(Duration::from_millis(6));
    assert_eq!(look(s, node, 10).await, (vec![], None));
    assert_eq!(s.state(id).await, ostler_core::StateName::Queued, "a claim that looks would have ended it");
    s.finish(lease, Outcome::Success).await;
    assert!(s.claim(node, 10).await.is_empty());
    assert_eq!(s.state(id).await, ostler_core::StateName::Cancelled);
}

async fn a_dead_node_frees_its_places(s: &Scene) {
    let node = s.join().await;
    most(s, 1).await;
    let ids = add(s, 2).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[..1]);
    s.pass(TTL + TICK);
    let next = s.join().await;
    assert!(s.claim(next, 10).await.is_empty(), "not before it is known to be dead");
    let mut bell = s.store.wakeups();
    bell.arm();
    s.store.expire(10).await.expect("expire answers");
    heard("a death", &mut bell).await;
    assert_eq!(s.claim(next, 10).await.len(), 1);
}

async fn it_holds_together_with_that_of_a_key(s: &Scene) {
    let node = s.join().await;
    most(s, 3).await;
    s.configure(QueueChange::KeyConcurrency(Some(2))).await;
    let a = [s.add_keyed("a").await, s.add_keyed("a").await, s.add_keyed("a").await];
    let b = [s.add_keyed("b").await, s.add_keyed("b").await];
    let ids = s.claim_ids(node, 10).await;
    assert_eq!(ids.len(), 3);
    assert!(!ids.contains(&a[2]) && b.iter().any(|id| ids.contains(id)), "{ids:?}");
}

async fn it_can_be_changed_and_lifted(s: &Scene) {
    let node = s.join().await;
    most(s, 1).await;
    let ids = add(s, 5).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[..1]);
    let mut bell = s.store.wakeups();
    bell.arm();
    most(s, 2).await;
    heard("a higher one", &mut bell).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[1..2]);
    s.configure(QueueChange::Concurrency(None)).await;
    heard("none any more", &mut bell).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[2..]);
    let second = s.fixture.second().await;
    most(s, 7).await;
    let kept = second.queue_settings(QUEUE).await.expect("configure answers");
    assert_eq!(kept.concurrency, Some(7));
}

async fn a_lower_one_leaves_what_runs(s: &Scene) {
    let node = s.join().await;
    add(s, 4).await;
    let mut leases: Vec<Lease> = s.claim(node, 3).await.into_iter().map(|claimed| claimed.lease).collect();
    most(s, 1).await;
    for left in [2, 1] {
        s.finish(leases.remove(0), Outcome::Success).await;
        assert!(s.claim(node, 10).await.is_empty(), "{left} run");
    }
    s.finish(leases.remove(0), Outcome::Success).await;
    assert_eq!(s.claim(node, 10).await.len(), 1);
}

async fn that_all_places_are_taken_is_shown(s: &Scene) {
    let node = s.join().await;
    most(s, 1).await;
    s.add().await;
    let shut = async || s.store.survey().await.expect("survey answers").queues[0].shut;
    assert_eq!(shut().await, None);
    let lease = s.lease(node).await;
    assert_eq!(shut().await, Some(Closed { why: Wait::Concurrency, until: None }));
    s.finish(lease, Outcome::Success).await;
    assert_eq!(shut().await, None);
}

async fn none_at_all_is_refused(s: &Scene) {
    let before = s.picture().await;
    invalid("none", s.store.configure(QUEUE, vec![QueueChange::Concurrency(Some(0))]).await);
    assert_eq!(s.picture().await, before);
}
