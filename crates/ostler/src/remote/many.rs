//! Actions on all tasks that match a filter: a preview with a cut-off, then the action, and its progress.

use std::time::Duration;

use ostler_store::calls::StepsOnReplay;
use ostler_store::views::Filter;
use ostler_wire::action::{BulkPreview, BulkProgress, BulkState};
use ostler_wire::input::FilterInput;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::RemoteError;
use super::tasks::filter_input;
use super::{ApiMethod, ApiRequest, RemoteClient};

/// How often an action or a job is looked at: the API has no long poll for them.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What to do with all tasks that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    /// Cancel those that have not finished.
    Cancel,
    /// Requeue failed and cancelled ones.
    Retry,
    /// Replay dead letters.
    Replay,
    /// Remove dead letters.
    Drop,
}

#[derive(Serialize)]
struct BulkBody<'a> {
    action: BulkAction,
    filter: &'a FilterInput,
    preview: bool,
    cutoff: Option<&'a str>,
    from_scratch: Option<bool>,
}

impl RemoteClient {
    /// Counts the tasks that match, and names the cut-off for [`act`](Self::act).
    ///
    /// # Errors
    /// When the filter is empty or wrong, or the node does not answer.
    pub async fn preview(
        &self,
        action: BulkAction,
        filter: &FilterInput,
    ) -> Result<BulkPreview, RemoteError> {
        self.bulk(&BulkBody { action, filter, preview: true, cutoff: None, from_scratch: None }).await
    }

    /// Acts on all tasks that match, with the cut-off of a preview: tasks that begin to match later are not touched. It goes on in the
    /// node; [`action`](Self::action) returns its progress.
    ///
    /// # Errors
    /// As for [`preview`](Self::preview).
    pub async fn act(
        &self,
        action: BulkAction,
        filter: &FilterInput,
        cutoff: &str,
        steps: StepsOnReplay,
    ) -> Result<BulkProgress, RemoteError> {
        let from_scratch = match steps {
            StepsOnReplay::Keep => None,
            StepsOnReplay::Drop => Some(true),
        };
        self.bulk(&BulkBody { action, filter, preview: false, cutoff: Some(cutoff), from_scratch }).await
    }

    async fn bulk<T: DeserializeOwned>(&self, body: &BulkBody<'_>) -> Result<T, RemoteError> {
        // The id of an action is made from what it does and from its cut-off: started twice, it is the same one.
        self.request(ApiRequest::new(ApiMethod::Post, &["tasks", "actions"]).body(body).repeatable()).await
    }

    /// Returns the actions on many tasks that the node knows.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn actions(&self) -> Result<Vec<BulkProgress>, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["tasks", "actions"])).await
    }

    /// Returns how far an action is.
    ///
    /// # Errors
    /// When the node does not know it, or does not answer.
    pub async fn action(&self, id: &str) -> Result<BulkProgress, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Get, &["tasks", "actions", id])).await
    }

    /// Waits until an action runs no more.
    ///
    /// # Errors
    /// As for [`action`](Self::action).
    pub async fn wait_action(&self, id: &str) -> Result<BulkProgress, RemoteError> {
        loop {
            let progress = self.action(id).await?;
            if progress.state != BulkState::Running {
                return Ok(progress);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stops an action between two batches.
    ///
    /// # Errors
    /// As for [`action`](Self::action).
    pub async fn stop_action(&self, id: &str) -> Result<BulkProgress, RemoteError> {
        self.request(ApiRequest::new(ApiMethod::Post, &["tasks", "actions", id, "stop"])).await
    }

    /// Cancels the tasks that match the filter and have not finished. Without a queue in the filter, those of the client's queue.
    /// Returns how it ended.
    ///
    /// # Errors
    /// As for [`act`](Self::act).
    pub async fn cancel_all(&self, filter: Filter) -> Result<BulkProgress, RemoteError> {
        self.act_on_all(BulkAction::Cancel, filter, StepsOnReplay::Keep).await
    }

    /// Requeues the failed and cancelled tasks that match the filter. Without a queue in the filter, those of the client's queue.
    ///
    /// # Errors
    /// As for [`act`](Self::act).
    pub async fn replay_all(
        &self,
        filter: Filter,
        steps: StepsOnReplay,
    ) -> Result<BulkProgress, RemoteError> {
        self.act_on_all(BulkAction::Retry, filter, steps).await
    }

    /// Removes the dead letters that match the filter. Without a queue in the filter, those of the client's queue.
    ///
    /// # Errors
    /// As for [`act`](Self::act).
    pub async fn drop_all(&self, filter: Filter) -> Result<BulkProgress, RemoteError> {
        self.act_on_all(BulkAction::Drop, filter, StepsOnReplay::Keep).await
    }

    async fn act_on_all(
        &self,
        action: BulkAction,
        filter: Filter,
        steps: StepsOnReplay,
    ) -> Result<BulkProgress, RemoteError> {
        let queue = filter.queue.clone().or_else(|| Some(self.queue().to_owned()));
        let input = filter_input(&Filter { queue, ..filter });
        let preview = self.preview(action, &input).await?;
        let begun = self.act(action, &input, &preview.cutoff.to_string(), steps).await?;
        self.wait_action(&begun.id).await
    }
}
