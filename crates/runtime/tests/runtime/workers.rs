//! Worker lifecycle: workers die, are spent, fail to start, and are recycled on command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, MemoryPressure, WorkerId, WorkerState};
use ostler_exec::{AttemptResult, Control, Executor, Served, Vitals, Work, WorkerOpening};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, PoolSize, Prefetch};
use ostler_store::calls::QueueChange;
use ostler_store::node_commands::{CommandAnswer, NodeAnswer, NodeCommand, RecycleAnswer, WorkerChoice};
use ostler_store::views::{Counts, Survey};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUE: &str = "documents";

/// An executor whose workers live and die under the control of the test.
struct Mortal {
    /// How many of the first workers fail to start.
    fail_first: AtomicUsize,
    /// Open workers, each with the signal that ends it.
    open: Mutex<HashMap<WorkerId, Signal>>,
    opened: AtomicUsize,
    ran_on: Mutex<Vec<WorkerId>>,
    began: Signal,
    go: Signal,
    now: AtomicUsize,
    most: AtomicUsize,
    /// The result of an attempt, by its payload.
    how: fn(&str) -> AttemptResult,
}

impl Mortal {
    fn new(fail_first: usize, how: fn(&str) -> AttemptResult) -> Arc<Self> {
        Arc::new(Self {
            fail_first: AtomicUsize::new(fail_first),
            open: Mutex::default(),
            opened: AtomicUsize::new(0),
            ran_on: Mutex::default(),
            began: Signal::new("began"),
            go: Signal::new("go"),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            how,
        })
    }

    fn living(&self) -> Vec<WorkerId> {
        self.open.lock().unwrap().keys().copied().collect()
    }

    fn kill(&self, worker: WorkerId) {
        self.open.lock().unwrap()[&worker].emit();
    }
}

#[async_trait]
impl Executor for Mortal {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let left =
            self.fail_first.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            return WorkerOpening::Failed(Failure::new(ErrorClass::Crash, "no library"));
        }
        self.open.lock().unwrap().insert(worker, Signal::new("death"));
        WorkerOpening::Ready
    }

    async fn close(&self, worker: WorkerId) {
        self.open.lock().unwrap().remove(&worker);
    }

    async fn ended(&self, worker: WorkerId) -> Failure {
        let death = self.open.lock().unwrap()[&worker].clone();
        death.wait().await;
        Failure::new(ErrorClass::Crash, "it was killed")
    }

    fn abandon(&self, worker: WorkerId) {
        self.open.lock().unwrap().remove(&worker);
    }

    fn vitals(&self, worker: WorkerId) -> Vitals {
        let is_open = self.open.lock().unwrap().contains_key(&worker);
        Vitals { pid: is_open.then_some(4_711), memory_bytes: is_open.then_some(1 << 20) }
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        self.ran_on.lock().unwrap().push(work.worker);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        self.began.emit();
        let ended = tokio::select! {
            () = self.go.wait() => (self.how)(&work.payload),
            () = control.cancel.cancelled() => AttemptResult::cancelled(),
        };
        self.now.fetch_sub(1, Ordering::SeqCst);
        ended
    }
}

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
}

