//! Drains that are taken back: by command and by the owner of the node, until they are final.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{SessionId, StateName, TaskId, WorkerId};
use ostler_exec::Inline;
use ostler_runtime::{
    DrainWait, Drained, LeaseTimes, Node, NodeConfig, NodeDeps, NodeHandle, NodeState, PoolConfig,
};
use ostler_store::node_commands::{CommandAnswer, NodeAnswer, NodeCommand, ResumeAnswer};
use ostler_store::views::TaskRef;
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

const QUEUE: &str = "documents";
const KIND: &str = "read";
/// How often a condition without a signal is polled.
const LOOK: Duration = Duration::from_millis(5);

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
    began: Signal,
    go: Signal,
}

impl Scene {
    fn new() -> Self {
        let (began, go) = (Signal::new("began"), Signal::new("go"));
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(11)), began, go }
    }

    /// A node with one worker, whose tasks signal that they began and wait for `go`.
    async fn node(&self) -> Node {
        let (emits, waits) = (self.began.clone(), self.go.clone());
        let handler = Inline::new().handle(KIND, move |_, _| {
            emits.emit();
            let waits = waits.clone();
            async move {
                waits.wait().await;
                Ok(None)
            }
        });
        let lease = LeaseTimes {
            ttl: Duration::from_secs(10),
            heartbeat: Duration::from_millis(200),
            poll: Duration::from_secs(30),
        };
        let pool = PoolConfig::new(QUEUE, Arc::new(handler), 1);
        let ids = Arc::clone(&self.ids);
        let parts = NodeDeps {
            store: self.here.store(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(move || ids.task().0),
        };
        let config = NodeConfig { lease, ..NodeConfig::new("node", vec![pool]) };
        Node::start(parts, config).await.expect("the node starts")
    }

    async fn add(&self) -> TaskId {
        let task = self.ids.new_task(QUEUE, KIND);
        let id = task.id;
        self.here.store().enqueue(vec![task]).await.expect("it is enqueued");
        id
    }

    async fn state(&self, id: TaskId) -> StateName {
        let shown = self.here.store().show(TaskRef::Id(id)).await.expect("the store answers");
        shown.expect("the task is there").task.state.name()
    }

    async fn until_completed(&self, id: TaskId) {
        let looking = async {
            while self.state(id).await != StateName::Completed {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, looking).await.expect("it completes");
    }

    /// The workers that the node has reported, once there is one.
    async fn workers(&self) -> Vec<WorkerId> {
        let looking = async {
            loop {
                let workers = self.here.store().survey().await.expect("the store answers").workers;
                if !workers.is_empty() {
                    return workers.into_iter().map(|record| record.worker.id).collect();
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, looking).await.expect("there is a worker")
    }

    async fn command(&self, node: SessionId, command: NodeCommand) -> u64 {
        match self.here.store().command(node, command).await.expect("the store answers") {
            CommandAnswer::Given { number } => number,
            CommandAnswer::NoSuchNode => panic!("there is such a node"),
        }
    }

    /// Asks the node to resume, and waits for its answer.
    async fn resume(&self, node: SessionId) -> NodeAnswer {
        let number = self.command(node, NodeCommand::Resume).await;
        let looking = async {
            loop {
                let nodes = self.here.store().survey().await.expect("the store answers").nodes;
                let asked =
                    nodes.into_iter().find(|record| record.session == node).expect("the node is there");
                if let Some(reply) = asked.replies.into_iter().find(|reply| reply.number == number) {
                    return reply.answer;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, looking).await.expect("the node answers")
    }
}

async fn until(node: &NodeHandle, state: NodeState) {
    let mut states = node.state();
    let gets_there = states.wait_for(|now| *now == state);
    tokio::time::timeout(MAX_WAIT, gets_there).await.expect("it gets there").expect("the node is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_by_command_is_taken_back_and_the_same_worker_goes_on() {
    let scene = Scene::new();
    let running = scene.add().await;
    let node = scene.node().await;
    scene.began.wait().await;
    let before = scene.workers().await;
    scene.command(node.session(), NodeCommand::Drain).await;
    until(&node, NodeState::Draining).await;
    let queued = scene.add().await;
    let handle = node.handle();
    let waits = tokio::spawn(async move { handle.drained(MAX_WAIT).await });
    assert_eq!(scene.resume(node.session()).await, NodeAnswer::Resume(ResumeAnswer::Resumed));
    assert_eq!(*node.state().borrow(), NodeState::Running);
    assert_eq!(waits.await.unwrap(), DrainWait::TakenBack);
    assert_eq!(scene.resume(node.session()).await, NodeAnswer::Resume(ResumeAnswer::NotDraining));
    assert_eq!(scene.began.count(), 1, "the worker is busy");
    scene.go.emit();
    scene.until_completed(running).await;
    scene.until_completed(queued).await;
    assert_eq!(scene.workers().await, before, "no worker was closed");
    assert_eq!(
        node.drain(MAX_WAIT).await,
        Drained::default(),
        "what ended after the first drain is not counted"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_takes_nothing_new_until_it_is_taken_back() {
    let scene = Scene::new();
    let node = scene.node().await;
    let before = scene.workers().await;
    node.begin_drain();
    scene.go.emit();
    let task = scene.add().await;
    assert!(
        matches!(node.drained(MAX_WAIT).await, DrainWait::Over { left } if !left.is_zero()),
        "nothing runs"
    );
    assert_eq!(scene.began.count(), 0);
    assert_eq!(node.resume(), ResumeAnswer::Resumed);
    scene.until_completed(task).await;
    assert_eq!(scene.workers().await, before);
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_waits_has_a_bound_and_says_what_is_left_of_it() {
    let scene = Scene::new();
    let task = scene.add().await;
    let node = scene.node().await;
    scene.began.wait().await;
    node.begin_drain();
    assert_eq!(node.drained(Duration::ZERO).await, DrainWait::Over { left: Duration::ZERO });
    scene.go.emit();
    assert!(matches!(node.drained(MAX_WAIT).await, DrainWait::Over { left } if !left.is_zero()));
    assert_eq!(scene.state(task).await, StateName::Completed, "its outcome is written");
    assert_eq!(node.drain(MAX_WAIT).await, Drained { finished: 1, handed_back: 0 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_its_owner_drains_is_not_taken_back_by_command() {
    let scene = Scene::new();
    let task = scene.add().await;
    let node = scene.node().await;
    scene.began.wait().await;
    let (handle, session) = (node.handle(), node.session());
    let drains = tokio::spawn(node.drain(MAX_WAIT));
    until(&handle, NodeState::Draining).await;
    assert_eq!(scene.resume(session).await, NodeAnswer::Resume(ResumeAnswer::Stopping));
    scene.go.emit();
    assert_eq!(drains.await.unwrap(), Drained { finished: 1, handed_back: 0 });
    assert_eq!(scene.state(task).await, StateName::Completed);
    assert_eq!(handle.resume(), ResumeAnswer::Stopping, "it has ended");
}
