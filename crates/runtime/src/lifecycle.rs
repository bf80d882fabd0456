//! Where a node stands, and the fence.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::leases::{HeldLeases, StopReason};

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It takes work.
    Running,
    /// It takes no more, and ends what it has.
    Draining,
    /// It could not renew its leases, or was found dead: it stops its work, and comes back with a new session.
    Fenced,
    /// It is over.
    Ended,
}

/// Where a node stands, and what it holds. Clones are the same.
#[derive(Clone)]
pub(crate) struct NodeLifecycle {
    state: watch::Sender<NodeState>,
    pub(crate) held: HeldLeases,
    /// Somebody wants the node to drain: it does not come back when it is fenced.
    leaving: CancellationToken,
}

impl NodeLifecycle {
    pub(crate) fn new() -> Self {
        let state = watch::Sender::new(NodeState::Running);
        Self { state, held: HeldLeases::default(), leaving: CancellationToken::new() }
    }

    /// Waits until the session is lost, or the node is over.
    pub(crate) async fn lost(&self) {
        let is_lost = |state: &NodeState| matches!(state, NodeState::Fenced | NodeState::Ended);
        // The sender is here: it does not close.
        let _ = self.watch().wait_for(is_lost).await;
    }

    /// Cancelled when the node is to drain.
    pub(crate) fn leaving(&self) -> CancellationToken {
        self.leaving.clone()
    }

    /// A term begins: nothing is held yet.
    pub(crate) fn run(&self) {
        self.held.clear();
        self.go(NodeState::Fenced, NodeState::Running);
        if self.leaving.is_cancelled() {
            self.go(NodeState::Running, NodeState::Draining);
        }
    }

    /// Fenced, and it does not come back: there is nothing left to do but to end.
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

    /// No more work is taken.
    pub(crate) fn drain(&self) {
        self.leaving.cancel();
        self.go(NodeState::Running, NodeState::Draining);
    }

    /// The leases are lost, or about to be: no more work is taken, and what runs is ended. The state comes first, so that what
    /// is claimed at this moment is either told here or sees it.
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

    /// It is over.
    pub(crate) fn end(&self) {
        self.state.send_replace(NodeState::Ended);
    }
}
