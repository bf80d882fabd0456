//! Calls of functions that the node answers: files of the task's folder, and requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use ostler_exec::{EventSender, MAX_FILES};
use ostler_process::{TaskFolder, write_file};

use crate::fetch::FetchSession;
use crate::host::{HostAnswer, HostCall, HostError};

/// Answers the calls of one attempt.
pub(super) struct NodeCalls {
    folder: Option<TaskFolder>,
    events: EventSender,
    fetch: FetchSession,
    written: AtomicUsize,
}

impl NodeCalls {
    pub(super) const fn new(folder: Option<TaskFolder>, events: EventSender, fetch: FetchSession) -> Self {
        Self { folder, events, fetch, written: AtomicUsize::new(0) }
    }

    /// Answers a call. Steps are the caller's.
    pub(super) async fn answer(&self, call: HostCall) -> Result<HostAnswer, HostError> {
        match call {
            HostCall::WriteFile { path, bytes } => self.write(path, bytes).await,
            HostCall::Fetch(request) => {
                let head = self.fetch.fetch(request).await?;
                let text = serde_json::to_string(&head).map_err(|error| HostError(error.to_string()))?;
                Ok(HostAnswer::Json(text))
            }
            HostCall::FetchBody { response } => {
                Ok(self.fetch.body(response).await?.map_or(HostAnswer::Nothing, HostAnswer::Bytes))
            }
            HostCall::FetchClose { response } => {
                self.fetch.close(response);
                Ok(HostAnswer::Nothing)
            }
            HostCall::BeginStep { .. } | HostCall::SaveStep { .. } => {
                Err(HostError("steps are not answered here".to_owned()))
            }
        }
    }

    async fn write(&self, path: String, bytes: Vec<u8>) -> Result<HostAnswer, HostError> {
        let Some(folder) = self.folder.clone() else {
            let shown = path.escape_debug();
            return Err(HostError(format!(
                "the file \"{shown}\" cannot be written: the task has no folder; set \"folders\" in the pool's config, \
                 or submit the task with a folder"
            )));
        };
        if self.written.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
            return Err(HostError(format!("more than {MAX_FILES} files of one attempt")));
        }
        let event = write_file(folder, path, bytes).await.map_err(HostError)?;
        self.events.say(event);
        Ok(HostAnswer::Nothing)
    }
}
