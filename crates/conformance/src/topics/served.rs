//! Queues that the pool of another queue serves, as those of jobs: the limits of that queue as a whole hold for all of them together.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{BreakerPolicy, BreakerState, Closed, ErrorClass, Outcome, Rate, SessionId, Trip, Wait};

use super::super::scene::{Scene, failure, heard, one};
use super::budgets::claim_in;
use super::holds::too_many;
use super::runner::cases;
use ostler_store::calls::{Kinds, QueueChange};
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::views::QueueRecord;
use ostler_store::{Lease, Store};

cases![
    a_rate_of_a_pool_is_for_all_queues_that_it_serves,
    what_a_queue_refuses_takes_nothing_from_its_pool,
    a_hand_back_that_never_began_gives_its_tokens_back_to_the_pool,
    places_of_a_pool_are_shared,
    an_end_in_a_served_queue_makes_room_and_rings,
    failures_anywhere_open_the_breaker_of_the_pool,
    a_probe_of_a_served_queue_closes_the_breaker_of_the_pool,
    too_many_requests_in_a_served_queue_hold_the_pool,
    a_pause_of_the_pool_is_no_pause_of_what_it_serves,
    a_pool_that_is_not_known_limits_nothing,
    a_queue_of_its_own_is_limited_once,
    two_stores_never_pass_the_places_of_a_pool,
];

const POOL: &str = "agents";
const JOBS: [&str; 2] = ["job a", "job b"];
const SECOND: Duration = Duration::from_secs(1);

/// A pool that serves two other queues, with ten tasks in each of the three.
async fn served(s: &Scene, limit: QueueChange) -> SessionId {
    let node = s.join().await;
    configure(s, POOL, limit).await;
    for job in JOBS {
        configure(s, job, QueueChange::ServedBy(Some(POOL.to_owned()))).await;
    }
    for queue in [POOL, JOBS[0], JOBS[1]] {
        for _ in 0..10 {
            s.add_with(|task| {
                queue.clone_into(&mut task.queue);
                task.overrides.attempts = Some(1);
            })
            .await;
        }
    }
    node
}

async fn configure(s: &Scene, queue: &str, change: QueueChange) {
    s.store.configure(queue, vec![change]).await.expect("configure answers");
}

fn rate(amount: u64) -> QueueChange {
    QueueChange::Rate(vec![Rate { amount, per: SECOND, burst: amount }])
}

async fn take(s: &Scene, node: SessionId, queue: &str, limit: usize) -> Vec<Lease> {
    claim_in(s.store.as_ref(), node, queue, limit).await.0
}

async fn record(s: &Scene, queue: &str) -> QueueRecord {
    let queues = s.store.survey().await.expect("survey answers").queues;
    queues.into_iter().find(|record| record.name == queue).expect("it is known")
}

async fn backlog(s: &Scene, queue: &str) -> usize {
    s.store.backlog(queue, &Kinds::Any, 100).await.expect("backlog answers")
}

async fn a_rate_of_a_pool_is_for_all_queues_that_it_serves(s: &Scene) {
    let node = served(s, rate(5)).await;
    assert_eq!(take(s, node, JOBS[0], 3).await.len(), 3);
    let (rest, next) = claim_in(s.store.as_ref(), node, JOBS[1], 10).await;
    assert_eq!((rest.len(), next), (2, Some(s.in_ms(200))));
    assert_eq!(claim_in(s.store.as_ref(), node, POOL, 10).await, (vec![], Some(s.in_ms(200))));
    let shut = Some(Closed { why: Wait::RateLimited, until: Some(s.in_ms(200)) });
    for queue in [POOL, JOBS[0], JOBS[1]] {
        assert_eq!(record(s, queue).await.shut, shut, "{queue}");
        assert_eq!(backlog(s, queue).await, 0, "{queue}");
    }
    s.pass(Duration::from_millis(400));
    assert_eq!(take(s, node, POOL, 1).await.len(), 1);
    assert_eq!(take(s, node, JOBS[0], 10).await.len(), 1);
}

async fn what_a_queue_refuses_takes_nothing_from_its_pool(s: &Scene) {
    let node = served(s, rate(5)).await;
    configure(s, JOBS[0], rate(1)).await;
    assert_eq!(take(s, node, JOBS[0], 10).await.len(), 1, "as its own rate allows");
    assert_eq!(take(s, node, JOBS[1], 10).await.len(), 4, "the rest of the pool's");
}

async fn a_hand_back_that_never_began_gives_its_tokens_back_to_the_pool(s: &Scene) {
    let node = served(s, rate(2)).await;
    for lease in take(s, node, JOBS[0], 10).await {
        s.finish(lease, Outcome::HandedBack).await;
    }
    assert_eq!(take(s, node, JOBS[1], 10).await.len(), 2);
}

async fn places_of_a_pool_are_shared(s: &Scene) {
    let node = served(s, QueueChange::Concurrency(Some(4))).await;
    configure(s, JOBS[0], QueueChange::Concurrency(Some(1))).await;
    assert_eq!(take(s, node, JOBS[0], 10).await.len(), 1, "as its own limit allows");
    assert_eq!(backlog(s, JOBS[1]).await, 3);
    assert_eq!(take(s, node, POOL, 2).await.len(), 2);
    assert_eq!(take(s, node, JOBS[1], 10).await.len(), 1, "the last place");
    let full = Some(Closed { why: Wait::Concurrency, until: None });
    for queue in [POOL, JOBS[1]] {
        assert_eq!(record(s, queue).await.shut, full, "{queue}");
        assert_eq!(backlog(s, queue).await, 0, "{queue}");
        assert_eq!(claim_in(s.store.as_ref(), node, queue, 10).await, (vec![], None), "{queue}");
    }
}

