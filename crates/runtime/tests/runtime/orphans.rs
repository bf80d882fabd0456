//! Orphaned leases: a task leased to a node that does not know of it is handed back and run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Ending, StateName, TaskId, WorkerId};
use ostler_exec::{Inline, TaskError};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, Prefetch};
use ostler_store::calls::{Claim, ClaimAnswer, Fenced, Kinds, Start};
use ostler_store::views::{TaskDetail, TaskRef};
use ostler_store::{LeaseRef, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUE: &str = "documents";
const ELSEWHERE: &str = "letters";
const KIND: &str = "read";
const HEARTBEAT: Duration = Duration::from_millis(50);

async fn node(store: Arc<dyn Store>, queue: &str, handlers: Inline) -> Node {
    let ids = Arc::new(Ids::new(queue.len() as u64));
    let parts = NodeDeps { store, clock: Arc::new(SystemClock), ids: Arc::new(move || ids.task().0) };
    let lease = LeaseTimes { ttl: 10 * MAX_WAIT, heartbeat: HEARTBEAT, poll: Duration::from_millis(50) };
    // No task is handed back because of prefetch.
    let pool = PoolConfig { prefetch: Prefetch::Off, ..PoolConfig::new(queue, Arc::new(handlers), 4) };
    let config = NodeConfig { lease, ..NodeConfig::new("node", vec![pool]) };
    Node::start(parts, config).await.expect("the node starts")
}

async fn show(store: &dyn Store, id: TaskId) -> TaskDetail {
    store.show(TaskRef::Id(id)).await.expect("the store answers").expect("it is there")
}

/// Polls until the task is in this state.
async fn until(store: &dyn Store, id: TaskId, wanted: StateName) -> TaskDetail {
    let began = Instant::now();
    loop {
        let detail = show(store, id).await;
        if detail.task.state.name() == wanted {
            return detail;
        }
        assert!(began.elapsed() < MAX_WAIT, "it stands at {:?}", detail.task.state);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Claims for a node without its knowledge, like a claim whose response is lost.
async fn claim_for(store: &dyn Store, node: &Node, limit: usize) -> Vec<LeaseRef> {
    let claim = Claim { session: node.session(), queue: ELSEWHERE.to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks.iter().map(|task| task.lease.as_ref()).collect(),
        ClaimAnswer::SessionEnded => panic!("the node is alive"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_does_not_know_of_is_handed_back_and_run_elsewhere() {
    let here = TempStore::real();
    let store = here.store();
    let ran = Signal::new("ran");
    let other = ran.clone();
    let handler = move || {
        let ran = other.clone();
        Inline::new().handle(KIND, move |_, _| {
            ran.emit();
            async { Ok::<_, TaskError>(None) }
        })
    };
    let forgetful = node(here.store(), QUEUE, handler()).await;
    let tasks = Ids::new(3).new_tasks(2, ELSEWHERE, KIND);
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    store.enqueue(tasks).await.expect("they are enqueued");
    let leases = claim_for(&*store, &forgetful, 2).await;
    assert_eq!(leases.len(), 2);
    // For one of them, the outcome of the attempt was lost.
    let start = Start { lease: leases[1], worker: WorkerId(Ids::new(4).task().0) };
    assert_eq!(store.start(vec![start]).await, Ok(vec![Fenced::Recorded]));
    for id in &ids {
        let detail = until(&*store, *id, StateName::Queued).await;
        assert_eq!((detail.task.failures, detail.task.node_deaths, detail.task.suspect), (0, 0, false));
    }
    let ending = show(&*store, ids[1]).await.attempts[0].end.as_ref().map(|end| end.ending);
    assert_eq!(ending, Some(Ending::HandedBack));
    let able = node(here.store(), ELSEWHERE, handler()).await;
    for id in &ids {
        until(&*store, *id, StateName::Completed).await;
    }
    assert_eq!(ran.count(), 2);
    able.drain(MAX_WAIT).await;
    forgetful.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_knows_of_is_never_handed_back_however_often_it_renews() {
    const TASKS: usize = 300;
    let here = TempStore::real();
    let store = here.store();
    let handlers = Inline::new().handle(KIND, |_, _| async { Ok::<_, TaskError>(None) });
    let busy = node(here.store(), QUEUE, handlers).await;
    let tasks = Ids::new(3).new_tasks(TASKS, QUEUE, KIND);
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    for some in tasks.chunks(10) {
        store.enqueue(some.to_vec()).await.expect("they are enqueued");
        // A control signal makes the node renew immediately.
        store.cancel(vec![TaskId(Ids::new(5).task().0)]).await.expect("cancel answers");
    }
    for id in ids {
        let detail = until(&*store, id, StateName::Completed).await;
        assert_eq!((detail.task.token, detail.attempts.len()), (1, 1), "it was claimed and run once");
    }
    busy.drain(MAX_WAIT).await;
}
