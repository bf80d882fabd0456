//! Accounts on a real embedded store: nodes start again when a hold ends, without polling.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{AccountChange, Attempt, TaskId, Timestamp};
use ostler_exec::{Inline, TaskError};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, StartError};
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::views::TaskRef;
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUES: [&str; 2] = ["documents", "letters"];
const KIND: &str = "read";
const ACCOUNT: &str = "claude";

/// A node with a pool for each queue, which claims again only on a notification, or at the time that a claim returned.
async fn node(here: &TempStore, seed: u64, executor: &Arc<Inline>) -> Node {
    start(here, seed, executor, ACCOUNT).await.expect("the node starts")
}

async fn start(
    here: &TempStore,
    seed: u64,
    executor: &Arc<Inline>,
    account: &str,
) -> Result<Node, StartError> {
    let ids = Ids::new(seed);
    let parts =
        NodeDeps { store: here.store(), clock: Arc::new(SystemClock), ids: Arc::new(move || ids.task().0) };
    let long = Duration::from_secs(600);
    let lease = LeaseTimes { ttl: 2 * long, heartbeat: long, poll: long };
    let pool = |queue: &str| PoolConfig {
        settings: vec![QueueChange::Account(Some(account.to_owned()))],
        ..PoolConfig::new(queue, Arc::clone(executor) as Arc<dyn ostler_exec::Executor>, 4)
    };
    let pools = QUEUES.map(pool).to_vec();
    let config = NodeConfig { lease, maintenance: long, ..NodeConfig::new(format!("node {seed}"), pools) };
    Node::start(parts, config).await
}

async fn all_done(done: &Signal, count: u64) {
    tokio::time::timeout(MAX_WAIT, done.wait_for(count)).await.expect("all of them run");
}

/// A handler that signals its success, and refuses the payload "first" as often as there is a wait for it.
fn handler(done: &Signal, waits: Vec<Duration>) -> Arc<Inline> {
    let (done, waits) = (done.clone(), Arc::new(std::sync::Mutex::new(waits)));
    Arc::new(Inline::new().handle(KIND, move |payload, _| {
        let wait = payload.contains("first").then(|| waits.lock().expect("no panic").pop()).flatten();
        if wait.is_none() {
            done.emit();
        }
        async move { wait.map_or(Ok(None), |wait| Err(TaskError::usage_limit(wait, "limit reached"))) }
    }))
}

/// Enqueues a task that reaches the limit. Returns it, and until when the account is held.
async fn reach_the_limit(here: &TempStore, ids: &Ids) -> (TaskId, Option<Timestamp>) {
    let first = NewTask { payload: "\"first\"".to_owned(), ..ids.new_task(QUEUES[0], KIND) };
    let id = first.id;
    here.store().enqueue(vec![first]).await.expect("it is taken");
    let held = async {
        loop {
            let accounts = here.store().accounts().await.expect("the store answers");
            if let Some(hold) = &accounts[0].account.hold {
                return hold.until;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    (id, tokio::time::timeout(MAX_WAIT, held).await.expect("the account is held"))
}

async fn attempts(here: &TempStore, id: TaskId) -> Vec<Attempt> {
    let shown = here.store().show(TaskRef::Id(id)).await.expect("the store answers").expect("it is there");
    assert_eq!(shown.task.failures, 0, "a usage limit is no failure");
    shown.attempts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_queues_go_on_by_themselves_when_the_hold_is_over() {
    let here = TempStore::real();
    let (ids, done) = (Ids::new(3), Signal::new("done"));
    let handler = handler(&done, vec![Duration::from_millis(600)]);
    let nodes = [node(&here, 1, &handler).await, node(&here, 2, &handler).await];
    let (limited, until) = reach_the_limit(&here, &ids).await;
    let tasks: Vec<NewTask> = QUEUES.iter().flat_map(|queue| ids.new_tasks(3, queue, KIND)).collect();
    let waiting: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    here.store().enqueue(tasks).await.expect("they are taken");
    all_done(&done, 7).await;
    for node in nodes {
        node.drain(MAX_WAIT).await;
    }
    assert_eq!(attempts(&here, limited).await.len(), 2);
    for id in waiting {
        let started_at = attempts(&here, id).await[0].started_at;
        assert!(Some(started_at) >= until, "{id} started at {started_at}, before {until:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_another_process_starts_the_work_at_once() {
    let here = TempStore::real();
    let (ids, done) = (Ids::new(3), Signal::new("done"));
    let node = node(&here, 1, &handler(&done, vec![Duration::from_secs(3_600)])).await;
    reach_the_limit(&here, &ids).await;
    here.store().enqueue(ids.new_tasks(3, QUEUES[1], KIND)).await.expect("they are taken");
    assert_eq!(done.count(), 0);
    here.second().change_account(ACCOUNT, AccountChange::Release).await.expect("it is released");
    all_done(&done, 4).await;
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_account_for_a_queue_does_not_start() {
    let here = TempStore::real();
    let handler = handler(&Signal::new("done"), Vec::new());
    let node = node(&here, 1, &handler).await;
    let refused = start(&here, 2, &handler, "codex").await.err();
    let Some(StartError::Differs(difference)) = refused else { panic!("it starts, or says {refused:?}") };
    assert!(difference.to_string().contains("account is claude there, and codex here"), "{difference}");
    node.drain(MAX_WAIT).await;
}
