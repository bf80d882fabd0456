//! Lifecycle of a node: its state, drains and how they are taken back, and fencing.

use ostler_store::node_commands::ResumeAnswer;
use tokio::sync::watch;

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

/// Whether a drain was requested. A node that is to leave does not rejoin when it is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    No,
    /// The drain can still be taken back, so workers are kept.
    Revocable,
    ForGood,
}

/// The lifecycle state and held leases of a node. Clones share the same state.
#[derive(Clone)]
pub(crate) struct NodeLifecycle {
    /// A drain changes this together with `leaving`, while that is locked.
    state: watch::Sender<NodeState>,
    leaving: watch::Sender<Leaving>,
    pub(crate) held: HeldLeases,
}

impl NodeLifecycle {
    pub(crate) fn new() -> Self {
        let (state, leaving) = (watch::Sender::new(NodeState::Running), watch::Sender::new(Leaving::No));
        Self { state, leaving, held: HeldLeases::default() }
    }

    /// Waits until the session is lost or the node has ended.
    pub(crate) async fn lost(&self) {
        let is_lost = |state: &NodeState| matches!(state, NodeState::Fenced | NodeState::Ended);
        // The sender lives as long as `self`: the channel does not close.
        let _ = self.watch().wait_for(is_lost).await;
    }

    /// Watches whether the node is to leave.
    pub(crate) fn leaving(&self) -> watch::Receiver<Leaving> {
        self.leaving.subscribe()
    }

    /// Waits until the node is to leave.
    pub(crate) async fn left(&self) {
        let _ = self.leaving().wait_for(|leaving| *leaving != Leaving::No).await;
    }

    /// A session begins: no leases are held yet.
    pub(crate) fn run(&self) {
        self.held.clear();
        self.go(NodeState::Fenced, NodeState::Running);
        self.leaving.send_if_modified(|leaving| {
            if *leaving != Leaving::No {
                self.go(NodeState::Running, NodeState::Draining);
            }
            false
        });
    }

    /// Makes a drain final if one is under way, because the node was fenced meanwhile. Returns whether one is.
    pub(crate) fn settle(&self) -> bool {
        let mut is_leaving = false;
        self.leaving.send_if_modified(|leaving| {
            is_leaving = *leaving != Leaving::No;
            let settles = *leaving == Leaving::Revocable;
            if settles {
                *leaving = Leaving::ForGood;
            }
            settles
        });
        is_leaving
    }

    /// Moves a fenced node that does not rejoin to draining.
    pub(crate) fn rest(&self) {
        self.leave_from(NodeState::Fenced);
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

    /// The state, and whether a drain can be taken back, of the same moment.
    pub(crate) fn now_and_leaving(&self) -> (NodeState, Leaving) {
        let leaving = self.leaving.borrow();
        (self.now(), *leaving)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<NodeState> {
        self.state.subscribe()
    }

    /// Stops claiming tasks, until the drain is taken back.
    pub(crate) fn drain(&self) {
        self.leaving.send_if_modified(|leaving| {
            let begins = *leaving == Leaving::No;
            if begins {
                *leaving = Leaving::Revocable;
                self.go(NodeState::Running, NodeState::Draining);
            }
            begins
        });
    }

    /// Takes a drain back, unless it is final: claims tasks again.
    pub(crate) fn resume(&self) -> ResumeAnswer {
        let mut answer = ResumeAnswer::NotDraining;
        self.leaving.send_if_modified(|leaving| {
            answer = match *leaving {
                Leaving::No => ResumeAnswer::NotDraining,
                Leaving::Revocable => ResumeAnswer::Resumed,
                Leaving::ForGood => ResumeAnswer::Stopping,
            };
            let resumes = answer == ResumeAnswer::Resumed;
            if resumes {
                *leaving = Leaving::No;
                self.go(NodeState::Draining, NodeState::Running);
            }
            resumes
        });
        answer
    }

    /// Stops claiming tasks for good.
    pub(crate) fn leave(&self) {
        self.leave_from(NodeState::Running);
    }

    fn leave_from(&self, state: NodeState) {
        self.leaving.send_modify(|leaving| {
            *leaving = Leaving::ForGood;
            self.go(state, NodeState::Draining);
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_taken_back_until_it_is_final() {
        let node = NodeLifecycle::new();
        assert_eq!(node.resume(), ResumeAnswer::NotDraining);
        node.drain();
        assert_eq!(node.now_and_leaving(), (NodeState::Draining, Leaving::Revocable));
        assert_eq!(node.resume(), ResumeAnswer::Resumed);
        assert_eq!(node.now_and_leaving(), (NodeState::Running, Leaving::No));
        node.drain();
        node.leave();
        assert_eq!(node.resume(), ResumeAnswer::Stopping);
        node.drain();
        assert_eq!(node.now_and_leaving(), (NodeState::Draining, Leaving::ForGood), "it stays final");
    }

    #[test]
    fn a_node_that_is_fenced_in_a_drain_rejoins_only_if_the_drain_is_taken_back_first() {
        let node = NodeLifecycle::new();
        node.drain();
        node.fence();
        assert_eq!(node.resume(), ResumeAnswer::Resumed);
        assert!(!node.settle());
        node.run();
        assert_eq!(node.now(), NodeState::Running);

        node.drain();
        node.fence();
        assert!(node.settle());
        assert_eq!(node.resume(), ResumeAnswer::Stopping);
        node.rest();
        assert_eq!(node.now(), NodeState::Draining);
    }
}
