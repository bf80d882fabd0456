//! Jobs of a node: many items for one of its pools, with a pilot and a budget.

use std::time::Duration;

use ostler_wire::input::{ItemsInput, JobInput};
use ostler_wire::job::{JobActionView, JobResultView, JobView};
use tokio::time::Instant;

use super::error::RemoteError;
use super::many::LOOK_EVERY;
use super::{ApiMethod, ApiRequest, RemoteClient};

/// A job of a node, by its id or its name. Clones are the same job.
#[derive(Clone)]
pub struct RemoteJob {
    client: RemoteClient,
    name: String,
}

impl RemoteClient {
    /// Creates a job for a pool of a running node. A job whose answer was lost is made once.
    ///
    /// # Errors
    /// When the node refuses it or does not answer.
    pub async fn create_job(&self, job: &JobInput) -> Result<(RemoteJob, JobActionView), RemoteError> {
        let request = ApiRequest::new(ApiMethod::Post, &["jobs"]).body(job).keyed(&self.shared.new_key());
        let made: JobActionView = self.request(request).await?;
        Ok((self.job(&made.id), made))
    }

    /// The job with this id, or the newest with this name. It is not looked up yet.
    #[must_use]
    pub fn job(&self, name: &str) -> RemoteJob {
        RemoteJob { client: self.clone(), name: name.to_owned() }
    }

    /// Finds the job with this id, or the newest with this name.
    ///
    /// # Errors
    /// When there is none, or the node does not answer.
    pub async fn find_job(&self, name: &str) -> Result<RemoteJob, RemoteError> {
        Ok(self.job(&self.job(name).show().await?.id))
    }

    /// Returns the newest jobs.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn jobs(&self, limit: usize) -> Result<Vec<JobView>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["jobs"]).query("limit", Some(limit))).await
    }

    /// Returns the newest of the jobs that are older than the one with this id: the next page.
    ///
    /// # Errors
    /// When the text is no id, or the node does not answer.
    pub async fn jobs_before(&self, id: &str, limit: usize) -> Result<Vec<JobView>, RemoteError> {
        let request = ApiRequest::new(ApiMethod::Get, &["jobs"]).query("limit", Some(limit));
        self.request(request.query("before", Some(id))).await
    }
}

impl RemoteJob {
    /// Returns the job with its counts, and what it may spend.
    ///
    /// # Errors
    /// When there is none, or the node does not answer.
    pub async fn show(&self) -> Result<JobView, RemoteError> {
        self.client.request(ApiRequest::new(ApiMethod::Get, &["jobs", &self.name])).await
    }

    /// Waits until all items have ended, for this long at most. Items that wait for approval have not.
    ///
    /// # Errors
    /// When there is no such job, it has not ended in time, or the node does not answer.
    pub async fn wait_within(&self, timeout: Duration) -> Result<JobView, RemoteError> {
        self.look_until(Some(timeout), |job| open_items(job) == 0).await
    }

    /// Waits until all items have ended.
    ///
    /// # Errors
    /// As for [`wait_within`](Self::wait_within).
    pub async fn wait(&self) -> Result<JobView, RemoteError> {
        self.look_until(None, |job| open_items(job) == 0).await
    }

    /// Waits until as many items have ended as the pilot has.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub async fn wait_for_pilot(&self) -> Result<JobView, RemoteError> {
        self.look_until(None, |job| ended_items(job) >= job.pilot.unwrap_or(job.items)).await
    }

    async fn look_until(
        &self,
        timeout: Option<Duration>,
        is_over: impl Fn(&JobView) -> bool,
    ) -> Result<JobView, RemoteError> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let job = self.show().await?;
            if is_over(&job) {
                return Ok(job);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                let state = job.state.name();
                let error =
                    RemoteError::not_finished(format!("job {} has not ended: it is {state}", job.name));
                return Err(RemoteError { details: serde_json::json!({ "state": state }), ..error });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the results of all items in their order. A connection that is cut before the last one is an error.
    ///
    /// # Errors
    /// As for [`show`](Self::show).
    pub async fn results(&self) -> Result<Vec<JobResultView>, RemoteError> {
        let mut answer =
            self.client.open(&ApiRequest::new(ApiMethod::Get, &["jobs", &self.name, "results"])).await?;
        let (mut text, lost) =
            (Vec::new(), |why: &str| RemoteError::unreachable(&self.client.shared.shown(), why));
        while let Some(piece) = answer.chunk().await.map_err(|error| lost(&error.to_string()))? {
            text.extend_from_slice(&piece);
        }
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).map_err(|error| RemoteError::unreadable(&error)))
            .collect()
    }

    /// Lets the items run that wait for the pilot.
    ///
    /// # Errors
    /// When there is no such job, its state does not allow it, or the node does not answer.
    pub async fn approve(&self) -> Result<JobActionView, RemoteError> {
        self.change("approve", &serde_json::json!({})).await
    }

    /// Cancels the items that wait for the pilot.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn reject(&self) -> Result<JobActionView, RemoteError> {
        self.change("reject", &serde_json::json!({})).await
    }

    /// Starts no item until the job is resumed.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn pause(&self) -> Result<JobActionView, RemoteError> {
        self.change("pause", &serde_json::json!({})).await
    }

    /// Lets the items start again, with another budget such as `$5` if one is given.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn resume(&self, max_cost: Option<&str>) -> Result<JobActionView, RemoteError> {
        let body =
            max_cost.map_or_else(|| serde_json::json!({}), |most| serde_json::json!({ "max_cost": most }));
        self.change("resume", &body).await
    }

    /// Cancels the items that have not finished.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn cancel(&self) -> Result<JobActionView, RemoteError> {
        self.change("cancel", &serde_json::json!({})).await
    }

    /// Runs the failed items again.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn retry_failed(&self) -> Result<JobActionView, RemoteError> {
        self.change("retry-failed", &serde_json::json!({})).await
    }

    /// Adds items.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn add(&self, items: Vec<serde_json::Value>) -> Result<JobActionView, RemoteError> {
        self.change("items", &serde_json::to_value(ItemsInput { items }).unwrap_or_default()).await
    }

    /// Removes the job with its tasks. A job that a node runs is refused.
    ///
    /// # Errors
    /// As for [`approve`](Self::approve).
    pub async fn remove(&self) -> Result<JobActionView, RemoteError> {
        self.client.request(ApiRequest::new(ApiMethod::Delete, &["jobs", &self.name])).await
    }

    async fn change(&self, verb: &str, body: &serde_json::Value) -> Result<JobActionView, RemoteError> {
        self.client.request(ApiRequest::new(ApiMethod::Post, &["jobs", &self.name, verb]).body(body)).await
    }
}

const fn open_items(job: &JobView) -> u64 {
    job.tasks.queued + job.tasks.claimed + job.tasks.running
}

const fn ended_items(job: &JobView) -> u64 {
    job.tasks.completed + job.tasks.failed + job.tasks.cancelled
}
