//! Telemetry of a node: its `tracing` events and its counters, as a subscriber sees them.

mod capture;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{
    Backoff, BreakerPolicy, ErrorClass, Failure, Jitter, Overrides, StateName, TaskId, Trip, WorkerId,
    WorkerState,
};
use ostler_exec::{
    AttemptResult, Control, Executor, Inline, Served, TaskError, ThreadPolicy, Threads, Work, WorkerOpening,
};
use ostler_runtime::{AttemptOutcome, LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, Prefetch};
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::node_commands::{NodeCommand, WorkerChoice};
use ostler_store::views::{Survey, TaskRef};
use ostler_store::{Store as _, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, TempStore};
use tracing::Level;
use tracing::instrument::WithSubscriber as _;
use tracing::level_filters::LevelFilter;

use capture::{Capture, Fields};

const QUEUE: &str = "documents";
const KIND: &str = "read";

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
    seen: Capture,
}

impl Scene {
    fn new(up_to: LevelFilter) -> Self {
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(31)), seen: Capture::new(up_to) }
    }

    async fn node(&self, executor: Arc<dyn Executor>, settings: Vec<QueueChange>) -> Node {
        let ids = Arc::clone(&self.ids);
        let parts = NodeDeps {
            store: self.here.store(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(move || ids.task().0),
        };
        let millis = Duration::from_millis;
        let lease = LeaseTimes { ttl: millis(20_000), heartbeat: millis(100), poll: millis(200) };
        let pool = PoolConfig {
            grace: millis(100),
            prefetch: Prefetch::Off,
            settings,
            ..PoolConfig::new(QUEUE, executor, 1)
        };
        let config = NodeConfig { lease, maintenance: millis(20), ..NodeConfig::new("anna", vec![pool]) };
        let starting = Node::start(parts, config).with_subscriber(self.seen.dispatch());
        starting.await.expect("the node starts")
    }

    async fn add(&self, payload: &str) -> TaskId {
        let task = NewTask { payload: payload.to_owned(), ..self.ids.new_task(QUEUE, KIND) };
        let id = task.id;
        self.here.store().enqueue(vec![task]).await.expect("it is enqueued");
        id
    }

    /// Waits until the survey of the store is as wanted.
    async fn until(&self, what: &str, holds: impl Fn(&Survey) -> bool) {
        let began = std::time::Instant::now();
        loop {
            let survey = self.here.store().survey().await.expect("the store answers");
            if holds(&survey) {
                return;
            }
            assert!(began.elapsed() < MAX_WAIT, "not in time: {what}, but {survey:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Three attempts, with the same delay before each.
fn three_attempts(delay: Duration) -> QueueChange {
    QueueChange::Overrides(Overrides {
        attempts: Some(3),
        backoff: Some(Backoff::Fixed),
        base: Some(delay),
        jitter: Some(Jitter::Off),
        ..Overrides::NONE
    })
}

/// A handler that fails this often, and then succeeds.
fn fails_first(times: u32) -> Arc<dyn Executor> {
    let left = Arc::new(AtomicU32::new(times));
    Arc::new(Inline::new().handle(KIND, move |_, _| {
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        async move { if fails { Err(TaskError::transient("no route")) } else { Ok(None) } }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_of_a_task_is_told_with_its_backoff_and_the_end_with_its_retries() {
    let scene = Scene::new(LevelFilter::DEBUG);
    let node = scene.node(fails_first(2), vec![three_attempts(Duration::from_millis(20))]).await;
    let id = scene.add("1").await;
    let completed = scene.seen.wait("task.completed").await;
    assert_eq!(completed.get("message"), "task completed after 2 retries");
    assert_eq!((completed.get("retries"), completed.get("attempt")), ("2", "3"));
    let events: Vec<_> =
        scene.seen.all().into_iter().filter(|seen| seen.get("task") == id.to_string()).collect();
    let names: Vec<&str> = events.iter().map(|seen| seen.name).collect();
    let [started, retried] = ["task.started", "task.retried"];
    assert_eq!(names, [started, retried, started, retried, started, "task.completed"]);
    for seen in &events {
        assert_eq!(seen.target, "ostler::task");
        assert_eq!((seen.get("queue"), seen.get("kind"), seen.get("node")), (QUEUE, KIND, "anna"));
        assert!(!seen.get("worker").is_empty());
    }
    let retried = &events[1];
    assert_eq!(retried.level, Level::WARN);
    assert_eq!((retried.get("backoff_ms"), retried.get("class")), ("20", "transient"));
    assert_eq!((retried.get("error"), retried.get("attempt")), ("no route", "1"));
    assert_eq!(retried.get("message"), "task failed; it is retried in 20ms");
    assert!(retried.get("duration_ms").parse::<u64>().is_ok(), "{retried:?}");
    let found = node.telemetry().counters();
    let [lane] = found.lanes.as_slice() else { panic!("{found:?}") };
    assert_eq!((lane.queue.as_str(), lane.kind.as_str(), lane.started), (QUEUE, KIND, 3));
    assert_eq!((lane.ended(AttemptOutcome::Retried), lane.ended(AttemptOutcome::Completed)), (2, 1));
    assert_eq!((lane.took.count(), lane.waited.count()), (3, 1), "it waited once for its first attempt");
    let [pool] = found.pools.as_slice() else { panic!("{found:?}") };
    assert_eq!((pool.claimed, found.store_errors), (3, 0));
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_one_line_and_a_subscriber_of_failures_hears_nothing_else_of_tasks() {
    let scene = Scene::new(LevelFilter::WARN);
    let executor = Inline::new().handle(KIND, |payload, _| async move {
        if payload == "1" { Err(TaskError::permanent("no such page")) } else { Ok(None) }
    });
    let node = scene.node(Arc::new(executor), Vec::new()).await;
    let good = scene.add("0").await;
    scene.add("1").await;
    let failed = scene.seen.wait("task.failed").await;
    assert_eq!(
        (failed.level, failed.get("class"), failed.get("error")),
        (Level::WARN, "permanent", "no such page")
    );
    assert_eq!(failed.get("message"), "task failed and is a dead letter now");
    node.drain(MAX_WAIT).await;
    let shown = scene.here.store().show(TaskRef::Id(good)).await.unwrap().expect("it is there");
    assert_eq!(shown.task.state.name(), StateName::Completed);
    let names: Vec<&str> = scene.seen.all().iter().map(|seen| seen.name).collect();
    assert_eq!(names, ["task.failed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_and_its_pools_are_told_from_start_to_stop() {
    let scene = Scene::new(LevelFilter::INFO);
    let node = scene.node(fails_first(0), Vec::new()).await;
    let session = node.session().to_string();
    node.drain(MAX_WAIT).await;
    let all = scene.seen.all();
    let names: Vec<&str> = all.iter().map(|seen| seen.name).collect();
    assert_eq!(names, ["node.started", "pool.started", "node.draining", "pool.stopped", "node.stopped"]);
    assert!(all.iter().all(|seen| seen.get("node") == "anna" && seen.level == Level::INFO), "{all:#?}");
    assert_eq!((all[0].target, all[0].get("session")), ("ostler::node", session.as_str()));
    assert_eq!((all[1].target, all[1].get("queue")), ("ostler::pool", QUEUE));
    assert_eq!(all[2].get("message"), "draining: waiting up to 30s for 0 running tasks");
    assert_eq!(all[4].get("message"), "stopped: 0 tasks finished while it drained, 0 returned to the queue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loses_its_leases_says_so_and_that_it_is_back() {
    let scene = Scene::new(LevelFilter::INFO);
    let node = scene.node(fails_first(0), Vec::new()).await;
    scene.here.store().kill(node.session());
    let rejoined = scene.seen.wait("node.rejoined").await;
    assert_eq!(scene.seen.named("node.fenced")[0].level, Level::WARN);
    assert_eq!(rejoined.get("session"), node.session().to_string());
    assert_eq!(node.telemetry().counters().fenced, 1);
    node.drain(MAX_WAIT).await;
}

/// Workers that do not start before one does: for more than a second, the pool has trouble.
const NOT_STARTED: u32 = 4;

/// An executor whose workers end as the payload says; the first ones do not start.
#[derive(Default)]
struct Fragile {
    opened: AtomicU32,
}

#[async_trait]
impl Executor for Fragile {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn open(&self, _worker: WorkerId) -> WorkerOpening {
        if self.opened.fetch_add(1, Ordering::SeqCst) < NOT_STARTED {
            return WorkerOpening::Failed(Failure::new(ErrorClass::Crash, "no library"));
        }
        WorkerOpening::Ready
    }

    async fn run(&self, work: Work, _control: Control) -> AttemptResult {
        match work.payload.as_str() {
            "\"crash\"" => AttemptResult::failed_with(ErrorClass::Crash, "killed by signal 9").dead(),
            "\"stuck\"" => AttemptResult::failed_with(ErrorClass::Stuck, "did nothing").dead(),
            "\"deaf\"" => AttemptResult::too_long(work.timeout).unresponsive(),
            _ => AttemptResult::success(None).spent(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fate_of_workers_is_told() {
    let scene = Scene::new(LevelFilter::DEBUG);
    let once = Overrides { attempts: Some(1), ..Overrides::NONE };
    let node = scene.node(Arc::new(Fragile::default()), vec![QueueChange::Overrides(once)]).await;
    for (payload, name) in [
        ("\"spent\"", "worker.recycled"),
        ("\"crash\"", "worker.crashed"),
        ("\"stuck\"", "worker.stuck"),
        ("\"deaf\"", "worker.stalled"),
    ] {
        scene.add(payload).await;
        let seen = scene.seen.wait(name).await;
        assert_eq!((seen.target, seen.get("queue")), ("ostler::pool", QUEUE));
        assert!(!seen.get("worker").is_empty());
    }
    let trouble = scene.seen.wait("pool.trouble").await;
    assert_eq!((trouble.level, trouble.get("error")), (Level::WARN, "no library"));
    let found = node.telemetry().counters();
    let [pool] = found.pools.as_slice() else { panic!("{found:?}") };
    let counted = [pool.workers_recycled, pool.workers_crashed, pool.workers_stuck, pool.workers_stalled];
    assert_eq!((pool.failed_starts, counted), (NOT_STARTED.into(), [1; 4]), "{pool:?}");
    node.drain(MAX_WAIT).await;
}

/// An executor whose worker dies when it runs all of the tasks that it takes.
struct Crowd {
    running: Arc<tokio::sync::Barrier>,
}

const CROWD: usize = 3;

#[async_trait]
impl Executor for Crowd {
    fn served(&self) -> Served {
        Served::Any
    }

    fn per_worker(&self) -> usize {
        CROWD
    }

    fn slots(&self, _worker: WorkerId) -> usize {
        CROWD
    }

    async fn run(&self, work: Work, _control: Control) -> AttemptResult {
        if work.attempt > 1 {
            return AttemptResult::success(None);
        }
        self.running.wait().await;
        AttemptResult::worker_died()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_with_several_tasks_is_told_once() {
    let scene = Scene::new(LevelFilter::WARN);
    let crowd = Crowd { running: Arc::new(tokio::sync::Barrier::new(CROWD)) };
    let node = scene.node(Arc::new(crowd), Vec::new()).await;
    for _ in 0..CROWD {
        scene.add("1").await;
    }
    let crashed = scene.seen.wait("worker.crashed").await;
    assert_eq!(crashed.get("error"), "it died while it ran several tasks, which are run again");
    let completed = |survey: &Survey| survey.lanes.first().map_or(0, |lane| lane.counts.completed);
    scene.until("all were run again", |survey| completed(survey) == CROWD as u64).await;
    assert_eq!(scene.seen.named("worker.crashed").len(), 1);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_asked_to_go_is_told() {
    let scene = Scene::new(LevelFilter::DEBUG);
    let node = scene.node(fails_first(0), Vec::new()).await;
    let started = scene.seen.wait("worker.started").await;
    // A worker that has started is busy until it has asked for its first task, and busy workers stay.
    let is_idle =
        |survey: &Survey| survey.workers.iter().any(|record| record.worker.state == WorkerState::Idle);
    scene.until("a worker is idle", is_idle).await;
    let all = NodeCommand::Recycle { pool: QUEUE.to_owned(), who: WorkerChoice::All };
    scene.here.store().command(node.session(), all).await.expect("the store answers");
    assert_eq!(scene.seen.wait("worker.recycled").await.get("worker"), started.get("worker"));
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_is_told_when_it_opens_and_when_it_closes() {
    let scene = Scene::new(LevelFilter::INFO);
    let policy = BreakerPolicy { trip: Trip::Consecutive(2), reset: Duration::from_millis(100) };
    let breaker = BreakerSetting { policy, scope: BreakerScope::Queue };
    let settings = vec![three_attempts(Duration::from_millis(1)), QueueChange::Breaker(Some(breaker))];
    let (open, gate) = tokio::sync::watch::channel(false);
    let fails = Arc::new(AtomicU32::new(2));
    let executor = Inline::new().handle(KIND, move |_, _| {
        let (fails, mut gate) = (Arc::clone(&fails), gate.clone());
        async move {
            if fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(TaskError::transient("away"));
            }
            // The breaker is half open until the test has seen it.
            let _ = gate.wait_for(|open| *open).await;
            Ok(None)
        }
    });
    let node = scene.node(Arc::new(executor), settings).await;
    scene.add("1").await;
    let opened = scene.seen.wait("breaker.opened").await;
    assert_eq!((opened.level, opened.get("queue")), (Level::WARN, QUEUE));
    open.send_replace(true);
    assert_eq!(scene.seen.wait("breaker.closed").await.get("queue"), QUEUE);
    assert_eq!(scene.seen.named("breaker.opened").len(), 1);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_the_owner_of_a_node_submits_are_told_and_counted_once() {
    let scene = Scene::new(LevelFilter::DEBUG);
    let node = scene.node(fails_first(0), Vec::new()).await;
    let tasks = scene.ids.new_tasks(2, QUEUE, KIND);
    for _ in 0..2 {
        let store = scene.here.store();
        node.telemetry().enqueue(store.as_ref(), tasks.clone()).await.expect("they are enqueued");
    }
    let told: Vec<String> =
        scene.seen.named("task.submitted").iter().map(|seen| seen.get("task").to_owned()).collect();
    assert_eq!(told, [tasks[0].id.to_string(), tasks[1].id.to_string()], "the second time, they were there");
    assert_eq!(node.telemetry().counters().lanes[0].submitted, 2);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_runs_in_the_span_of_its_attempt() {
    for threads in [None, Some(Threads::start(ThreadPolicy::for_cores(1)).expect("there are threads"))] {
        let scene = Scene::new(LevelFilter::INFO);
        let found: Arc<Mutex<Option<Fields>>> = Arc::default();
        let (seen, keep) = (scene.seen.clone(), Arc::clone(&found));
        let look = move || {
            *keep.lock().unwrap() = seen.current_span();
            Ok::<Option<String>, TaskError>(None)
        };
        let executor: Arc<dyn Executor> = match threads {
            None => Arc::new(Inline::new().handle(KIND, move |_, _| {
                let look = look.clone();
                async move { look() }
            })),
            Some(threads) => Arc::new(threads.handle(KIND, move |_, _| {
                let look = look.clone();
                async move { look() }
            })),
        };
        let node = scene.node(executor, Vec::new()).await;
        let id = scene.add("1").await;
        let is_done = async {
            while found.lock().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, is_done).await.expect("the handler is in a span");
        let span = found.lock().unwrap().take().expect("it is there");
        assert_eq!((span["task"].as_str(), span["attempt"].as_str()), (id.to_string().as_str(), "1"));
        assert_eq!(
            (span["queue"].as_str(), span["kind"].as_str(), span["node"].as_str()),
            (QUEUE, KIND, "anna")
        );
        node.drain(MAX_WAIT).await;
    }
}
