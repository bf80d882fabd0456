//! Lifecycle of a node: its state, and fencing.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::leases::{HeldLeases, StopReason};

/// The lifecycle state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It claims tasks.
    Running,
    /// It claims no more tasks and finishes those it has.
    Draining,
    /// It could not renew its leases, or was declared dead: it stops its work and rejoins with a new session.
    Fenced,
    /// It has shut down.
    Ended,
}

/// The lifecycle state and held leases of a node. Clones share the same state.
#[derive(Clone)]
pub(crate) struct NodeLifecycle {
    state: watch::Sender<NodeState>,
    pub(crate) held: HeldLeases,
    /// A drain was requested: the node does not rejoin when it is fenced.
    leaving: CancellationToken,
}

impl NodeLifecycle {
    pub(crate) fn new() -> Self {
        let state = watch::Sender::new(NodeState::Running);
        Self { state, held: HeldLeases::default(), leaving: CancellationToken::new() }
    }

    /// Waits until the session is lost or the node has ended.
    pub(crate) async fn lost(&self) {
        let is_lost = |state: &NodeState| matches!(state, NodeState::Fenced | NodeState::Ended);
        // The sender lives as long as `self`: the channel does not close.
        let _ = self.watch().wait_for(is_lost).await;
    }

    /// Cancelled when the node is to drain.
    pub(crate) fn leaving(&self) -> CancellationToken {
        self.leaving.clone()
    }

    /// A session begins: no leases are held yet.
    pub(crate) fn run(&self) {
        self.held.clear();
        self.go(NodeState::Fenced, NodeState::Running);
        if self.leaving.is_cancelled() {
            self.go(NodeState::Running, NodeState::Draining);
        }
    }

    /// Moves a fenced node that does not rejoin to draining.
    pub(crate) fn rest(&self) {
        self.go(NodeState::Fenced, NodeState::Draining);
    }

    fn go(&self, from: NodeState, to: NodeState) {
        self.state.send_if_modified(|state| {
            let goes = *state == from;
            if goes {
                *state = to;
            }
            goes
        });
    }

    pub(crate) fn now(&self) -> NodeState {
        *self.state.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<NodeState> {
        self.state.subscribe()
    }

    /// Stops claiming tasks.
    pub(crate) fn drain(&self) {
        self.leaving.cancel();
        self.go(NodeState::Running, NodeState::Draining);
    }

    /// Fences the node: its leases are lost or about to be, so no more tasks are claimed and running attempts are ended.
    /// The state changes first, so that a task claimed concurrently is either stopped here or sees the state.
    pub(crate) fn fence(&self) {
        self.state.send_if_modified(|state| {
            let lives = matches!(state, NodeState::Running | NodeState::Draining);
            if lives {
                *state = NodeState::Fenced;
            }
            lives
        });
        self.held.stop_all(StopReason::Lost);
    }

    /// Marks the node as ended.
    pub(crate) fn end(&self) {
        self.state.send_replace(NodeState::Ended);
    }
}
