//! Limit keys: how many tasks of one key run at once, and which one is next.
//!
//! After every step one invariant is checked: the ready and leased tasks of a key never exceed the cap, and no
//! parked task outranks a ready one.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::{
    BreakerPolicy, ErrorClass, Outcome, Priority, Readiness, State, StateName, Task, TaskId, Trip, Wait,
};

use super::super::picture::Picture;
use super::super::scene::{QUEUE, Scene, TICK, TTL, failure};
use super::runner::cases;
use ostler_store::Lease;
use ostler_store::calls::{NewTask, QueueChange, ReplayAnswer, Report};
use ostler_store::gates::{BreakerScope, BreakerSetting};

const PARKED: (Readiness, Wait) = (Readiness::Parked, Wait::Concurrency);

cases![
    over_the_cap_tasks_are_parked,
    without_a_cap_nothing_is_parked,
    tasks_without_a_key_are_never_parked,
    a_cap_holds_for_each_key_and_queue_apart,
    every_end_of_a_run_readies_the_next,
    a_better_rank_takes_the_place_of_a_ready_task,
    a_higher_cap_readies_more,
    a_lower_cap_parks_what_is_ready_and_leaves_what_runs,
    no_cap_any_more_readies_all,
    a_cancelled_parked_task_is_gone,
    a_cancelled_ready_task_makes_room,
    a_late_task_makes_room,
    a_retry_waits_for_its_time_and_then_for_its_key,
    a_dead_node_makes_room,
    a_parked_task_cannot_be_hastened,
    a_replay_waits_for_its_key,
    keys_take_turns,
    a_flood_of_one_key_does_not_hold_up_another,
    tasks_without_a_key_take_turns_with_the_keys,
    another_breaker_leaves_the_turns_as_they_are,
    a_random_walk_keeps_the_invariant,
];

/// Checks the invariant for all keys of the queue.
async fn check(s: &Scene) {
    let cap = s.store.queue_settings(QUEUE).await.expect("configure answers").key_concurrency;
    let picture = Picture::take(s.store.as_ref()).await;
    let mut keys: BTreeMap<String, Vec<Task>> = BTreeMap::new();
    for (detail, _) in picture.tasks {
        if let (Some(key), QUEUE) = (detail.task.limit_key.clone(), detail.task.queue.as_str()) {
            keys.entry(key).or_default().push(detail.task);
        }
    }
    for (key, tasks) in keys {
        let leased = tasks.iter().filter(|task| task.state.name().is_leased()).count();
        let ranks = |wanted: fn(&State) -> bool| {
            tasks.iter().filter(move |task| wanted(&task.state)).map(|task| task.rank)
        };
        let ready: Vec<_> =
            ranks(|state| matches!(state, State::Queued { readiness: Readiness::Ready, .. })).collect();
        let parked: Vec<_> = ranks(|state| {
            matches!(state, State::Queued { readiness: Readiness::Parked, why: Wait::Concurrency, .. })
        })
        .collect();
        let Some(cap) = cap.map(|cap| cap as usize) else {
            assert!(parked.is_empty(), "key {key}: parked without a cap");
            continue;
        };
        assert!(
            ready.is_empty() || ready.len() + leased <= cap,
            "key {key}: {ready:?} ready, {leased} leased"
        );
        assert!(parked.is_empty() || ready.len() + leased >= cap, "key {key}: parked although there is room");
        let outranked = ready.iter().max() > parked.iter().min() && !parked.is_empty();
        assert!(!outranked, "key {key}: parked {parked:?} before ready {ready:?}");
    }
}

async fn cap(s: &Scene, cap: u32) {
    s.configure(QueueChange::KeyConcurrency(Some(cap))).await;
    check(s).await;
}

async fn add(s: &Scene, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(s.add_keyed("k").await);
        check(s).await;
    }
    ids
}

async fn ready(s: &Scene, ids: &[TaskId]) -> Vec<bool> {
    let mut ready = Vec::new();
    for id in ids {
        ready.push(matches!(s.task(*id).await.state, State::Queued { readiness: Readiness::Ready, .. }));
    }
    ready
}

async fn over_the_cap_tasks_are_parked(s: &Scene) {
    let node = s.join().await;
    cap(s, 2).await;
    let ids = add(s, 4).await;
    assert_eq!(ready(s, &ids).await, [true, true, false, false]);
    assert_eq!(s.waits(ids[2]).await, PARKED);
    assert_eq!(s.claim_ids(node, 10).await, ids[..2]);
    check(s).await;
    assert!(s.claim(node, 10).await.is_empty());
}

async fn without_a_cap_nothing_is_parked(s: &Scene) {
    let node = s.join().await;
    add(s, 5).await;
    assert_eq!(s.claim(node, 10).await.len(), 5);
}

async fn tasks_without_a_key_are_never_parked(s: &Scene) {
    let node = s.join().await;
    cap(s, 1).await;
    s.add().await;
    s.add().await;
    assert_eq!(s.claim(node, 10).await.len(), 2);
}

