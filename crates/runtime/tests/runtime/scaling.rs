//! Scaling of pools, and opening and closing of workers, on a real embedded store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, StateName, TaskId, Worker, WorkerId, WorkerState};
use ostler_exec::{AttemptResult, Control, Executor, Served, Work, WorkerOpening};
use ostler_runtime::{
    Drained, LeaseTimes, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, PoolSize, Prefetch,
};
use ostler_store::calls::CancelAnswer;
use ostler_store::views::{Counts, TaskDetail, TaskRef};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUE: &str = "documents";
const KIND: &str = "read";

/// How the workers of the test start.
#[derive(Clone)]
enum Opening {
    Ready,
    /// The first N fail.
    FailFirst(usize),
    /// Not before the signal.
    Wait(Signal),
}

/// An executor that counts its workers, and whose attempts wait for a signal.
struct Gated {
    opening: Opening,
    opened: Mutex<Vec<WorkerId>>,
    closed: Mutex<Vec<WorkerId>>,
    ran_on: Mutex<Vec<WorkerId>>,
    began: Signal,
    go: Signal,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gated {
    fn new(opening: Opening) -> Arc<Self> {
        Arc::new(Self {
            opening,
            opened: Mutex::default(),
            closed: Mutex::default(),
            ran_on: Mutex::default(),
            began: Signal::new("began"),
            go: Signal::new("go"),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        })
    }

    fn open(&self) -> usize {
        self.opened.lock().unwrap().len() - self.closed.lock().unwrap().len()
    }
}

#[async_trait]
impl Executor for Gated {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        self.opened.lock().unwrap().push(worker);
        let tries = self.opened.lock().unwrap().len();
        match &self.opening {
            Opening::FailFirst(some) if tries <= *some => {
                WorkerOpening::Failed(Failure::new(ErrorClass::Permanent, "no such program"))
            }
            Opening::Ready | Opening::FailFirst(_) => WorkerOpening::Ready,
            Opening::Wait(signal) => {
                signal.wait().await;
                WorkerOpening::Ready
            }
        }
    }

