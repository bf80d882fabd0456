//! Gates on a real embedded store: nodes resume claiming when a gate admits more, without polling.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Rate, StateName};
use ostler_exec::{Inline, TaskError};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, Prefetch};
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::views::TaskRef;
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUE: &str = "documents";
const KIND: &str = "read";

/// A node that claims again only on a notification, or at the time that a claim returned.
async fn node(here: &TempStore, seed: u64, executor: Inline) -> Node {
    let ids = Ids::new(seed);
    let parts =
        NodeDeps { store: here.store(), clock: Arc::new(SystemClock), ids: Arc::new(move || ids.task().0) };
    let long = Duration::from_secs(600);
    let lease = LeaseTimes { ttl: 2 * long, heartbeat: long, poll: long };
    let pool = PoolConfig { prefetch: Prefetch::Off, ..PoolConfig::new(QUEUE, Arc::new(executor), 4) };
    let config =
        NodeConfig { lease, maintenance: long, ..NodeConfig::new(format!("node {seed}"), vec![pool]) };
    Node::start(parts, config).await.expect("the node starts")
}

async fn set(here: &TempStore, change: QueueChange) {
    here.store().configure(QUEUE, vec![change]).await.expect("the change is taken");
}

/// A handler that signals its run.
fn says(done: &Signal) -> Inline {
    let done = done.clone();
    Inline::new().handle(KIND, move |_, _| {
        done.emit();
        async { Ok(None) }
    })
}

fn at_once(amount: u64) -> Vec<Rate> {
    vec![Rate { amount, per: Duration::from_secs(1), burst: 1 }]
}

async fn all_done(done: &Signal, count: u64) {
    tokio::time::timeout(MAX_WAIT, done.wait_for(count)).await.expect("all of them run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_a_rate_and_come_back_for_every_token() {
    let here = TempStore::real();
    set(&here, QueueChange::Rate(at_once(100))).await;
    here.store().enqueue(Ids::new(3).new_tasks(40, QUEUE, KIND)).await.unwrap();
    let done = Signal::new("done");
    let began = Instant::now();
    let nodes = [node(&here, 1, says(&done)).await, node(&here, 2, says(&done)).await];
    all_done(&done, 40).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(380), "one at once, and 39 more at 100 a second: {took:?}");
    for node in nodes {
        node.drain(MAX_WAIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_with_a_rate_is_served_without_polling() {
    let here = TempStore::real();
    set(&here, QueueChange::KeyRate(at_once(50))).await;
    let keyed = |task: NewTask| NewTask { limit_key: Some("acme".to_owned()), ..task };
    let tasks = Ids::new(3).new_tasks(15, QUEUE, KIND).into_iter().map(keyed).collect();
    here.store().enqueue(tasks).await.unwrap();
    let done = Signal::new("done");
    let began = Instant::now();
    let node = node(&here, 1, says(&done)).await;
    all_done(&done, 15).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(270), "one at once, and 14 more at 50 a second: {took:?}");
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_was_told_to_come_back_is_left_alone_until_then() {
    let here = TempStore::real();
    let wait = Duration::from_millis(500);
    let done = Signal::new("done");
    let emits = done.clone();
    let handler = Inline::new().handle(KIND, move |payload, _| {
        let first = payload.contains("first");
        if !first {
            emits.emit();
        }
        async move { if first { Err(TaskError::rate_limited(wait, "slow down")) } else { Ok(None) } }
    });
    let ids = Ids::new(3);
    let first = NewTask { payload: "\"first\"".to_owned(), ..ids.new_task(QUEUE, KIND) };
    let limited = first.id;
    let node = node(&here, 1, handler).await;
    let began = Instant::now();
    here.store().enqueue(vec![first]).await.unwrap();
    let held = async {
        while here.store().survey().await.expect("the store answers").queues[0].held_until.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, held).await.expect("the queue is held");
    here.store().enqueue(ids.new_tasks(3, QUEUE, KIND)).await.unwrap();
    all_done(&done, 3).await;
    assert!(began.elapsed() >= wait - Duration::from_millis(10), "they waited: {:?}", began.elapsed());
    let shown = here.store().show(TaskRef::Id(limited)).await.unwrap().expect("it is there");
    assert_eq!((shown.task.state.name(), shown.task.failures), (StateName::Queued, 0));
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_nothing_more_from_a_queue_that_its_failure_stops() {
    let here = TempStore::real();
    let began = Signal::new("began");
    let emits = began.clone();
    let handler = Inline::new().handle(KIND, move |_, _| {
        emits.emit();
        async { Err(TaskError::queue_stop("the key is wrong")) }
    });
    // Nothing may start before the first round: its resumption would begin another one.
    set(&here, QueueChange::Pause("not yet".to_owned())).await;
    let node = node(&here, 1, handler).await;
    here.store().enqueue(Ids::new(3).new_tasks(40, QUEUE, KIND)).await.unwrap();
    let rounds = 50;
    for round in 1..=rounds {
        set(&here, QueueChange::Resume).await;
        let mut changes = here.store().changes();
        let stopped = async {
            loop {
                let survey = here.store().survey().await.expect("the store answers");
                let leased = survey.lanes[0].counts.claimed + survey.lanes[0].counts.running;
                if survey.queues[0].settings.paused.is_some() && leased == 0 {
                    break;
                }
                changes.wait().await;
            }
        };
        tokio::time::timeout(MAX_WAIT, stopped).await.expect("the queue is paused");
        assert!(began.count() <= 4 * round, "four workers, {round} rounds: {} starts", began.count());
    }
    node.drain(MAX_WAIT).await;
}