async fn a_cap_holds_for_each_key_and_queue_apart(s: &Scene) {
    cap(s, 1).await;
    let mut ids = add(s, 2).await;
    ids.push(s.add_keyed("other").await);
    let elsewhere = |task: &mut NewTask| {
        task.limit_key = Some("k".to_owned());
        task.queue = "parcels".to_owned();
    };
    ids.push(s.add_with(elsewhere).await);
    ids.push(s.add_with(elsewhere).await);
    // The kinds of a queue share the cap.
    let kind =
        s.add_with(|task| (task.limit_key, task.kind) = (Some("k".to_owned()), "other".to_owned())).await;
    ids.push(kind);
    assert_eq!(ready(s, &ids).await, [true, false, true, true, true, false]);
}

async fn every_end_of_a_run_readies_the_next(s: &Scene) {
    cap(s, 1).await;
    let node = s.join().await;
    let endings = [
        Outcome::Success,
        failure(ErrorClass::Permanent),
        failure(ErrorClass::Transient),
        Outcome::Cancelled,
    ];
    let ids = add(s, endings.len() + 1).await;
    for (at, outcome) in endings.into_iter().enumerate() {
        let lease = s.run(node).await;
        assert_eq!(lease.task(), ids[at]);
        check(s).await;
        s.finish(lease, outcome.clone()).await;
        check(s).await;
        assert_eq!(s.waits(ids[at + 1]).await.0, Readiness::Ready, "after {outcome:?}");
    }
    // A handed-back task keeps its rank.
    let lease = s.lease(node).await;
    s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    check(s).await;
    assert_eq!(ready(s, &ids[4..]).await, [true]);
}

async fn a_better_rank_takes_the_place_of_a_ready_task(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 1).await;
    let high = s
        .add_with(|task| {
            task.limit_key = Some("k".to_owned());
            task.priority = Priority::new(50).expect("in range");
        })
        .await;
    check(s).await;
    assert_eq!(ready(s, &[ids[0], high]).await, [false, true]);
    assert_eq!(s.waits(ids[0]).await, PARKED);
    // The parked task is next once the better one has run.
    let node = s.join().await;
    let lease = s.lease(node).await;
    assert_eq!(lease.task(), high);
    check(s).await;
    s.finish(lease, Outcome::Success).await;
    check(s).await;
    assert_eq!(ready(s, &ids).await, [true]);
}

async fn a_higher_cap_readies_more(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 4).await;
    cap(s, 3).await;
    assert_eq!(ready(s, &ids).await, [true, true, true, false]);
}

async fn a_lower_cap_parks_what_is_ready_and_leaves_what_runs(s: &Scene) {
    cap(s, 3).await;
    let node = s.join().await;
    let ids = add(s, 4).await;
    let leases: Vec<Lease> = s.claim(node, 2).await.into_iter().map(|claimed| claimed.lease).collect();
    cap(s, 1).await;
    assert_eq!(ready(s, &ids[2..]).await, [false, false]);
    for (left, lease) in leases.into_iter().rev().enumerate() {
        assert_eq!(ready(s, &ids[2..]).await, [false, false], "{left} of two have ended");
        s.finish(lease, Outcome::Success).await;
        check(s).await;
    }
    assert_eq!(ready(s, &ids[2..]).await, [true, false]);
}

async fn no_cap_any_more_readies_all(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 3).await;
    s.configure(QueueChange::KeyConcurrency(None)).await;
    check(s).await;
    assert_eq!(ready(s, &ids).await, [true, true, true]);
}

async fn a_cancelled_parked_task_is_gone(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 3).await;
    s.cancel(ids[1]).await;
    check(s).await;
    s.cancel(ids[0]).await;
    check(s).await;
    assert_eq!(s.waits(ids[2]).await.0, Readiness::Ready);
    assert_eq!(s.state(ids[1]).await, StateName::Cancelled);
}

async fn a_cancelled_ready_task_makes_room(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 2).await;
    s.cancel(ids[0]).await;
    check(s).await;
    assert_eq!(ready(s, &ids[1..]).await, [true]);
}

async fn a_late_task_makes_room(s: &Scene) {
    cap(s, 1).await;
    let node = s.join().await;
    let late = |task: &mut NewTask| {
        task.limit_key = Some("k".to_owned());
        task.not_after = Some(s.in_ms(5));
    };
    s.add_with(late).await;
    s.add_with(late).await;
    let ids = add(s, 1).await;
    s.pass(Duration::from_millis(6));
    // The claim cancels the late task that was ready; the task that this makes ready is for the next claim.
    assert!(s.claim(node, 10).await.is_empty());
    check(s).await;
    s.store.make_ready(100).await.expect("make_ready answers");
    check(s).await;
    assert_eq!(s.counts().await.cancelled, 2);
    assert_eq!(s.claim_ids(node, 10).await, ids);
}

