//! A node that loses its session stops its work and rejoins by itself.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ostler_core::{Ending, SessionId, StateName, TaskId};
use ostler_exec::{Inline, LivenessHolder, TaskError};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, StartError};
use ostler_store::node_commands::NodeCommand;
use ostler_store::views::{TaskDetail, TaskRef};
use ostler_store::{Clock, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, ManualClock, Signal, TempStore};

const QUEUE: &str = "documents";
const KIND: &str = "read";
const TTL: Duration = Duration::from_secs(20);

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
}

impl Scene {
    fn new() -> Self {
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(13)) }
    }

    async fn node(&self, handlers: Inline, clock: Arc<dyn Clock>) -> Node {
        self.start(handlers, clock, None).await.expect("the node starts")
    }

    async fn start(
        &self,
        handlers: Inline,
        clock: Arc<dyn Clock>,
        guard: Option<Arc<dyn LivenessHolder>>,
    ) -> Result<Node, StartError> {
        let ids = Arc::clone(&self.ids);
        let parts = NodeDeps { store: self.here.store(), clock, ids: Arc::new(move || ids.task().0) };
        let pool = PoolConfig::new(QUEUE, Arc::new(handlers), 4);
        let pool = PoolConfig { grace: Duration::from_secs(2), ..pool };
        let lease = LeaseTimes { ttl: TTL, heartbeat: Duration::from_millis(100), poll: MAX_WAIT };
        let config = NodeConfig { lease, guard, ..NodeConfig::new("node", vec![pool]) };
        Node::start(parts, config).await
    }

    async fn add(&self, count: usize) -> Vec<TaskId> {
        let tasks = self.ids.new_tasks(count, QUEUE, KIND);
        let ids = tasks.iter().map(|task| task.id).collect();
        self.here.store().enqueue(tasks).await.expect("they are enqueued");
        ids
    }

    async fn until_completed(&self, id: TaskId) -> TaskDetail {
        let began = Instant::now();
        loop {
            let found = self.here.store().show(TaskRef::Id(id)).await.expect("the store answers");
            let detail = found.expect("it is there");
            if detail.task.state.name() == StateName::Completed {
                return detail;
            }
            assert!(began.elapsed() < MAX_WAIT, "it stands at {:?}", detail.task.state);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn successes(detail: &TaskDetail) -> usize {
    let ends = detail.attempts.iter().filter_map(|attempt| attempt.end.as_ref());
    ends.filter(|end| end.ending == Ending::Success).count()
}

/// Waits until the node runs under another session.
async fn until_back(node: &Node, lost: SessionId) {
    let began = Instant::now();
    let mut state = node.state();
    while node.session() == lost || *state.borrow_and_update() != NodeState::Running {
        assert!(began.elapsed() < MAX_WAIT, "it does not come back: {:?}", node.troubles());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A handler that hangs on its first run and is quick afterwards.
fn stuck_at_first(began: &Signal) -> Inline {
    let (began, first) = (began.clone(), Arc::new(AtomicBool::new(true)));
    Inline::new().handle(KIND, move |_, _| {
        let stuck = first.swap(false, Ordering::SeqCst);
        began.emit();
        async move {
            if stuck {
                std::future::pending::<()>().await;
            }
            Ok::<_, TaskError>(None)
        }
    })
}

/// Blocks all writes to the store until it is dropped.
pub(crate) struct Stalled(File);

impl Stalled {
    pub(crate) fn new(folder: &Path) -> Self {
        let lock = File::open(find(folder).expect("the lock is there")).expect("it can be opened");
        lock.lock().expect("it can be taken");
        Self(lock)
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.0.unlock().expect("it can be let go");
    }
}

fn find(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let here = paths.iter().find(|path| path.ends_with("main.lock")).cloned();
    here.or_else(|| paths.iter().find_map(|path| find(path)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_found_dead_comes_back_with_a_new_session_and_completes_everything_once() {
    let scene = Scene::new();
    let began = Signal::new("began");
    let tasks = scene.add(20).await;
    let node = scene.node(stuck_at_first(&began), Arc::new(SystemClock)).await;
    let store = scene.here.store();
    began.wait().await;
    let workers = async |session| -> HashSet<_> {
        let workers = store.survey().await.expect("the store answers").workers.into_iter();
        workers.filter(|record| record.session == session).map(|record| record.worker.id).collect()
    };
    for _ in 0..3 {
        let lost = node.session();
        let before = workers(lost).await;
        store.kill(lost);
        until_back(&node, lost).await;
        assert!(workers(node.session()).await.is_disjoint(&before), "workers get new ids");
    }
    for id in tasks {
        let detail = scene.until_completed(id).await;
        assert_eq!((successes(&detail), detail.task.failures), (1, 0), "{detail:?}");
    }
    node.drain(MAX_WAIT).await;
    assert!(store.survey().await.unwrap().nodes.iter().all(|node| node.name != "node"), "it has left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_and_could_not_be_written_before_the_fence_counts_when_it_can() {
    let scene = Scene::new();
    let clock = ManualClock::new();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let (emits, waits) = (began.clone(), go.clone());
    let handler = Inline::new().handle(KIND, move |_, _| {
        emits.emit();
        let waits = waits.clone();
        async move {
            waits.wait().await;
            Ok(Some("1".into()))
        }
    });
    let id = scene.add(1).await[0];
    let node = scene.node(handler, Arc::new(clock.clone())).await;
    let lost = node.session();
    began.wait().await;
    let stalled = Stalled::new(scene.here.folder());
    go.emit();
    let started = Instant::now();
    while node.running() > 0 {
        assert!(started.elapsed() < MAX_WAIT, "its end is reported");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // As after a long suspension: the node does not know whether its leases are valid, and stops.
    clock.advance(TTL);
    node.state().wait_for(|state| *state == NodeState::Fenced).await.unwrap();
    drop(stalled);
    let detail = scene.until_completed(id).await;
    assert_eq!((successes(&detail), began.count()), (1, 1), "it is not run again");
    until_back(&node, lost).await;
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_node_that_cannot_come_back_drains_at_once() {
    let scene = Scene::new();
    let node = scene.node(Inline::new(), Arc::new(SystemClock)).await;
    let _stalled = Stalled::new(scene.here.folder());
    scene.here.store().kill(node.session());
    node.state().wait_for(|state| *state == NodeState::Fenced).await.unwrap();
    tokio::time::timeout(MAX_WAIT, node.drain(MAX_WAIT * 10)).await.expect("it does not wait for the store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_resized_by_order_grows_and_shrinks_and_stays_so_through_a_fence() {
    let scene = Scene::new();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let (emits, waits) = (began.clone(), go.clone());
    let handler = Inline::new().handle(KIND, move |_, _| {
        emits.emit();
        let waits = waits.clone();
        async move {
            waits.wait().await;
            Ok(None)
        }
    });
    let node = scene.node(handler, Arc::new(SystemClock)).await;
    let other = scene.here.second();
    let resize = |min, max| NodeCommand::Resize { pool: QUEUE.to_owned(), min, max };
    scene.add(10).await;
    began.wait_for(4).await;
    other.command(node.session(), resize(1, 6)).await.unwrap();
    began.wait_for(6).await;
    // Down: busy workers finish first, then exit.
    other.command(node.session(), resize(1, 2)).await.unwrap();
    let until_workers = async |wanted: usize| {
        let began = Instant::now();
        loop {
            let workers = other.survey().await.unwrap().workers.len();
            if workers == wanted {
                return;
            }
            assert!(began.elapsed() < MAX_WAIT, "{workers} workers, and not {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(node.running(), 6);
    go.emit();
    began.wait_for(10).await;
    until_workers(2).await;
    let lost = node.session();
    scene.here.store().kill(lost);
    until_back(&node, lost).await;
    until_workers(1).await;
    node.drain(MAX_WAIT).await;
}

/// Holds the liveness lock, after refusing a number of times.
#[derive(Default)]
struct Holds {
    liveness_lock: Mutex<Option<OwnedFd>>,
    refuse: Mutex<usize>,
    asked: Mutex<usize>,
}

#[async_trait]
impl LivenessHolder for Holds {
    async fn hold(&self, liveness_lock: OwnedFd) -> std::io::Result<()> {
        *self.asked.lock().unwrap() += 1;
        let mut refuse = self.refuse.lock().unwrap();
        if *refuse > 0 {
            *refuse -= 1;
            return Err(std::io::Error::other("the supervisor is gone"));
        }
        *self.liveness_lock.lock().unwrap() = Some(liveness_lock);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_holds_the_lock_of_each_session_before_its_first_claim() {
    let scene = Scene::new();
    let holds = Arc::new(Holds::default());
    let (checks, held_at_start) = (Arc::clone(&holds), Arc::new(AtomicBool::new(false)));
    let saw = Arc::clone(&held_at_start);
    let handler = Inline::new().handle(KIND, move |_, _| {
        saw.store(checks.liveness_lock.lock().unwrap().is_some(), Ordering::SeqCst);
        async { Ok(None) }
    });
    let id = scene.add(1).await[0];
    let guard = Arc::clone(&holds) as Arc<dyn LivenessHolder>;
    let node = scene.start(handler, Arc::new(SystemClock), Some(guard)).await.unwrap();
    scene.until_completed(id).await;
    assert!(held_at_start.load(Ordering::SeqCst), "it was held before anything ran");
    // The node rejoins only when the guard holds the new lock; a refusal is retried.
    *holds.refuse.lock().unwrap() = 2;
    let lost = node.session();
    let store = scene.here.store();
    store.kill(lost);
    drop(holds.liveness_lock.lock().unwrap().take());
    until_back(&node, lost).await;
    assert_eq!(*holds.asked.lock().unwrap(), 4);
    assert!(holds.liveness_lock.lock().unwrap().is_some());
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_guard_refuses_does_not_start() {
    let scene = Scene::new();
    let holds = Holds { refuse: Mutex::new(1), ..Holds::default() };
    let refused = scene.start(Inline::new(), Arc::new(SystemClock), Some(Arc::new(holds))).await.err();
    let sentence = refused.map(|refused| refused.to_string()).unwrap_or_default();
    assert!(sentence.contains("cannot hold the node's liveness lock: the supervisor is gone"), "{sentence}");
    assert!(scene.here.store().survey().await.unwrap().nodes.is_empty(), "it has left");
}
