//! Unresponsive handlers: they block past their deadline, are reported, and other workers replace theirs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ostler_core::{Ending, ErrorClass, Overrides, StateName, TaskId, WorkerState};
use ostler_exec::{Context, Executor, Inline, ThreadPolicy, Threads};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, Prefetch};
use ostler_store::views::TaskRef;
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};
use tokio::runtime::{Builder, Runtime};

const QUEUE: &str = "documents";
const WORKERS: usize = 4;
/// Unresponsive handlers: twice as many as workers.
const DEAF: usize = 8;

/// Blocks threads until it is opened.
#[derive(Default)]
struct Wall {
    open: Mutex<bool>,
    opened: Condvar,
    behind: AtomicUsize,
}

impl Wall {
    fn block(&self) {
        self.behind.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        self.behind.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Releases the threads however the test ends.
struct OpenOnDrop(Arc<Wall>);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
    wall: Arc<Wall>,
    began: Signal,
    go: Signal,
}

impl Scene {
    fn new() -> Self {
        let (began, go) = (Signal::new("began"), Signal::new("go"));
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(5)), wall: Arc::default(), began, go }
    }

    fn inline(&self) -> Arc<dyn Executor> {
        let (wall, began, go) = (Arc::clone(&self.wall), self.began.clone(), self.go.clone());
        let deaf = move |_: String, _| {
            let wall = Arc::clone(&wall);
            async move {
                wall.block();
                Ok(None)
            }
        };
        let good = move |_: String, _| {
            let (began, go) = (began.clone(), go.clone());
            async move {
                began.emit();
                go.wait().await;
                Ok(None)
            }
        };
        Arc::new(Inline::new().handle("deaf", deaf).handle("good", good))
    }

    fn threads(&self) -> Arc<dyn Executor> {
        let (wall, began, go) = (Arc::clone(&self.wall), self.began.clone(), self.go.clone());
        let deaf = move |_: String, _| {
            let wall = Arc::clone(&wall);
            async move {
                wall.block();
                Ok(None)
            }
        };
        let good = move |_: String, _| {
            let (began, go) = (began.clone(), go.clone());
            async move {
                began.emit();
                go.wait().await;
                Ok(None)
            }
        };
        let threads = Threads::start(ThreadPolicy::for_cores(WORKERS)).expect("there are threads");
        Arc::new(threads.handle("deaf", deaf).handle("good", good))
    }

    async fn node(&self, executor: Arc<dyn Executor>) -> Node {
        let millis = Duration::from_millis;
        let lease = LeaseTimes { ttl: millis(10_000), heartbeat: millis(200), poll: millis(200) };
        let ids = Arc::clone(&self.ids);
        let ids = Arc::new(move || ids.task().0);
        let parts = NodeDeps { store: self.here.store(), clock: Arc::new(SystemClock), ids };
        let pool = PoolConfig {
            grace: millis(100),
            prefetch: Prefetch::Off,
            ..PoolConfig::new(QUEUE, executor, WORKERS)
        };
        let config = NodeConfig { lease, ..NodeConfig::new("node", vec![pool]) };
        Node::start(parts, config).await.expect("the node starts")
    }

    async fn add(&self, count: usize, kind: &str, timeout: Duration) -> Vec<TaskId> {
        let mut tasks = self.ids.new_tasks(count, QUEUE, kind);
        let once = Overrides { attempts: Some(1), timeout: Some(timeout), ..Overrides::NONE };
        tasks.iter_mut().for_each(|task| task.overrides = once);
        let ids = tasks.iter().map(|task| task.id).collect();
        self.here.store().enqueue(tasks).await.expect("they are enqueued");
        ids
    }

    async fn deaf_workers(&self) -> usize {
        let survey = self.here.store().survey().await.expect("the store answers");
        survey.workers.iter().filter(|record| record.worker.state == WorkerState::Unresponsive).count()
    }

    async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        let began = Instant::now();
        while !holds().await {
            assert!(began.elapsed() < MAX_WAIT, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asserts that all of these fail with a timeout.
    async fn too_long(&self, tasks: &[TaskId]) {
        for id in tasks {
            let failed = || async {
                let found = self.here.store().show(TaskRef::Id(*id)).await.expect("the store answers");
                let detail = found.expect("it is there");
                let ended = detail.task.state.name() == StateName::Failed;
                if ended {
                    let end = detail.attempts[0].end.as_ref().expect("it has ended");
                    assert_eq!(end.ending, Ending::Failed(ErrorClass::Timeout));
                }
                ended
            };
            self.until("what is deaf has failed", failed).await;
        }
    }

    /// Runs the unresponsive handlers, then as many good ones at once as there are workers.
    async fn recovers(&self, node: Node) {
        let deaf = self.add(DEAF, "deaf", Duration::from_millis(200)).await;
        self.too_long(&deaf).await;
        self.add(WORKERS, "good", MAX_WAIT).await;
        self.began.wait_for(WORKERS as u64).await;
        assert_eq!(node.running(), WORKERS);
        self.until("the deaf are reported", || async { self.deaf_workers().await > 0 }).await;
        self.go.emit();
        self.wall.open();
        self.until("no worker is deaf any more", || async { self.deaf_workers().await == 0 }).await;
        assert_eq!(self.wall.behind.load(Ordering::SeqCst), 0);
        node.drain(MAX_WAIT).await;
    }
}

/// The test observes from a runtime of its own: the other one may have no thread left.
fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_deaf_handlers_on_threads_of_their_own_all_workers_work_again() {
    let scene = Scene::new();
    let _wall = OpenOnDrop(Arc::clone(&scene.wall));
    let node = scene.node(scene.threads()).await;
    scene.recovers(node).await;
}

#[test]
fn after_deaf_handlers_that_hold_every_thread_of_their_runtime_all_workers_work_again() {
    let (theirs, ours) = (two_threads(), two_threads());
    let scene = Arc::new(Scene::new());
    let _wall = OpenOnDrop(Arc::clone(&scene.wall));
    let starts = Arc::clone(&scene);
    let node = theirs.block_on(async move { starts.node(starts.inline()).await });
    ours.block_on(scene.recovers(node));
}

/// What it logs wakes its worker, which is then next on the thread that the handler blocks; no other thread takes it over.
#[test]
fn a_handler_that_logs_and_then_blocks_its_thread_is_reported_though_other_threads_are_free() {
    let (theirs, ours) = (two_threads(), two_threads());
    let scene = Arc::new(Scene::new());
    let _wall = OpenOnDrop(Arc::clone(&scene.wall));
    let wall = Arc::clone(&scene.wall);
    let logs = move |_: String, context: Context| {
        let wall = Arc::clone(&wall);
        async move {
            context.log("this will take long");
            wall.block();
            Ok(None)
        }
    };
    let executor = Arc::new(Inline::new().handle("logs", logs));
    let starts = Arc::clone(&scene);
    let node = theirs.block_on(async move { starts.node(executor).await });
    ours.block_on(async {
        let task = scene.add(1, "logs", Duration::from_millis(200)).await;
        scene.too_long(&task).await;
        scene.wall.open();
        node.drain(MAX_WAIT).await;
    });
}

#[test]
fn a_drain_does_not_wait_for_what_is_deaf() {
    let (theirs, ours) = (two_threads(), two_threads());
    let scene = Arc::new(Scene::new());
    let _wall = OpenOnDrop(Arc::clone(&scene.wall));
    let starts = Arc::clone(&scene);
    let node = theirs.block_on(async move { starts.node(starts.inline()).await });
    ours.block_on(async {
        let deaf = scene.add(1, "deaf", Duration::from_millis(200)).await;
        scene.too_long(&deaf).await;
        let began = Instant::now();
        node.drain(MAX_WAIT).await;
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    });
    // The runtime waits for its threads when it is dropped.
    scene.wall.open();
}
