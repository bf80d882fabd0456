//! A node on a real embedded store, as observed by a user.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Ending, ErrorClass, EventBody, Overrides, State, StateName, TaskId, WorkerState};
use ostler_exec::{Context, Executor, Inline, TaskError};
use ostler_runtime::{
    Drained, LeaseTimes, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, PoolSize, StartMode, Unclassed,
};
use ostler_store::calls::{CancelAnswer, NewTask};
use ostler_store::events::EventQuery;
use ostler_store::views::{Counts, TaskDetail, TaskRef, WorkerRecord};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUE: &str = "documents";
const KIND: &str = "read";

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
}

impl Scene {
    fn new() -> Self {
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(7)) }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.here.store()
    }

    fn parts(&self, store: Arc<dyn Store>) -> NodeDeps {
        let ids = Arc::clone(&self.ids);
        NodeDeps { store, clock: Arc::new(SystemClock), ids: Arc::new(move || ids.task().0) }
    }

    async fn node(&self, pool: PoolConfig) -> Node {
        let config = NodeConfig { lease: quick(), ..NodeConfig::new("node", vec![pool]) };
        Node::start(self.parts(self.store()), config).await.expect("the node starts")
    }

    async fn add(&self, change: impl FnOnce(&mut NewTask)) -> TaskId {
        let mut task = self.ids.new_task(QUEUE, KIND);
        change(&mut task);
        let id = task.id;
        self.store().enqueue(vec![task]).await.expect("it is enqueued");
        id
    }

    async fn show(&self, id: TaskId) -> TaskDetail {
        self.store().show(TaskRef::Id(id)).await.expect("the store answers").expect("the task is there")
    }

    async fn counts(&self) -> Counts {
        let survey = self.store().survey().await.expect("the store answers");
        survey.lanes.first().map(|lane| lane.counts).unwrap_or_default()
    }

    /// Polls until the node has reported this many idle workers.
    async fn until_idle(&self, count: usize) {
        let is_idle = |record: &&WorkerRecord| record.worker.state == WorkerState::Idle;
        let looking = async {
            let mut looks = tokio::time::interval(Duration::from_millis(5));
            loop {
                looks.tick().await;
                let workers = self.store().survey().await.expect("the store answers").workers;
                if workers.iter().filter(is_idle).count() == count {
                    return;
                }
            }
        };
        tokio::time::timeout(MAX_WAIT, looking).await.expect("all workers become idle");
    }

    /// Polls until the task is in this state.
    async fn until(&self, id: TaskId, wanted: StateName) -> TaskDetail {
        let looking = async {
            loop {
                let detail = self.show(id).await;
                if detail.task.state.name() == wanted {
                    return detail;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, looking).await.expect("the task gets there")
    }
}

fn quick() -> LeaseTimes {
    LeaseTimes {
        ttl: Duration::from_secs(10),
        heartbeat: Duration::from_millis(200),
        poll: Duration::from_secs(30),
    }
}

fn pool(executor: impl Executor + 'static, workers: usize) -> PoolConfig {
    PoolConfig { grace: Duration::from_secs(1), ..PoolConfig::new(QUEUE, Arc::new(executor), workers) }
}

/// A handler that signals its start and waits until it is cancelled.
fn waiter(began: &Signal) -> Inline {
    let began = began.clone();
    Inline::new().handle(KIND, move |_, context: Context| {
        began.emit();
        async move {
            context.cancelled().await;
            Err(TaskError::transient("told to stop"))
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_complete_each_in_one_attempt() {
    let scene = Scene::new();
    let tasks = scene.ids.new_tasks(1_000, QUEUE, KIND);
    scene.store().enqueue(tasks.clone()).await.unwrap();
    let done = Signal::new("done");
    let emits = done.clone();
    let handler = Inline::new().handle(KIND, move |_, _| {
        emits.emit();
        async { Ok(Some("1".into())) }
    });
    let node = scene.node(pool(handler, 8)).await;
    done.wait_for(1_000).await;
    node.drain(MAX_WAIT).await;
    assert_eq!(scene.counts().await, Counts { completed: 1_000, ..Counts::default() });
    for task in tasks {
        let detail = scene.show(task.id).await;
        assert_eq!((detail.attempts.len(), detail.task.output.as_deref()), (1, Some("1")));
    }
    assert_eq!(done.count(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_that_was_busy_last_is_given_the_next_task() {
    const WORKERS: usize = 8;
    let scene = Scene::new();
    let node = scene.node(pool(Inline::new().handle(KIND, |_, _| async { Ok(None) }), WORKERS)).await;
    scene.until_idle(WORKERS).await;
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..2 * WORKERS {
        let id = scene.add(|_| ()).await;
        used.insert(scene.until(id, StateName::Completed).await.attempts[0].worker);
        // The outcome is stored before the worker is free, and the next task must find it free.
        let mut looks = tokio::time::interval(Duration::from_millis(1));
        let free = async {
            while node.running() > 0 {
                looks.tick().await;
            }
        };
        tokio::time::timeout(MAX_WAIT, free).await.expect("the worker becomes free");
    }
    node.drain(MAX_WAIT).await;
    assert_eq!(used.len(), 1, "one worker does everything, one task after the other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_node_hears_of_new_work_without_polling() {
    let scene = Scene::new();
    let done = Signal::new("done");
    let emits = done.clone();
    let handler = Inline::new().handle(KIND, move |_, _| {
        emits.emit();
        async { Ok(None) }
    });
    // The poll interval is thirty seconds, as long as the test waits at most.
    let node = scene.node(pool(handler, 2)).await;
    for number in 1..=20 {
        scene.add(|_| ()).await;
        done.wait_for(number).await;
    }
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_sets_the_class_of_unclassed_failures_only() {
    for (unclassed, panics, panic_class, says) in [
        (Unclassed::Transient, (StateName::Completed, 2), ErrorClass::Transient, (StateName::Completed, 2)),
        (Unclassed::Permanent, (StateName::Failed, 1), ErrorClass::Permanent, (StateName::Completed, 2)),
    ] {
        let scene = Scene::new();
        let handler = Inline::new().handle(KIND, |payload: String, context: Context| async move {
            match (payload.as_str(), context.attempt()) {
                ("1", 1) => panic!("an unclassed panic"),
                ("2", 1) => Err(TaskError::transient("the handler classed this")),
                _ => Ok(None),
            }
        });
        let soon = Overrides { base: Some(Duration::from_millis(10)), ..Overrides::NONE };
        let add = async |payload: &str| {
            let payload = payload.to_owned();
            scene.add(|task| (task.payload, task.overrides) = (payload, soon)).await
        };
        let (first, second) = (add("1").await, add("2").await);
        let node = scene.node(PoolConfig { unclassed, ..pool(handler, 1) }).await;
        for (id, (state, runs), class, message) in [
            (first, panics, panic_class, "an unclassed panic"),
            (second, says, ErrorClass::Transient, "the handler classed this"),
        ] {
            let detail = scene.until(id, state).await;
            assert_eq!(detail.task.runs, runs, "{unclassed:?}");
            // In either case, the attempt is recorded with its failure.
            let end = detail.attempts[0].end.as_ref().expect("it has ended");
            assert_eq!(end.ending, Ending::Failed(class), "{unclassed:?}");
            let failure = end.failure.as_ref().expect("it failed");
            assert!(failure.message.contains(message), "{}", failure.message);
        }
        node.drain(MAX_WAIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_comes_back_and_its_attempts_tell_why() {
    let scene = Scene::new();
    let handler = Inline::new().handle(KIND, |_, context: Context| async move {
        if context.attempt() < 3 { Err(TaskError::transient("not yet")) } else { Ok(None) }
    });
    let soon = Overrides { base: Some(Duration::from_millis(10)), ..Overrides::NONE };
    let id = scene.add(|task| task.overrides = soon).await;
    let node = scene.node(pool(handler, 1)).await;
    let detail = scene.until(id, StateName::Completed).await;
    let endings: Vec<&str> = detail
        .attempts
        .iter()
        .filter_map(|attempt| attempt.end.as_ref())
        .map(|end| end.ending.name())
        .collect();
    assert_eq!(endings, ["transient", "transient", "success"]);
    assert_eq!(detail.task.last_failure.map(|failure| failure.message).as_deref(), Some("not yet"));
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_no_store_takes_is_a_permanent_failure_and_no_task_without_an_end() {
    let scene = Scene::new();
    let handler = Inline::new().handle(KIND, |payload: String, _| async move {
        let levels = ostler_core::MAX_NESTING + 1;
        let deep = "[".repeat(levels) + &"]".repeat(levels);
        Ok(Some(if payload == "1" { deep } else { format!("\"{}\"", "x".repeat(16 << 20)) }))
    });
    let deep = scene.add(|task| task.payload = "1".into()).await;
    let large = scene.add(|task| task.payload = "2".into()).await;
    let node = scene.node(pool(handler, 1)).await;
    for (id, why) in [(deep, "more than 120 deep"), (large, "at most 16777216 are taken")] {
        let failed = scene.until(id, StateName::Failed).await.task;
        assert_eq!(failed.runs, 1);
        let message = failed.last_failure.map(|failure| failure.message).unwrap_or_default();
        assert!(message.starts_with("output") && message.contains(why), "{message}");
    }
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_the_handler() {
    let scene = Scene::new();
    let began = Signal::new("began");
    let id = scene.add(|_| ()).await;
    let node = scene.node(pool(waiter(&began), 1)).await;
    began.wait().await;
    assert_eq!(scene.store().cancel(vec![id]).await.unwrap(), [CancelAnswer::Requested]);
    scene.until(id, StateName::Cancelled).await;
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_what_runs_and_takes_nothing_new() {
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
    let running = scene.add(|_| ()).await;
    let node = scene.node(pool(handler, 1)).await;
    began.wait().await;
    let waiting = scene.add(|_| ()).await;
    let mut state = node.state();
    let draining = tokio::spawn(node.drain(MAX_WAIT));
    state.wait_for(|state| *state == NodeState::Draining).await.unwrap();
    go.emit();
    assert_eq!(draining.await.unwrap(), Drained { finished: 1, handed_back: 0 });
    assert_eq!(scene.show(running).await.task.state.name(), StateName::Completed);
    assert_eq!(scene.show(waiting).await.task.state.name(), StateName::Queued);
    assert_eq!(began.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_takes_too_long_hands_back_and_counts_no_failure() {
    let scene = Scene::new();
    let began = Signal::new("began");
    let id = scene.add(|_| ()).await;
    let durable = PoolConfig { beginning: StartMode::Durable, ..pool(waiter(&began), 1) };
    let node = scene.node(durable).await;
    began.wait().await;
    assert_eq!(node.drain(Duration::ZERO).await, Drained { finished: 0, handed_back: 1 });
    let detail = scene.show(id).await;
    assert!(matches!(detail.task.state, State::Queued { .. }), "{:?}", detail.task.state);
    assert_eq!((detail.task.runs, detail.task.failures), (1, 0));
    assert_eq!(detail.attempts[0].end.as_ref().map(|end| end.ending), Some(Ending::HandedBack));
    assert!(scene.store().survey().await.unwrap().nodes.is_empty(), "the node has left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_for_three_ttls_keeps_its_lease() {
    let scene = Scene::new();
    let ttl = Duration::from_secs(2);
    let handler = Inline::new().handle(KIND, move |_, _| async move {
        let until = std::time::Instant::now() + ttl * 3;
        while std::time::Instant::now() < until {
            std::thread::park_timeout(ttl);
        }
        Ok(None)
    });
    // As many tasks as threads: nothing progresses on the caller's runtime.
    let ids = [scene.add(|_| ()).await, scene.add(|_| ()).await];
    let times = LeaseTimes { ttl, heartbeat: ttl / 6, ..quick() };
    let config = NodeConfig { lease: times, ..NodeConfig::new("node", vec![pool(handler, 2)]) };
    let node = Node::start(scene.parts(scene.store()), config).await.unwrap();
    // Another process keeps checking whether the node is dead.
    let observer = scene.here.second();
    let looking = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for _ in 0..30 {
                assert_eq!(
                    observer.expire(100).await.unwrap().sessions,
                    [],
                    "a living node was taken for dead"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    });
    for id in ids {
        assert_eq!(scene.until(id, StateName::Completed).await.attempts.len(), 1);
    }
    looking.await.unwrap();
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_session_stops_its_work_and_another_completes_it_once() {
    let scene = Scene::new();
    let began = Signal::new("began");
    let id = scene.add(|_| ()).await;
    let first = scene.here.second();
    let config = NodeConfig { lease: quick(), ..NodeConfig::new("first", vec![pool(waiter(&began), 1)]) };
    let lost = Node::start(scene.parts(Arc::clone(&first) as Arc<dyn Store>), config).await.unwrap();
    began.wait().await;
    let session = lost.session();
    first.kill(session);
    let waiting = std::time::Instant::now();
    while lost.session() == session {
        assert!(waiting.elapsed() < MAX_WAIT, "it does not come back");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // It has rejoined; the test continues with another node.
    lost.drain(Duration::ZERO).await;

    let done = Inline::new().handle(KIND, |_, _| async { Ok(Some("\"second\"".into())) });
    let node = scene.node(pool(done, 1)).await;
    let detail = scene.until(id, StateName::Completed).await;
    assert_eq!(detail.task.output.as_deref(), Some("\"second\""));
    assert_eq!((detail.task.failures, detail.task.suspect), (0, true));
    node.drain(MAX_WAIT).await;
}

/// Signals when it is dropped.
struct OnDrop(Signal);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.emit();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_whose_lease_is_lost_is_ended_without_grace() {
    let scene = Scene::new();
    let (began, gone) = (Signal::new("began"), Signal::new("gone"));
    let (emits, drops) = (began.clone(), gone.clone());
    // Runs forever, with a longer grace than the test waits.
    let handler = Inline::new().handle(KIND, move |_, _| {
        emits.emit();
        let held = OnDrop(drops.clone());
        async move {
            let _held = held;
            std::future::pending().await
        }
    });
    scene.add(|_| ()).await;
    let store = scene.here.second();
    let patient = PoolConfig { grace: MAX_WAIT * 4, ..pool(handler, 1) };
    let config = NodeConfig { lease: quick(), ..NodeConfig::new("node", vec![patient]) };
    let node = Node::start(scene.parts(Arc::clone(&store) as Arc<dyn Store>), config).await.unwrap();
    began.wait().await;
    store.kill(node.session());
    gone.wait().await;
    node.drain(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_says_is_kept_with_the_task() {
    let scene = Scene::new();
    let handler = Inline::new().handle(KIND, |_, context: Context| async move {
        context.log("hello");
        context.progress(1, Some(2));
        Ok(None)
    });
    let id = scene.add(|_| ()).await;
    let node = scene.node(pool(handler, 1)).await;
    scene.until(id, StateName::Completed).await;
    let events = scene.store().read_events(id, EventQuery::default()).await.unwrap();
    let said: Vec<EventBody> = events.into_iter().map(|event| event.body).collect();
    assert_eq!(said, [EventBody::line("hello"), EventBody::Progress { done: 1, total: Some(2), note: None }]);
    node.drain(MAX_WAIT).await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_a_sentence() {
    let scene = Scene::new();
    let idle = || pool(Inline::new(), 1);
    let base = || NodeConfig::new("node", vec![idle()]);
    let short = LeaseTimes { ttl: Duration::from_secs(29), ..LeaseTimes::default() };
    let still = LeaseTimes { heartbeat: Duration::ZERO, ..LeaseTimes::default() };
    for (config, word) in [
        (NodeConfig { lease: short, ..base() }, "two heartbeats"),
        (NodeConfig { lease: still, ..base() }, "longer than zero"),
        (NodeConfig { pools: vec![PoolConfig { size: PoolSize::fixed(0), ..idle() }], ..base() }, "workers"),
        (
            NodeConfig { pools: vec![PoolConfig { worker_name: "a\nb".to_owned(), ..idle() }], ..base() },
            "worker_name",
        ),
        (NodeConfig { pools: vec![idle(), idle()], ..base() }, "same queue"),
    ] {
        let refused = Node::start(scene.parts(scene.store()), config).await.err().expect("it is refused");
        assert!(refused.to_string().contains(word), "{refused}");
    }
    assert!(scene.store().survey().await.unwrap().nodes.is_empty(), "nothing has joined");
}
