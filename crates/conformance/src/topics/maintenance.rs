//! Making tasks ready: a task that waits for a time becomes ready when it is due.

use std::time::Duration;

use ostler_core::{ErrorClass, Readiness, State, TaskId, Wait};

use super::super::scene::{Scene, TICK, failure};
use super::runner::cases;
use ostler_store::calls::MadeReady;

cases![
    nothing_waits_and_nothing_is_done,
    a_scheduled_task_becomes_ready_at_its_time_and_not_before,
    a_retry_becomes_ready_at_its_time,
    making_ready_twice_is_once,
    a_bite_makes_so_many_ready_the_longest_due_first,
    a_bite_of_nothing_only_looks,
    the_next_moment_is_that_of_any_queue,
    a_scheduled_task_takes_its_turn_when_its_time_comes,
    what_was_scheduled_together_does_not_go_before_everybody_else,
];

async fn scheduled(s: &Scene, ms: u64) -> TaskId {
    s.add_with(|task| task.run_at = Some(s.in_ms(ms))).await
}

async fn make_ready(s: &Scene, batch: usize) -> MadeReady {
    s.store.make_ready(batch).await.expect("make_ready answers")
}

async fn nothing_waits_and_nothing_is_done(s: &Scene) {
    s.add().await;
    let before = s.picture().await;
    assert_eq!(make_ready(s, 100).await, MadeReady::default());
    assert_eq!(s.picture().await, before);
}

async fn a_scheduled_task_becomes_ready_at_its_time_and_not_before(s: &Scene) {
    let node = s.join().await;
    let id = scheduled(s, 2).await;
    let run_at = s.in_ms(2);
    s.pass(TICK);
    assert_eq!(make_ready(s, 100).await, MadeReady { due: 0, expired: 0, freed: 0, next: Some(run_at) });
    s.pass(TICK);
    assert!(s.claim(node, 10).await.is_empty(), "a claim only looks at what was made ready");
    assert_eq!(make_ready(s, 100).await, MadeReady { due: 1, expired: 0, freed: 0, next: None });
    let (readiness, why) = (Readiness::Ready, Wait::Scheduled);
    assert_eq!(s.task(id).await.state, State::Queued { readiness, why, run_at });
    assert_eq!(s.claim_ids(node, 10).await, vec![id]);
}

async fn a_retry_becomes_ready_at_its_time(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.finish(lease, failure(ErrorClass::Transient)).await;
    let State::Queued { readiness: Readiness::Waiting, why: Wait::Retry, run_at } = s.task(id).await.state
    else {
        panic!("it backs off")
    };
    let rank = s.task(id).await.rank;
    s.pass(run_at.since(s.now()));
    assert_eq!(make_ready(s, 100).await, MadeReady { due: 1, expired: 0, freed: 0, next: None });
    assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::Retry));
    assert_eq!(s.task(id).await.rank, rank, "a retry keeps its place");
    let claimed = s.claim(node, 1).await.remove(0);
    assert_eq!((claimed.attempt, claimed.failures), (2, 1), "it is claimed with what failed before");
}

async fn making_ready_twice_is_once(s: &Scene) {
    scheduled(s, 1).await;
    s.pass(TICK);
    make_ready(s, 100).await;
    let before = s.picture().await;
    assert_eq!(make_ready(s, 100).await, MadeReady::default());
    assert_eq!(s.picture().await, before);
}

async fn a_bite_makes_so_many_ready_the_longest_due_first(s: &Scene) {
    let mut ids = Vec::new();
    for ms in [30, 10, 20, 10] {
        ids.push(scheduled(s, ms).await);
    }
    let start = s.now();
    s.pass(Duration::from_millis(30));
    let at = |ms| Some(start.after(Duration::from_millis(ms)));
    assert_eq!(make_ready(s, 1).await, MadeReady { due: 1, expired: 0, freed: 0, next: at(10) });
    assert_eq!(s.waits(ids[1]).await.0, Readiness::Ready, "the earlier of two with the same time");
    assert_eq!(make_ready(s, 2).await, MadeReady { due: 2, expired: 0, freed: 0, next: at(30) });
    assert_eq!(s.waits(ids[0]).await.0, Readiness::Waiting);
    assert_eq!(make_ready(s, 2).await, MadeReady { due: 1, expired: 0, freed: 0, next: None });
}

async fn a_bite_of_nothing_only_looks(s: &Scene) {
    scheduled(s, 1).await;
    let next = Some(s.in_ms(1));
    s.pass(TICK);
    let before = s.picture().await;
    assert_eq!(make_ready(s, 0).await, MadeReady { due: 0, expired: 0, freed: 0, next });
    assert_eq!(s.picture().await, before);
}

async fn the_next_moment_is_that_of_any_queue(s: &Scene) {
    scheduled(s, 50).await;
    let soon = s.in_ms(20);
    s.add_with(|task| {
        task.queue = "parcels".to_owned();
        task.run_at = Some(soon);
    })
    .await;
    assert_eq!(make_ready(s, 100).await.next, Some(soon));
}

async fn a_scheduled_task_takes_its_turn_when_its_time_comes(s: &Scene) {
    let node = s.join().await;
    let later = scheduled(s, 10).await;
    s.pass(Duration::from_millis(5));
    let sooner = s.add().await;
    s.pass(Duration::from_millis(10));
    make_ready(s, 100).await;
    let last = s.add().await;
    assert_eq!(s.claim_ids(node, 10).await, vec![sooner, later, last]);
}

async fn what_was_scheduled_together_does_not_go_before_everybody_else(s: &Scene) {
    let node = s.join().await;
    for _ in 0..20 {
        let run_at = Some(s.in_ms(1_000));
        s.add_with(|task| (task.run_at, task.limit_key) = (run_at, Some("night".to_owned()))).await;
    }
    for _ in 0..40 {
        s.add_keyed("day").await;
        s.claim(node, 1).await;
    }
    s.pass(Duration::from_secs(1));
    assert_eq!(make_ready(s, 100).await.due, 20);
    let day = s.add_keyed("day").await;
    assert!(s.claim_ids(node, 2).await.contains(&day), "the keys take turns");
}
