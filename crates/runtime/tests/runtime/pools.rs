//! Pools that a running node is given, and loses again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Overrides, SessionId, StateName, TaskId};
use ostler_exec::{Context, Inline, TaskError};
use ostler_runtime::{
    AddPoolError, Drained, LeaseTimes, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, TakeOver,
};
use ostler_store::calls::QueueChange;
use ostler_store::views::{TaskDetail, TaskRef};
use ostler_store::{MAX_GONE_WORKERS, Store as _, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const KIND: &str = "read";
const FIRST: &str = "first";
const LATER: &str = "later";

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
}

impl Scene {
    fn new() -> Self {
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(29)) }
    }

    async fn node(&self, pool: PoolConfig) -> Node {
        let ids = Arc::clone(&self.ids);
        let parts = NodeDeps {
            store: self.here.store(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(move || ids.task().0),
        };
        let lease = LeaseTimes {
            ttl: Duration::from_secs(20),
            heartbeat: Duration::from_millis(100),
            poll: MAX_WAIT,
        };
        let config = NodeConfig { lease, ..NodeConfig::new("node", vec![pool]) };
        Node::start(parts, config).await.expect("the node starts")
    }

    async fn add(&self, queue: &str) -> TaskId {
        let task = self.ids.new_task(queue, KIND);
        let id = task.id;
        self.here.store().enqueue(vec![task]).await.expect("it is enqueued");
        id
    }

    async fn show(&self, id: TaskId) -> TaskDetail {
        self.here.store().show(TaskRef::Id(id)).await.expect("the store answers").expect("it is there")
    }

    async fn until(&self, id: TaskId, wanted: StateName) {
        let began = Instant::now();
        loop {
            let detail = self.show(id).await;
            if detail.task.state.name() == wanted {
                return;
            }
            assert!(began.elapsed() < MAX_WAIT, "it stands at {:?}", detail.task.state);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The pools of the workers that the store knows.
    async fn pools_with_workers(&self) -> Vec<String> {
        let survey = self.here.store().survey().await.expect("the store answers");
        let mut pools: Vec<String> = survey.workers.into_iter().map(|record| record.worker.pool).collect();
        pools.dedup();
        pools
    }

    /// Attempts that succeeded on workers of a pool that are gone.
    async fn done_by_gone_workers(&self, pool: &str) -> u64 {
        let gone = self.here.store().gone_workers(MAX_GONE_WORKERS).await.expect("the store answers");
        gone.iter().filter(|gone| gone.worker.pool == pool).map(|gone| gone.worker.done).sum()
    }
}

fn quick(queue: &str) -> PoolConfig {
    let handlers = Inline::new().handle(KIND, |_, _| async { Ok::<_, TaskError>(None) });
    PoolConfig { grace: Duration::from_secs(2), ..PoolConfig::new(queue, Arc::new(handlers), 2) }
}

/// A pool whose tasks run until they are asked to stop.
fn waiting(queue: &str, began: &Signal) -> PoolConfig {
    let began = began.clone();
    let handlers = Inline::new().handle(KIND, move |_, context: Context| {
        began.emit();
        async move {
            context.cancelled().await;
            Err::<Option<String>, _>(TaskError::transient("asked to stop"))
        }
    });
    PoolConfig { executor: Arc::new(handlers), ..quick(queue) }
}

async fn until_back(node: &Node, lost: SessionId) {
    let began = Instant::now();
    let mut state = node.state();
    while node.session() == lost || *state.borrow_and_update() != NodeState::Running {
        assert!(began.elapsed() < MAX_WAIT, "it does not come back: {:?}", node.troubles());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_pool_claims_with_its_settings_and_a_removed_one_claims_no_more() {
    let scene = Scene::new();
    let node = scene.node(quick(FIRST)).await;
    let early = scene.add(LATER).await;
    let twice = Overrides { attempts: Some(2), ..Overrides::NONE };
    let pool = PoolConfig { settings: vec![QueueChange::Overrides(twice)], ..quick(LATER) };
    node.handle().add_pool(pool, TakeOver::No).await.expect("it is added");
    scene.until(early, StateName::Completed).await;
    let settings = scene.here.store().queue_settings(LATER).await.expect("the store answers");
    assert_eq!(settings.overrides, twice);
    assert_eq!(node.most_workers(), 4);

    let drained = node.handle().remove_pool(LATER, MAX_WAIT).await;
    assert_eq!(drained, Some(Drained::default()), "nothing was running");
    assert_eq!((node.most_workers(), node.handle().remove_pool(LATER, MAX_WAIT).await), (2, None));
    // Its workers leave their last records, with what they did.
    let began = Instant::now();
    while scene.done_by_gone_workers(LATER).await != 1 {
        assert!(began.elapsed() < MAX_WAIT, "the worker that ran the task is not reported");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (late, other) = (scene.add(LATER).await, scene.add(FIRST).await);
    scene.until(other, StateName::Completed).await;
    assert_eq!(scene.show(late).await.task.state.name(), StateName::Queued);

    // The queue can be served again.
    node.handle().add_pool(quick(LATER), TakeOver::No).await.expect("it is added again");
    scene.until(late, StateName::Completed).await;
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_pool_hands_back_what_does_not_end_in_time_and_nothing_of_another_pool() {
    let scene = Scene::new();
    let (stays, goes) = (Signal::new("stays"), Signal::new("goes"));
    let node = scene.node(waiting(FIRST, &stays)).await;
    let handle = node.handle();
    handle.add_pool(waiting(LATER, &goes), TakeOver::No).await.expect("it is added");
    let (kept, given_back) = (scene.add(FIRST).await, scene.add(LATER).await);
    stays.wait().await;
    goes.wait().await;
    let drained = handle.remove_pool(LATER, Duration::ZERO).await;
    assert_eq!(drained, Some(Drained { finished: 0, handed_back: 1 }));
    // What was handed back is written when the pool is gone.
    let detail = scene.show(given_back).await;
    assert_eq!((detail.task.state.name(), detail.task.failures), (StateName::Queued, 0), "{detail:?}");
    // Its start is written with its end.
    assert_eq!((node.running(), scene.show(kept).await.task.state.name()), (1, StateName::Claimed));
    let began = Instant::now();
    while scene.pools_with_workers().await != [FIRST] {
        assert!(began.elapsed() < MAX_WAIT, "its workers are closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let drained = node.drain(Duration::ZERO).await;
    assert_eq!(drained, Drained { finished: 0, handed_back: 1 }, "the removed pool is not counted again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_come_and_go_for_good_whatever_becomes_of_the_session() {
    let scene = Scene::new();
    let node = scene.node(quick(FIRST)).await;
    node.handle().add_pool(quick(LATER), TakeOver::No).await.expect("it is added");
    let lost = node.session();
    scene.here.store().kill(lost);
    until_back(&node, lost).await;
    let task = scene.add(LATER).await;
    scene.until(task, StateName::Completed).await;

    assert!(node.handle().remove_pool(LATER, MAX_WAIT).await.is_some());
    let lost = node.session();
    scene.here.store().kill(lost);
    until_back(&node, lost).await;
    let (left, done) = (scene.add(LATER).await, scene.add(FIRST).await);
    scene.until(done, StateName::Completed).await;
    assert_eq!(scene.show(left).await.task.state.name(), StateName::Queued, "nothing serves its queue");
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_the_node_cannot_have_is_refused_before_anything_is_written() {
    let scene = Scene::new();
    let node = scene.node(quick(FIRST)).await;
    let handle = node.handle();
    let once = Overrides { attempts: Some(1), ..Overrides::NONE };
    let again = PoolConfig { settings: vec![QueueChange::Overrides(once)], ..quick(FIRST) };
    let refused = handle.add_pool(again, TakeOver::Yes).await.expect_err("it has one");
    assert!(
        matches!(&refused, AddPoolError::Config(why) if why.to_string().contains("\"first\"")),
        "{refused}"
    );
    let settings = scene.here.store().queue_settings(FIRST).await.expect("the store answers");
    assert_eq!(settings.overrides, Overrides::NONE, "its settings are not applied");
    let large = PoolConfig::new(LATER, quick(LATER).executor, 100_000);
    assert!(matches!(handle.add_pool(large, TakeOver::No).await, Err(AddPoolError::Config(_))));

    node.drain(MAX_WAIT).await;
    let refused = handle.add_pool(quick(LATER), TakeOver::No).await.expect_err("it has ended");
    assert!(matches!(refused, AddPoolError::Ended), "{refused}");
    assert_eq!(handle.remove_pool(FIRST, MAX_WAIT).await, None);
}
