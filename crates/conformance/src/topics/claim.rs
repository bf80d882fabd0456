//! Claims: which tasks a session gets, and in which order.

use std::time::Duration;

use ostler_core::{Overrides, PRIORITY_MS, Priority, PriorityOrder, State, StateName, TaskId};

use super::super::scene::{KIND, QUEUE, Scene, TICK, TRACE, TTL};
use super::runner::cases;
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, NewTask, QueueChange, Report};

cases![
    a_claim_brings_the_task_and_the_right_to_run_it,
    what_came_first_goes_first,
    a_point_of_priority_is_a_minutes_head_start,
    strict_priorities_go_highest_first_whatever_their_age,
    tasks_keep_their_places_when_the_order_of_priorities_changes,
    equal_ranks_go_in_the_order_they_came,
    a_claim_takes_no_more_than_it_asks_for,
    a_claim_for_nothing_gets_nothing,
    a_claim_takes_only_its_queue,
    a_claim_takes_only_the_kinds_it_serves,
    the_kinds_of_a_queue_share_one_order,
    a_claimed_task_is_not_claimed_again,
    each_claim_raises_the_token,
    an_unknown_session_gets_nothing,
    a_session_that_left_gets_nothing,
    a_session_gets_tasks_to_the_end_of_its_time_and_not_after,
    the_policy_is_the_tasks_then_the_queues,
    a_backlog_is_what_a_claim_could_take,
    a_backlog_of_what_may_not_begin_is_none,
];

async fn a_claim_brings_the_task_and_the_right_to_run_it(s: &Scene) {
    let node = s.join().await;
    let new = NewTask {
        payload: "{\"a\":1}".to_owned(),
        priority: Priority::new(5).expect("in range"),
        folder: Some("/tmp/x".to_owned()),
        traceparent: TRACE.parse().ok(),
        not_after: Some(s.in_ms(90_000)),
        deadline: Some(s.in_ms(95_000)),
        ..s.draft()
    };
    let id = s.enqueue(new.clone()).await;
    let created_at = s.now();
    s.pass(TICK);
    let claimed = s.claim(node, 1).await.remove(0);
    assert_eq!((claimed.lease.task(), claimed.lease.as_ref().token), (id, 1));
    assert_eq!((&*claimed.queue, &*claimed.kind, claimed.payload.as_str()), (QUEUE, KIND, "{\"a\":1}"));
    assert_eq!((claimed.attempt, claimed.priority, claimed.suspect), (1, new.priority, false));
    assert_eq!((claimed.folder, claimed.created_at), (new.folder, created_at));
    assert_eq!(claimed.traceparent.map(|trace| trace.to_string()).as_deref(), Some(TRACE));
    assert_eq!((claimed.not_after, claimed.deadline), (new.not_after, new.deadline));
    let task = s.task(id).await;
    assert_eq!((task.state, task.token, task.runs), (State::Claimed { session: node }, 1, 0));
}

async fn add_with(s: &Scene, points: i64) -> TaskId {
    let priority = Priority::new(points).expect("in range");
    s.enqueue(NewTask { priority, ..s.draft() }).await
}

async fn strict_priorities_go_highest_first_whatever_their_age(s: &Scene) {
    s.configure(QueueChange::Priority(PriorityOrder::Strict)).await;
    let mut expected = Vec::new();
    for points in [-100, 0, 0, 1, -1, 1, 100] {
        expected.push((std::cmp::Reverse(points), expected.len(), add_with(s, points).await));
        // More than all points of aging together.
        s.pass(Duration::from_secs(300 * 60));
    }
    expected.sort_unstable();
    let node = s.join().await;
    let expected: Vec<TaskId> = expected.into_iter().map(|(_, _, id)| id).collect();
    assert_eq!(s.claim_ids(node, 10).await, expected);
}

async fn tasks_keep_their_places_when_the_order_of_priorities_changes(s: &Scene) {
    let node = s.join().await;
    let (high, normal) = (add_with(s, 1).await, add_with(s, 0).await);
    s.configure(QueueChange::Priority(PriorityOrder::Strict)).await;
    let (strict, low) = (add_with(s, 1).await, add_with(s, -1).await);
    s.configure(QueueChange::Priority(PriorityOrder::Aging)).await;
    let aging = add_with(s, -1).await;
    assert_eq!(s.claim_ids(node, 10).await, [strict, high, normal, aging, low]);
}

async fn what_came_first_goes_first(s: &Scene) {
    let node = s.join().await;
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(s.add().await);
        s.pass(TICK);
    }
    assert_eq!(s.claim_ids(node, 10).await, order);
}

