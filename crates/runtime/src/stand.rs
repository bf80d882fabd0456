//! Where a node stands, and the fence.

use tokio::sync::watch;

use crate::held::{Held, Stop};

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It takes work.
    Running,
    /// It takes no more, and ends what it has.
    Draining,
    /// It could not renew its leases, or was found dead: it has stopped its work.
    Fenced,
    /// It is over.
    Ended,
}

/// Where a node stands, and what it holds. Clones are the same.
#[derive(Clone)]
pub(crate) struct Stand {
    state: watch::Sender<NodeState>,
    pub(crate) held: Held,
}

impl Stand {
    pub(crate) fn new() -> Self {
        Self { state: watch::Sender::new(NodeState::Running), held: Held::default() }
    }

    pub(crate) fn now(&self) -> NodeState {
        *self.state.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<NodeState> {
        self.state.subscribe()
    }

    /// No more work is taken, if the node runs.
    pub(crate) fn drain(&self) {
        self.state.send_if_modified(|state| {
            let running = *state == NodeState::Running;
            if running {
                *state = NodeState::Draining;
            }
            running
        });
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
        self.held.stop_all(Stop::Lost);
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.state.send_replace(NodeState::Ended);
    }
}