async fn an_end_in_a_served_queue_makes_room_and_rings(s: &Scene) {
    let node = served(s, QueueChange::Concurrency(Some(1))).await;
    let mut bell = s.store.wakeups();
    for outcome in [Outcome::Success, failure(ErrorClass::Permanent), Outcome::Cancelled] {
        let lease = one(take(s, node, JOBS[0], 10).await);
        bell.arm();
        s.finish(lease, outcome.clone()).await;
        heard(&format!("{outcome:?}"), &mut bell).await;
        let lease = one(take(s, node, POOL, 10).await);
        s.finish(lease, Outcome::Success).await;
    }
}

const RESET: Duration = Duration::from_secs(10);

fn breaker(failures: u32) -> QueueChange {
    let policy = BreakerPolicy { trip: Trip::Consecutive(failures), reset: RESET };
    QueueChange::Breaker(Some(BreakerSetting { policy, scope: BreakerScope::Queue }))
}

/// Runs a task of a queue to this end.
async fn run(s: &Scene, node: SessionId, queue: &str, outcome: Outcome) {
    let lease = one(take(s, node, queue, 1).await);
    s.start(&lease).await;
    s.finish(lease, outcome).await;
}

async fn failures_anywhere_open_the_breaker_of_the_pool(s: &Scene) {
    let node = served(s, breaker(3)).await;
    for queue in [JOBS[0], JOBS[1], POOL] {
        assert_eq!(record(s, POOL).await.breaker, Some(BreakerState::Closed));
        run(s, node, queue, failure(ErrorClass::Transient)).await;
    }
    let until = s.now().after(RESET);
    assert_eq!(record(s, POOL).await.breaker, Some(BreakerState::Open { until }));
    assert_eq!(record(s, JOBS[0]).await.breaker, None, "it has none of its own");
    for queue in [POOL, JOBS[0], JOBS[1]] {
        assert_eq!(claim_in(s.store.as_ref(), node, queue, 10).await, (vec![], Some(until)), "{queue}");
    }
}

async fn a_probe_of_a_served_queue_closes_the_breaker_of_the_pool(s: &Scene) {
    let node = served(s, breaker(1)).await;
    run(s, node, JOBS[0], failure(ErrorClass::Transient)).await;
    s.pass(RESET);
    let probe = one(take(s, node, JOBS[1], 10).await);
    assert_eq!(take(s, node, JOBS[0], 10).await, [], "one probe for all of them");
    s.finish(probe, Outcome::Success).await;
    assert_eq!(record(s, POOL).await.breaker, Some(BreakerState::Closed));
    assert_eq!(take(s, node, JOBS[0], 2).await.len(), 2);
}

async fn too_many_requests_in_a_served_queue_hold_the_pool(s: &Scene) {
    let node = served(s, QueueChange::Resume).await;
    let until = s.in_ms(50);
    run(s, node, JOBS[0], too_many(50)).await;
    for queue in [POOL, JOBS[0], JOBS[1]] {
        assert_eq!(claim_in(s.store.as_ref(), node, queue, 10).await, (vec![], Some(until)), "{queue}");
    }
    assert_eq!(record(s, POOL).await.held_until, Some(until));
    assert_eq!(record(s, JOBS[0]).await.held_until, None);
    configure(s, POOL, QueueChange::EndHold).await;
    assert_eq!(take(s, node, JOBS[1], 2).await.len(), 2, "one hold, one release");
}

async fn a_pause_of_the_pool_is_no_pause_of_what_it_serves(s: &Scene) {
    let node = served(s, QueueChange::Pause("for lunch".to_owned())).await;
    assert_eq!(take(s, node, POOL, 10).await, []);
    assert_eq!(backlog(s, JOBS[0]).await, 10);
    assert_eq!(take(s, node, JOBS[0], 10).await.len(), 10);
}

async fn a_pool_that_is_not_known_limits_nothing(s: &Scene) {
    let node = s.join().await;
    configure(s, JOBS[0], QueueChange::ServedBy(Some("unknown".to_owned()))).await;
    for _ in 0..2 {
        s.add_with(|task| JOBS[0].clone_into(&mut task.queue)).await;
    }
    let until = s.in_ms(50);
    run(s, node, JOBS[0], too_many(50)).await;
    assert_eq!(record(s, JOBS[0]).await.held_until, Some(until), "the hold is its own");
    s.pass(Duration::from_millis(50));
    assert_eq!(take(s, node, JOBS[0], 1).await.len(), 1);
}

async fn a_queue_of_its_own_is_limited_once(s: &Scene) {
    let node = served(s, QueueChange::Concurrency(Some(4))).await;
    configure(s, POOL, QueueChange::ServedBy(Some(POOL.to_owned()))).await;
    configure(s, POOL, rate(3)).await;
    assert_eq!(take(s, node, POOL, 10).await.len(), 3, "each task takes one token");
    s.pass(SECOND);
    assert_eq!(take(s, node, POOL, 10).await.len(), 1, "and one place");
}

async fn two_stores_never_pass_the_places_of_a_pool(s: &Scene) {
    let node = served(s, QueueChange::Concurrency(Some(3))).await;
    let stores: [Arc<dyn Store>; 2] = [Arc::clone(&s.store), s.fixture.second().await];
    let (one, two) = tokio::join!(
        claim_in(stores[0].as_ref(), node, JOBS[0], 10),
        claim_in(stores[1].as_ref(), node, JOBS[1], 10)
    );
    assert_eq!(one.0.len() + two.0.len(), 3);
    for lease in one.0.into_iter().chain(two.0) {
        s.finish(lease, Outcome::Success).await;
    }
    assert_eq!(claim_in(stores[1].as_ref(), node, JOBS[1], 10).await.0.len(), 3);
}