async fn a_point_of_priority_is_a_minutes_head_start(s: &Scene) {
    let node = s.join().await;
    let high = Priority::new(1).expect("in range");
    let minute = Duration::from_millis(u64::try_from(PRIORITY_MS).expect("positive"));
    let old = s.add().await;
    s.pass(TICK);
    let younger = s.add_with(|task| task.priority = high).await;
    s.pass(minute - TICK);
    s.store.renew(node, &[]).await.expect("renew answers");
    s.pass(TICK);
    // A minute and a tick younger than the first: its priority is worth only a minute.
    let late = s.add_with(|task| task.priority = high).await;
    let low = s.add_with(|task| task.priority = Priority::new(-1).expect("in range")).await;
    let plain = s.add().await;
    assert_eq!(s.claim_ids(node, 10).await, vec![younger, old, late, plain, low]);
}

async fn equal_ranks_go_in_the_order_they_came(s: &Scene) {
    let node = s.join().await;
    // Ids fall while the tasks arrive: the claim order is not the id order.
    let mut tasks: Vec<NewTask> = (0..6).map(|_| s.draft()).collect();
    tasks.reverse();
    let order: Vec<_> = tasks.iter().map(|task| task.id).collect();
    s.store.enqueue(tasks).await.expect("enqueue answers");
    assert_eq!(s.claim_ids(node, 10).await, order);
}

async fn a_claim_takes_no_more_than_it_asks_for(s: &Scene) {
    let node = s.join().await;
    for _ in 0..5 {
        s.add().await;
    }
    assert_eq!(s.claim(node, 2).await.len(), 2);
    assert_eq!(s.claim(node, 2).await.len(), 2);
    assert_eq!(s.claim(node, 2).await.len(), 1);
    assert_eq!(s.claim(node, 2).await.len(), 0);
}

async fn a_claim_for_nothing_gets_nothing(s: &Scene) {
    let node = s.join().await;
    s.add().await;
    let before = s.picture().await;
    assert!(s.claim(node, 0).await.is_empty());
    let none = Claim { kinds: Kinds::Only(Vec::new()), ..s.asks(node, 10) };
    assert_eq!(s.store.claim(none).await, Ok(ClaimAnswer::Tasks { tasks: Vec::new(), next: None }));
    assert_eq!(s.picture().await, before);
}

async fn a_claim_takes_only_its_queue(s: &Scene) {
    let node = s.join().await;
    let id = s.add_with(|task| task.queue = "parcels".to_owned()).await;
    let before = s.picture().await;
    assert!(s.claim(node, 10).await.is_empty());
    let nowhere = Claim { queue: "nowhere".to_owned(), ..s.asks(node, 10) };
    assert_eq!(s.store.claim(nowhere).await, Ok(ClaimAnswer::Tasks { tasks: Vec::new(), next: None }));
    assert_eq!(s.picture().await, before, "asking makes no queue");
    assert_eq!(s.state(id).await, StateName::Queued);
}

async fn a_claim_takes_only_the_kinds_it_serves(s: &Scene) {
    let node = s.join().await;
    let mut ids = Vec::new();
    for kind in ["a", "b", "c", "a"] {
        ids.push(s.add_with(|task| task.kind = kind.to_owned()).await);
    }
    let kinds = |names: &[&str]| Kinds::Only(names.iter().map(|name| (*name).to_owned()).collect());
    for (asked, expected) in [
        (kinds(&["unknown"]), vec![]),
        (kinds(&["a", "unknown", "c"]), vec![ids[0], ids[2], ids[3]]),
        (Kinds::Any, vec![ids[1]]),
    ] {
        let answer = s.store.claim(Claim { kinds: asked.clone(), ..s.asks(node, 10) }).await;
        let Ok(ClaimAnswer::Tasks { tasks: claimed, .. }) = answer else { panic!("{asked:?}: {answer:?}") };
        let taken: Vec<_> = claimed.iter().map(|claimed| claimed.lease.task()).collect();
        assert_eq!(taken, expected, "{asked:?}");
    }
}

async fn the_kinds_of_a_queue_share_one_order(s: &Scene) {
    let node = s.join().await;
    let mut order = Vec::new();
    for kind in ["b", "a", "c", "a", "b"] {
        order.push(s.add_with(|task| task.kind = kind.to_owned()).await);
        s.pass(TICK);
    }
    assert_eq!(s.claim_ids(node, 3).await, order[..3]);
    let rest = Claim { kinds: Kinds::Only(vec!["b".to_owned(), "a".to_owned()]), ..s.asks(node, 10) };
    let Ok(ClaimAnswer::Tasks { tasks: claimed, .. }) = s.store.claim(rest).await else {
        panic!("tasks are ready")
    };
    assert_eq!(claimed.iter().map(|claimed| claimed.lease.task()).collect::<Vec<_>>(), order[3..]);
}

