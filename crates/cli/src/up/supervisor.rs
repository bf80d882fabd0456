//! The supervisor of a node's child processes: this program, started again.

use std::time::Duration;

use async_trait::async_trait;
use ostler_process::supervisor::{
    Containment, StartError as SupervisorError, Supervisor, SupervisorProgram, serve,
};
use ostler_runtime::Drained;

use super::service::Service;
use crate::exit::Code;

/// The first argument that makes this program a supervisor. Internal.
pub(crate) const SUPERVISOR: &str = "ostler-supervisor";

/// Runs as the supervisor of a node's children; see [`serve`].
pub(crate) fn keep() -> anyhow::Result<Code> {
    serve()?;
    Ok(Code::Done)
}

pub(crate) async fn start_supervisor(containment: Containment) -> Result<Supervisor, SupervisorError> {
    let program = SupervisorProgram { containment, ..SupervisorProgram::this([SUPERVISOR]) };
    Supervisor::start(program, Vec::new()).await
}

/// Stopped when no child is needed any more.
pub(super) struct SupervisorService(pub(super) Supervisor);

#[async_trait]
impl Service for SupervisorService {
    async fn stop(self: Box<Self>, _patience: Duration) -> Drained {
        self.0.stop().await;
        Drained::default()
    }
}