async fn a_retry_waits_for_its_time_and_then_for_its_key(s: &Scene) {
    cap(s, 1).await;
    let node = s.join().await;
    let ids = add(s, 2).await;
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Transient)).await;
    assert_eq!(s.waits(ids[0]).await, (Readiness::Waiting, Wait::Retry));
    let lease = s.run(node).await;
    assert_eq!(lease.task(), ids[1], "the place is free while the other backs off");
    s.pass(Duration::from_secs(2));
    assert_eq!(s.store.make_ready(100).await.map(|made| (made.due, made.next)), Ok((1, None)));
    check(s).await;
    assert_eq!(s.waits(ids[0]).await, PARKED);
    s.finish(lease, Outcome::Success).await;
    check(s).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[..1]);
}

async fn a_dead_node_makes_room(s: &Scene) {
    cap(s, 1).await;
    let node = s.join().await;
    let ids = add(s, 2).await;
    s.run(node).await;
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    check(s).await;
    assert_eq!(ready(s, &ids).await, [true, false], "it has its old rank");
}

async fn a_parked_task_cannot_be_hastened(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 2).await;
    let before = s.picture().await;
    assert_eq!(s.replay(ids[1]).await, ReplayAnswer::Refused(StateName::Queued));
    assert_eq!(s.picture().await, before);
}

async fn a_replay_waits_for_its_key(s: &Scene) {
    cap(s, 1).await;
    let ids = add(s, 2).await;
    s.cancel(ids[0]).await;
    assert_eq!(s.replay(ids[0]).await, ReplayAnswer::Requeued);
    check(s).await;
    assert_eq!(ready(s, &ids).await, [false, true], "a replay goes behind its key");
}

async fn keys_take_turns(s: &Scene) {
    let node = s.join().await;
    let mut tasks = Vec::new();
    for key in ["a", "a", "a", "b", "b", "b"] {
        tasks.push(NewTask { limit_key: Some(key.to_owned()), ..s.draft() });
    }
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    s.store.enqueue(tasks).await.expect("enqueue answers");
    assert_eq!(s.claim_ids(node, 10).await, [0, 3, 1, 4, 2, 5].map(|at| ids[at]));
}

async fn a_flood_of_one_key_does_not_hold_up_another(s: &Scene) {
    let node = s.join().await;
    let flood: Vec<NewTask> =
        (0..200).map(|_| NewTask { limit_key: Some("flood".to_owned()), ..s.draft() }).collect();
    s.store.enqueue(flood).await.expect("enqueue answers");
    s.claim(node, 50).await;
    s.pass(TICK);
    let late = s.add_keyed("late").await;
    let next = s.claim_ids(node, 2).await;
    assert!(next.contains(&late), "the first task of another key goes next");
}

async fn tasks_without_a_key_take_turns_with_the_keys(s: &Scene) {
    let node = s.join().await;
    let flood: Vec<NewTask> =
        (0..50).map(|_| NewTask { limit_key: Some("flood".to_owned()), ..s.draft() }).collect();
    s.store.enqueue(flood).await.expect("enqueue answers");
    let [one, two] = [s.add().await, s.add().await];
    let next = s.claim_ids(node, 4).await;
    assert!(next.contains(&one) && next.contains(&two), "they count as one more key");
}

async fn another_breaker_leaves_the_turns_as_they_are(s: &Scene) {
    let node = s.join().await;
    s.add_keyed("k").await;
    let before = [s.add().await, s.add().await, s.add().await];
    let policy = BreakerPolicy { trip: Trip::Consecutive(9), reset: TTL };
    for scope in [BreakerScope::Queue, BreakerScope::Key] {
        s.configure(QueueChange::Breaker(Some(BreakerSetting { policy, scope }))).await;
    }
    let after = s.add().await;
    let order = s.claim_ids(node, 10).await;
    let place = |id: TaskId| order.iter().position(|claimed| *claimed == id).expect("all are ready");
    assert!(before.into_iter().all(|id| place(id) < place(after)), "who came last goes last: {order:?}");
}

async fn a_random_walk_keeps_the_invariant(s: &Scene) {
    let node = s.join().await;
    let mut chance = ostler_core::Seed::new(7);
    let mut held: Vec<Lease> = Vec::new();
    cap(s, 2).await;
    for _ in 0..80 {
        match chance.below(6) {
            0 | 1 => {
                let points = i64::try_from(chance.below(200)).unwrap_or(0) - 100;
                let key = if chance.chance(50) { "a" } else { "b" };
                s.add_with(|task| {
                    task.limit_key = Some(key.to_owned());
                    task.priority = Priority::new(points).expect("in range");
                })
                .await;
            }
            2 => held.extend(s.claim(node, 1).await.into_iter().map(|claimed| claimed.lease)),
            3 => {
                let many = u32::try_from(chance.below(3)).unwrap_or(0) + 1;
                cap(s, many).await;
            }
            4 if !held.is_empty() => {
                s.finish(held.remove(0), Outcome::HandedBack).await;
            }
            _ if !held.is_empty() => {
                s.finish(held.remove(0), Outcome::Success).await;
            }
            _ => {}
        }
        check(s).await;
    }
}