async fn a_claimed_task_is_not_claimed_again(s: &Scene) {
    let [one, other] = [s.join().await, s.join().await];
    let lease = s.leased(one).await;
    assert!(s.claim(one, 10).await.is_empty() && s.claim(other, 10).await.is_empty());
    s.start(&lease).await;
    assert!(s.claim(other, 10).await.is_empty());
}

async fn each_claim_raises_the_token(s: &Scene) {
    let node = s.join().await;
    s.add().await;
    for token in 1..=3 {
        let lease = s.lease(node).await;
        assert_eq!(lease.as_ref().token, token);
        assert_eq!(s.task(lease.task()).await.token, token);
        s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    }
}

async fn an_unknown_session_gets_nothing(s: &Scene) {
    let id = s.add().await;
    let answer = s.store.claim(s.asks(s.session_id(), 10)).await;
    assert_eq!(answer, Ok(ClaimAnswer::SessionEnded));
    assert_eq!(s.state(id).await, StateName::Queued);
}

async fn a_session_that_left_gets_nothing(s: &Scene) {
    let node = s.join().await;
    let id = s.add().await;
    s.store.leave(node).await.expect("leave answers");
    assert_eq!(s.store.claim(s.asks(node, 10)).await, Ok(ClaimAnswer::SessionEnded));
    assert_eq!((s.state(id).await, s.task(id).await.token), (StateName::Queued, 0));
}

async fn a_session_gets_tasks_to_the_end_of_its_time_and_not_after(s: &Scene) {
    let node = s.join().await;
    s.add().await;
    s.add().await;
    s.pass(TTL);
    assert_eq!(s.claim(node, 1).await.len(), 1, "its time is just not over");
    s.pass(TICK);
    // The session is expired even before maintenance ends it.
    assert_eq!(s.store.claim(s.asks(node, 10)).await, Ok(ClaimAnswer::SessionEnded));
    assert_eq!(s.counts().await.queued, 1);
}

async fn the_policy_is_the_tasks_then_the_queues(s: &Scene) {
    let node = s.join().await;
    let said = |attempts, timeout| Overrides { attempts, timeout, ..Overrides::NONE };
    let queue = said(Some(9), Some(Duration::from_secs(9)));
    let own = said(Some(2), None);
    s.add_with(|task| task.overrides = own).await;
    s.configure(QueueChange::Overrides(queue)).await;
    let claimed = s.claim(node, 1).await.remove(0);
    assert_eq!(claimed.policy, own.resolve(&queue));
    assert_eq!((claimed.policy.retry.attempts, claimed.policy.timeout), (2, Duration::from_secs(9)));
}

async fn a_backlog_is_what_a_claim_could_take(s: &Scene) {
    let node = s.join().await;
    let backlog =
        |kinds, limit| async move { s.store.backlog(QUEUE, &kinds, limit).await.expect("it answers") };
    let kind = |name: &str| Kinds::Only(vec![name.to_owned()]);
    assert_eq!(backlog(Kinds::Any, 10).await, 0, "there is no such queue yet");
    for kind in ["a", "b", "a", "b", "a"] {
        s.add_with(|task| task.kind = kind.to_owned()).await;
    }
    s.add_with(|task| task.run_at = Some(s.in_ms(5_000))).await;
    s.add_with(|task| task.queue = "parcels".to_owned()).await;
    let before = s.picture().await;
    assert_eq!(backlog(Kinds::Any, 10).await, 5, "neither what waits nor what others have");
    assert_eq!(
        (backlog(Kinds::Any, 3).await, backlog(Kinds::Any, 0).await),
        (3, 0),
        "it is counted up to the limit"
    );
    assert_eq!((backlog(kind("a"), 10).await, backlog(kind("unknown"), 10).await), (3, 0));
    assert_eq!(s.picture().await, before, "counting changes nothing");
    s.claim(node, 2).await;
    assert_eq!(backlog(Kinds::Any, 10).await, 3);
}

async fn a_backlog_of_what_may_not_begin_is_none(s: &Scene) {
    let node = s.join().await;
    for _ in 0..4 {
        s.add().await;
    }
    let backlog = || async { s.store.backlog(QUEUE, &Kinds::Any, 10).await.expect("it answers") };
    s.configure(QueueChange::Pause("lunch".to_owned())).await;
    assert_eq!(backlog().await, 0, "the queue is paused");
    s.configure(QueueChange::Resume).await;
    s.configure(QueueChange::Concurrency(Some(3))).await;
    s.claim(node, 1).await;
    assert_eq!(backlog().await, 2, "it has two places");
    s.claim(node, 2).await;
    assert_eq!(backlog().await, 0, "it has none");
    s.configure(QueueChange::Concurrency(None)).await;
    assert_eq!(backlog().await, 1);
    s.configure(QueueChange::OpenBreaker(None)).await;
    assert_eq!(backlog().await, 0, "its gate is shut");
}