impl Scene {
    fn new() -> Self {
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(12)) }
    }

    fn config(&self, executor: &Arc<Mortal>, size: PoolSize) -> NodeConfig {
        let pool = PoolConfig::new(QUEUE, Arc::clone(executor) as Arc<dyn Executor>, 1);
        let pool = PoolConfig { size, prefetch: Prefetch::Off, grace: Duration::from_secs(2), ..pool };
        let millis = Duration::from_millis;
        let lease = LeaseTimes { ttl: millis(10_000), heartbeat: millis(200), poll: millis(50) };
        NodeConfig { lease, maintenance: millis(20), ..NodeConfig::new("node", vec![pool]) }
    }

    async fn start(&self, config: NodeConfig) -> Node {
        let ids = Arc::clone(&self.ids);
        let ids = Arc::new(move || ids.task().0);
        let parts = NodeDeps { store: self.here.store(), clock: Arc::new(SystemClock), ids };
        Node::start(parts, config).await.expect("the node starts")
    }

    async fn node(&self, executor: &Arc<Mortal>, size: PoolSize) -> Node {
        self.start(self.config(executor, size)).await
    }

    async fn add(&self, count: usize) {
        let tasks = self.ids.new_tasks(count, QUEUE, "read");
        self.here.store().enqueue(tasks).await.expect("they are enqueued");
    }

    async fn survey(&self) -> Survey {
        self.here.store().survey().await.expect("the store answers")
    }

    async fn until(&self, what: &str, holds: impl Fn(&Survey) -> bool) -> Survey {
        let began = Instant::now();
        loop {
            let survey = self.survey().await;
            if holds(&survey) {
                return survey;
            }
            assert!(began.elapsed() < MAX_WAIT, "not in time: {what}, but {survey:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn recycle(&self, node: &Node, who: WorkerChoice) -> RecycleAnswer {
        let command = NodeCommand::Recycle { pool: QUEUE.into(), who };
        let CommandAnswer::Given { number } =
            self.here.store().command(node.session(), command).await.unwrap()
        else {
            panic!("there is such a node")
        };
        let answered =
            |survey: &Survey| survey.nodes[0].replies.iter().find(|answer| answer.number == number).cloned();
        let survey = self.until("an answer", |survey| answered(survey).is_some()).await;
        match answered(&survey).expect("it was there").answer {
            NodeAnswer::Recycle(answer) => answer,
            NodeAnswer::Resume(answer) => panic!("{answer:?} is for another command"),
        }
    }
}

fn counts(survey: &Survey) -> Counts {
    survey.lanes.first().map(|lane| lane.counts).unwrap_or_default()
}

fn idle(survey: &Survey) -> usize {
    survey.workers.iter().filter(|record| record.worker.state == WorkerState::Idle).count()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < MAX_WAIT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn well(_: &str) -> AttemptResult {
    AttemptResult::success(None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_while_it_is_idle_is_replaced_by_one_with_another_name() {
    let scene = Scene::new();
    let mortal = Mortal::new(0, well);
    mortal.go.emit();
    let node = scene.node(&mortal, PoolSize::fixed(2)).await;
    // Workers that have run something are proved usable: no backoff follows.
    scene.add(8).await;
    scene.until("all are done", |survey| counts(survey).completed == 8 && idle(survey) == 2).await;
    let before = mortal.living();
    mortal.kill(before[0]);
    until("another one is there", || {
        let now = mortal.living();
        now.len() == 2 && !now.contains(&before[0]) && now.contains(&before[1])
    })
    .await;
    scene.add(8).await;
    scene.until("all are done", |survey| counts(survey).completed == 16).await;
    assert!(node.troubles().is_empty());
    node.drain(MAX_WAIT).await;
    assert_eq!(mortal.living(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_spent_or_died_is_replaced_and_its_result_counts() {
    let scene = Scene::new();
    for fate in [(|_| AttemptResult::success(None).spent()) as fn(&str) -> AttemptResult, |_| {
        AttemptResult::success(None).dead()
    }] {
        let mortal = Mortal::new(0, fate);
        mortal.go.emit();
        let before = counts(&scene.survey().await).completed;
        let node = scene.node(&mortal, PoolSize::fixed(1)).await;
        scene.add(6).await;
        scene.until("all are done", |survey| counts(survey).completed == before + 6).await;
        let mut ran_on = mortal.ran_on.lock().unwrap().clone();
        ran_on.sort();
        ran_on.dedup();
        assert_eq!(ran_on.len(), 6, "each ran on a worker of its own");
        node.drain(MAX_WAIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_die_at_their_start_again_and_again_pause_the_queue_until_it_is_resumed() {
    let scene = Scene::new();
    let mortal = Mortal::new(100, well);
    mortal.go.emit();
    scene.add(1).await;
    let node = scene.node(&mortal, PoolSize::fixed(2)).await;
    let paused = |survey: &Survey| survey.queues.first().and_then(|queue| queue.settings.paused.clone());
    let survey = scene.until("the queue is paused", |survey| paused(survey).is_some()).await;
    assert_eq!(paused(&survey).as_deref(), Some("its workers fail to start: no library"));
    assert_eq!(node.troubles(), ["no library"]);
    let tried = mortal.opened.load(Ordering::SeqCst);
    assert!(tried <= 10, "{tried} tries: it rests in between, and then gives up");
    assert_eq!(counts(&survey).queued, 1, "the task waits, and has not failed");

    mortal.fail_first.store(0, Ordering::SeqCst);
    scene.here.store().configure(QUEUE, vec![QueueChange::Resume]).await.unwrap();
    scene.until("it is done", |survey| counts(survey).completed == 1).await;
    assert_eq!(mortal.opened.load(Ordering::SeqCst), tried + 2, "nothing was tried meanwhile");
    assert!(node.troubles().is_empty());
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_come_up_and_die_at_once_pause_the_queue_too() {
    let scene = Scene::new();
    let mortal = Mortal::new(0, well);
    let node = scene.node(&mortal, PoolSize::fixed(1)).await;
    let killer = {
        let mortal = Arc::clone(&mortal);
        tokio::spawn(async move {
            loop {
                mortal.living().into_iter().for_each(|worker| mortal.kill(worker));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    let survey = scene
        .until("the queue is paused", |survey| {
            survey.queues.first().is_some_and(|queue| queue.settings.paused.is_some())
        })
        .await;
    assert!(survey.queues[0].settings.paused.as_ref().is_some_and(|why| why.contains("it was killed")));
    killer.abort();
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_memory_is_tight_no_worker_is_added_and_tasks_run_one_at_a_time() {
    let scene = Scene::new();
    let mortal = Mortal::new(0, well);
    let tight = Arc::new(AtomicBool::new(true));
    let gauge = Arc::clone(&tight);
    let memory =
        Arc::new(
            move || if gauge.load(Ordering::SeqCst) { MemoryPressure::Tight } else { MemoryPressure::Free },
        );
    let config = scene.config(&mortal, PoolSize::between(2, 6));
    let node = scene.start(NodeConfig { memory, ..config }).await;
    until("the minimum comes all the same", || mortal.living().len() == 2).await;
    scene.add(10).await;
    mortal.began.wait().await;
    scene.until("the others stay free for others", |survey| counts(survey).queued == 9).await;
    assert_eq!(mortal.now.load(Ordering::SeqCst), 1);
    tight.store(false, Ordering::SeqCst);
    mortal.began.wait_for(6).await;
    mortal.go.emit();
    scene.until("all are done", |survey| counts(survey).completed == 10).await;
    assert_eq!(mortal.most.load(Ordering::SeqCst), 6);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_workers_are_recycled_by_order_and_busy_ones_stay() {
    let scene = Scene::new();
    let mortal = Mortal::new(0, well);
    let node = scene.node(&mortal, PoolSize::fixed(3)).await;
    scene.add(1).await;
    mortal.began.wait().await;
    let ready = |survey: &Survey| idle(survey) == 2 && survey.workers.len() == 3;
    scene.until("one is busy, two are idle", ready).await;
    let busy = mortal.ran_on.lock().unwrap()[0];
    let others: Vec<WorkerId> = mortal.living().into_iter().filter(|worker| *worker != busy).collect();

    let refused = scene.recycle(&node, WorkerChoice::One(busy)).await;
    assert_eq!((refused.recycled, refused.busy), (vec![], vec![busy]));
    let one = scene.recycle(&node, WorkerChoice::One(others[0])).await;
    assert_eq!((one.recycled, one.busy), (vec![others[0]], vec![]));
    scene.until("another one took its place", ready).await;
    assert!(!mortal.living().contains(&others[0]) && mortal.living().contains(&others[1]));
    let any = scene.recycle(&node, WorkerChoice::Any).await;
    assert_eq!(any.recycled, [others[1]], "the one that has been idle longest");
    scene.until("another one took its place", ready).await;
    let all = scene.recycle(&node, WorkerChoice::All).await;
    assert_eq!((all.recycled.len(), all.busy), (2, vec![busy]));
    let none = scene.recycle(&node, WorkerChoice::One(others[0])).await;
    assert_eq!((none.recycled, none.busy), (vec![], vec![]), "it is not there any more");

    mortal.go.emit();
    scene.until("the busy one ended its task", |survey| counts(survey).completed == 1).await;
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_records_of_workers_have_their_pid_and_memory() {
    let scene = Scene::new();
    let mortal = Mortal::new(0, well);
    let node = scene.node(&mortal, PoolSize::fixed(1)).await;
    scene.add(1).await;
    mortal.began.wait().await;
    let survey = scene
        .until("it is reported", |survey| {
            survey.workers.first().is_some_and(|record| record.worker.task.is_some())
        })
        .await;
    let worker = &survey.workers[0].worker;
    assert_eq!((worker.pid, worker.memory_bytes), (Some(4_711), Some(1 << 20)));
    assert_eq!(worker.state, WorkerState::Busy);
    mortal.go.emit();
    node.drain(MAX_WAIT).await;
}
