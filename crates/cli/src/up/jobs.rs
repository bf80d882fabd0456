//! Detached jobs (`serve_jobs`), as a service of the node.

use std::time::Duration;

use async_trait::async_trait;
use ostler_runtime::Drained;
use tokio::task::JoinHandle;

use super::service::Service;
use crate::map::serve::JobServer;

pub(super) struct JobService(JoinHandle<()>);

impl JobService {
    pub(super) fn start(server: JobServer) -> Self {
        Self(tokio::spawn(server.serve()))
    }
}

#[async_trait]
impl Service for JobService {
    /// Pools that it has added are drained with the node.
    async fn stop(self: Box<Self>, _patience: Duration) -> Drained {
        self.0.abort();
        let _ = self.0.await;
        Drained::default()
    }
}
