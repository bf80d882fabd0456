//! The system of a node: its queue, counts, nodes, workers, and what is wrong.

use ostler_core::Timestamp;
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::account::AccountView;
use ostler_wire::action::QueueActionView;
use ostler_wire::limits::QueueView;
use ostler_wire::system::{FindingView, NodeView, StatsView, WorkerView};

use super::error::RemoteError;
use super::many::LOOK_EVERY;
use super::{ApiMethod, ApiRequest, RemoteClient};

pub(super) fn now() -> Timestamp {
    SystemClock.now()
}

impl RemoteClient {
    /// Returns the current time, for example to compute a `run_at`: `client.now().after(delay)`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        now()
    }

    /// Returns statistics of the queue.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn stats(&self) -> Result<StatsView, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["stats"]).query("queue", Some(self.queue()))).await
    }

    /// Returns statistics of all queues together.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn all_stats(&self) -> Result<StatsView, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["stats"])).await
    }

    /// Waits until no task of the queue is waiting or running in any process.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn wait_idle(&self) -> Result<(), RemoteError> {
        loop {
            let tasks = self.stats().await?.tasks;
            if tasks.queued + tasks.claimed + tasks.running == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Pauses the queue for all processes: no task of it starts until [`resume`](Self::resume).
    ///
    /// # Errors
    /// When the node refuses it or does not answer.
    pub async fn pause(&self, reason: impl Into<String>) -> Result<QueueActionView, RemoteError> {
        let body = serde_json::json!({ "reason": reason.into() });
        self.request(ApiRequest::new(ApiMethod::Post, &["queues", self.queue(), "pause"]).body(&body)).await
    }

    /// Resumes the paused queue.
    ///
    /// # Errors
    /// When the node refuses it or does not answer.
    pub async fn resume(&self) -> Result<QueueActionView, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Post, &["queues", self.queue(), "resume"])).await
    }

    /// Returns all queues but those of jobs, with what throttles them.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn queues(&self) -> Result<Vec<QueueView>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["queues"])).await
    }

    /// Returns the running nodes with their pools.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["nodes"])).await
    }

    /// Returns the workers of all nodes.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["workers"])).await
    }

    /// Returns the accounts whose limits queues share.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn accounts(&self) -> Result<Vec<AccountView>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["accounts"])).await
    }

    /// Returns what is wrong, with advice.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn doctor(&self) -> Result<Vec<FindingView>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["doctor"])).await
    }
}
