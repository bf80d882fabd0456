//! The node itself: started with the pools of a config, followed, and drained.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use ostler_config::Resources;
use ostler_exec::LivenessHolder;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{
    DrainWait, Drained, Node, NodeConfig, NodeDeps, NodeHandle, NodeState, PoolConfig, StartError,
};
use ostler_store::{Error, Store, SystemClock};

use super::presence::Watcher;
use super::service::Service;
use crate::config::Config;
use crate::exit::{Code, refused, say};
use crate::store_location::refusal;

/// How often the node is checked for problems.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct NodeService(Node);

impl NodeService {
    /// Starts the node. `plain` has what does not come from the config.
    pub(super) async fn start(
        config: &Config,
        pools: Vec<PoolConfig>,
        store: Arc<dyn Store>,
        resources: &Resources,
        plain: NodeConfig,
    ) -> anyhow::Result<Self> {
        let ids = ostler::ids().context("cannot get random bytes from the system")?;
        let parts = NodeDeps { store, clock: Arc::new(SystemClock), ids };
        let gauge = ostler_process::Gauge::default();
        let supervisor = resources.get::<Supervisor>().cloned();
        let node = NodeConfig {
            lease: config.lease,
            retention: config.keep,
            schedules: config.schedules.clone(),
            // The supervisor holds the liveness lock too: the node counts as dead only after its children are gone.
            guard: supervisor.map(|supervisor| Arc::new(supervisor) as Arc<dyn LivenessHolder>),
            memory: Arc::new(move || gauge.memory()),
            pools,
            ..plain
        };
        let node = Node::start(parts, node).await.map_err(|error| match error {
            StartError::Config(_) | StartError::TooManySchedules { .. } => {
                refused(Code::BadInput, error.to_string())
            }
            StartError::Differs(_) => refused(Code::BadInput, format!("{error} (--take-over)")),
            StartError::Store(error) => refusal(error),
            StartError::Thread(_) | StartError::NotNew | StartError::Guard(_) => error.into(),
        })?;
        Ok(Self(node))
    }

    pub(super) fn handle(&self) -> NodeHandle {
        self.0.handle()
    }
}

#[async_trait]
impl Service for NodeService {
    async fn stop(self: Box<Self>, patience: Duration) -> Drained {
        self.0.drain(patience).await
    }
}

/// Why a node stops.
pub(super) enum StopCause {
    /// A signal.
    Signalled,
    /// A drain command, which was not taken back.
    Drained {
        /// What is left of the time that running tasks have.
        left: Duration,
    },
    /// The node stopped without a request.
    Nothing,
    /// The supervisor is gone, so no child can be started.
    WithoutSupervisor,
    /// The store will not come back.
    StoreGone(Error),
}

/// Waits until the node stops, or has been asked to drain and runs nothing any more. Running tasks have `patience`, and until then the
/// drain can be taken back.
pub(super) async fn follow(
    node: &NodeHandle,
    mut presence: Option<&mut Watcher>,
    patience: Duration,
) -> StopCause {
    let mut state = node.state();
    loop {
        // A timeout and a change are handled alike.
        let _ = tokio::time::timeout(LOOK, state.changed()).await;
        // The lock of the state is not held while waiting.
        let now = *state.borrow_and_update();
        match now {
            NodeState::Draining => {
                if let Some(error) = node.store_health().gone() {
                    return StopCause::StoreGone(error);
                }
                say("drain requested");
                match node.drained(patience).await {
                    DrainWait::Over { left } => return StopCause::Drained { left },
                    DrainWait::TakenBack => {}
                }
            }
            NodeState::Ended => return StopCause::Nothing,
            NodeState::Fenced | NodeState::Running => {}
        }
        if let Some(presence) = &mut presence {
            presence.look();
        }
    }
}