    async fn close(&self, worker: WorkerId) {
        self.closed.lock().unwrap().push(worker);
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        self.ran_on.lock().unwrap().push(work.worker);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        self.began.emit();
        let ended = tokio::select! {
            () = self.go.wait() => AttemptResult::success(None),
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
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(11)) }
    }

    async fn node(&self, executor: &Arc<Gated>, size: PoolSize) -> Node {
        let pool = PoolConfig::new(QUEUE, Arc::clone(executor) as Arc<dyn Executor>, 1);
        self.start(PoolConfig { size, grace: Duration::from_secs(2), ..pool }).await
    }

    async fn start(&self, pool: PoolConfig) -> Node {
        let millis = Duration::from_millis;
        let lease = LeaseTimes { ttl: millis(10_000), heartbeat: millis(200), poll: millis(30_000) };
        let ids = Arc::clone(&self.ids);
        let ids = Arc::new(move || ids.task().0);
        let parts = NodeDeps { store: self.here.store(), clock: Arc::new(SystemClock), ids };
        let config = NodeConfig { lease, ..NodeConfig::new("node", vec![pool]) };
        Node::start(parts, config).await.expect("the node starts")
    }

    async fn add(&self, count: usize) -> Vec<TaskId> {
        let tasks = self.ids.new_tasks(count, QUEUE, KIND);
        let ids = tasks.iter().map(|task| task.id).collect();
        self.here.store().enqueue(tasks).await.expect("they are enqueued");
        ids
    }

    async fn show(&self, id: TaskId) -> TaskDetail {
        self.here.store().show(TaskRef::Id(id)).await.expect("the store answers").expect("it is there")
    }

    async fn counts(&self) -> Counts {
        let survey = self.here.store().survey().await.expect("the store answers");
        survey.lanes.first().map(|lane| lane.counts).unwrap_or_default()
    }

    /// The only worker, once it is in this state.
    async fn until_worker(&self, state: WorkerState) -> Worker {
        let began = Instant::now();
        loop {
            let workers = self.here.store().survey().await.expect("the store answers").workers;
            match workers.as_slice() {
                [record] if record.worker.state == state => return record.worker.clone(),
                other => assert!(began.elapsed() < MAX_WAIT, "not in time: {state:?}, but {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_counts(&self, what: &str, holds: impl Fn(&Counts) -> bool) {
        let began = Instant::now();
        loop {
            let counts = self.counts().await;
            if holds(&counts) {
                return;
            }
            assert!(began.elapsed() < MAX_WAIT, "not in time: {what}, but {counts:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Polls until the condition holds, for conditions without a signal.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < MAX_WAIT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn size(min: usize, max: usize, idle_timeout: Duration) -> PoolSize {
    PoolSize { idle_timeout, ..PoolSize::between(min, max) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_grows_at_once_to_its_maximum_never_above_and_shrinks_when_idle() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    let node = scene.node(&gated, size(2, 8, Duration::from_millis(300))).await;
    until("the minimum is there from the start", || gated.open() == 2).await;
    scene.add(20).await;
    // The poll interval is half a minute: only the load can make the pool grow.
    gated.began.wait_for(8).await;
    assert_eq!((node.running(), gated.open()), (8, 8));
    gated.go.emit();
    scene.until_counts("all are done", |counts| counts.completed == 20).await;
    assert_eq!(gated.most.load(Ordering::SeqCst), 8, "never more than the maximum at once");
    until("it shrinks to the minimum", || gated.open() == 2).await;
    let opened = gated.opened.lock().unwrap().clone();
    assert_eq!(opened.len(), 8, "each was opened once: no flapping");
    assert!(gated.ran_on.lock().unwrap().iter().all(|worker| opened.contains(worker)));
    node.drain(MAX_WAIT).await;
    assert_eq!(gated.open(), 0, "a drain closes all of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_shown_as_it_starts_waits_works_and_drains() {
    let scene = Scene::new();
    let open = Signal::new("open");
    let gated = Gated::new(Opening::Wait(open.clone()));
    let node = scene.node(&gated, PoolSize::fixed(1)).await;
    let starting = scene.until_worker(WorkerState::Starting).await;
    assert!(starting.started_at.millis() > 0 && starting.task.is_none());
    open.emit();
    scene.until_worker(WorkerState::Idle).await;
    let task = scene.add(1).await[0];
    gated.began.wait().await;
    let busy = scene.until_worker(WorkerState::Busy).await;
    assert_eq!((busy.id, busy.task.map(|(task, _)| task), busy.done), (starting.id, Some(task), 0));
    let drain = tokio::spawn(node.drain(MAX_WAIT));
    let draining = scene.until_worker(WorkerState::Draining).await;
    assert_eq!(draining.id, starting.id);
    gated.go.emit();
    drain.await.expect("it drains");
    let survey = scene.here.store().survey().await.expect("the store answers");
    assert!(survey.workers.is_empty(), "their records go with the node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_a_minimum_opens_a_worker_for_the_first_task() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    gated.go.emit();
    let node = scene.node(&gated, size(0, 4, Duration::from_secs(60))).await;
    scene.add(1).await;
    scene.until_counts("it is done", |counts| counts.completed == 1).await;
    assert_eq!(gated.open(), 1);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_tasks_than_ask_for_another_worker_stay_free_for_others() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    let patient = PoolSize { scale_up_at: 3, ..size(1, 4, Duration::from_secs(60)) };
    let node = scene.node(&gated, patient).await;
    scene.add(3).await;
    gated.began.wait().await;
    scene.until_counts("what finds no worker is not claimed", |counts| counts.queued == 2).await;
    assert_eq!(gated.open(), 1);
    gated.go.emit();
    scene.until_counts("the one worker does them all", |counts| counts.completed == 3).await;
    node.drain(MAX_WAIT).await;
}

/// The highest number of claims of a task, and the total number of attempts.
async fn claims_and_attempts(scene: &Scene, tasks: &[TaskId]) -> (u64, usize) {
    let (mut claims, mut attempts) = (0, 0);
    for id in tasks {
        let detail = scene.show(*id).await;
        claims = claims.max(detail.task.token);
        attempts += detail.attempts.len();
    }
    (claims, attempts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_grows_when_as_many_wait_as_ask_for_another_worker_though_no_claim_could_bring_them() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    let size = PoolSize { scale_up_at: 5, ..size(1, 4, Duration::from_secs(60)) };
    let node = scene.node(&gated, size).await;
    let mut tasks = scene.add(4).await;
    gated.began.wait().await;
    scene.until_counts("three wait", |counts| (counts.claimed, counts.queued) == (1, 3)).await;
    assert_eq!(gated.open(), 1, "three are too few");
    tasks.extend(scene.add(2).await);
    gated.began.wait_for(4).await;
    assert_eq!(gated.open(), 4);
    scene.until_counts("two wait", |counts| (counts.claimed, counts.queued) == (4, 2)).await;
    assert_eq!(claims_and_attempts(&scene, &tasks).await, (1, 0), "nothing was claimed to be handed back");
    gated.go.emit();
    scene.until_counts("all are done", |counts| counts.completed == 6).await;
    assert_eq!(claims_and_attempts(&scene, &tasks).await, (1, 6));
    assert_eq!(gated.opened.lock().unwrap().len(), 4);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_finds_a_backlog_at_its_start_grows_for_it() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    let tasks = scene.add(8).await;
    let size = PoolSize { scale_up_at: 5, ..size(1, 4, Duration::from_secs(60)) };
    let node = scene.node(&gated, size).await;
    gated.began.wait_for(4).await;
    assert_eq!(gated.open(), 4);
    gated.go.emit();
    scene.until_counts("all are done", |counts| counts.completed == 8).await;
    assert_eq!(claims_and_attempts(&scene, &tasks).await, (1, 8));
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_do_not_come_up_are_tried_again_with_pauses() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::FailFirst(3));
    gated.go.emit();
    scene.add(1).await;
    let began = Instant::now();
    let node = scene.node(&gated, PoolSize::fixed(1)).await;
    until("the first failure is reported", || node.troubles() == ["no such program"]).await;
    scene.until_counts("it is done", |counts| counts.completed == 1).await;
    assert_eq!(gated.opened.lock().unwrap().len(), 4, "once more after each pause");
    // 100 ms, then twice and four times as long.
    assert!(began.elapsed() >= Duration::from_millis(700), "it took {:?}", began.elapsed());
    assert!(node.troubles().is_empty(), "it works now");
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_an_opening_worker_is_cancelled_without_running_or_goes_back() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Wait(Signal::new("never")));
    let tasks = scene.add(2).await;
    let node = scene.node(&gated, size(0, 2, Duration::from_secs(60))).await;
    scene.until_counts("both wait for a worker", |counts| counts.claimed == 2).await;
    let answer = scene.here.store().cancel(vec![tasks[0]]).await.unwrap();
    assert_eq!(answer, [CancelAnswer::Requested]);
    scene.until_counts("it is cancelled", |counts| counts.cancelled == 1).await;
    assert_eq!(node.drain(MAX_WAIT).await, Drained::default(), "nothing ran");
    for (id, state) in [(tasks[0], StateName::Cancelled), (tasks[1], StateName::Queued)] {
        let detail = scene.show(id).await;
        assert_eq!((detail.task.state.name(), detail.task.runs, detail.attempts.len()), (state, 0, 0));
    }
    assert_eq!((gated.began.count(), gated.open()), (0, 0), "also those that never came up are closed");
}

/// A pool whose runs are short until a task waits for the signal.
async fn prefetching(scene: &Scene, gated: &Arc<Gated>, short: u64, prefetch: Prefetch) -> Node {
    struct ShortFirst(Arc<Gated>, u64);
    #[async_trait]
    impl Executor for ShortFirst {
        fn served(&self) -> Served {
            Served::Any
        }
        async fn run(&self, work: Work, control: Control) -> AttemptResult {
            if self.0.began.count() < self.1 {
                self.0.began.emit();
                return AttemptResult::success(None);
            }
            self.0.run(work, control).await
        }
    }
    let executor = Arc::new(ShortFirst(Arc::clone(gated), short));
    let pool = PoolConfig::new(QUEUE, executor, 1);
    scene.start(PoolConfig { prefetch, grace: Duration::from_secs(2), ..pool }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_claimed_ahead_goes_back_when_the_work_turns_out_to_be_long() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    let tasks = scene.add(31).await;
    let node = prefetching(&scene, &gated, 20, Prefetch::UpTo(16)).await;
    gated.began.wait_for(21).await;
    scene.until_counts("ten are free for others", |counts| counts.queued == 10 && counts.claimed <= 1).await;
    for id in &tasks[21..] {
        assert_eq!(scene.show(*id).await.task.runs, 0, "as if nothing had happened");
    }
    gated.go.emit();
    scene.until_counts("all are done", |counts| counts.completed == 31).await;
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_claimed_ahead_goes_back_at_a_drain() {
    let scene = Scene::new();
    let gated = Gated::new(Opening::Ready);
    let tasks = scene.add(31).await;
    let node = prefetching(&scene, &gated, 20, Prefetch::UpTo(16)).await;
    gated.began.wait_for(21).await;
    let mut state = node.state();
    let draining = tokio::spawn(node.drain(MAX_WAIT));
    state.wait_for(|state| *state == NodeState::Draining).await.unwrap();
    scene.until_counts("the rest is free", |counts| counts.queued == 10).await;
    gated.go.emit();
    assert_eq!(draining.await.unwrap(), Drained { finished: 1, handed_back: 0 });
    for id in &tasks[21..] {
        let task = scene.show(*id).await.task;
        assert_eq!((task.state.name(), task.runs, task.failures), (StateName::Queued, 0, 0));
    }
    assert_eq!(scene.counts().await.completed, 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_of_claimed_tasks_counts_those_that_run() {
    for most in [1, 4] {
        let scene = Scene::new();
        let gated = Gated::new(Opening::Ready);
        scene.add(31).await;
        let node = prefetching(&scene, &gated, 20, Prefetch::Within(most)).await;
        gated.began.wait_for(21).await;
        // Ends that are not stored yet would count as claimed, and so does a start.
        scene.until_counts("the short ones are stored", |counts| counts.completed == 20).await;
        let counts = scene.counts().await;
        let held = counts.claimed + counts.running;
        assert!(held <= most as u64, "{held} are claimed or run, within {most}");
        gated.go.emit();
        scene.until_counts("all are done", |counts| counts.completed == 31).await;
        node.drain(MAX_WAIT).await;
    }
}
