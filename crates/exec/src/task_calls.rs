//! Calls about other tasks from a running attempt: submit one, look one up. They count only while its lease does.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{StateName, TaskId, Timestamp};

use crate::error::TaskError;

/// A task that an attempt submits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildTask {
    pub kind: String,
    /// The input: JSON text.
    pub payload: String,
    /// The queue; `None`: that of the attempt's task.
    pub queue: Option<String>,
    /// A unique key.
    pub key: Option<String>,
    /// How long it waits before it is due.
    pub delay: Option<Duration>,
    /// The id; `None`: one that follows from the attempt's task and this submission, so that a retried attempt gets the same task.
    pub id: Option<TaskId>,
    /// The working folder.
    pub folder: Option<String>,
}

impl ChildTask {
    /// A task with only the required fields.
    #[must_use]
    pub fn new(kind: impl Into<String>, payload: impl Into<String>) -> Self {
        let (kind, payload) = (kind.into(), payload.into());
        Self { kind, payload, queue: None, key: None, delay: None, id: None, folder: None }
    }
}

/// A task that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    pub id: TaskId,
    pub state: StateName,
    /// The output, if it has completed: JSON text.
    pub output: Option<String>,
    /// The message of its last failure.
    pub error: Option<String>,
    pub queue: String,
    pub kind: String,
    /// The input: JSON text.
    pub payload: String,
    /// Its unique key.
    pub key: Option<String>,
    /// The working folder.
    pub folder: Option<String>,
    /// Attempts that were started.
    pub runs: u32,
    /// Attempts that failed.
    pub failures: u32,
    pub created_at: Timestamp,
}

/// Why a call about tasks was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskCallError {
    /// The lease is lost: another session may hold the attempt's task now.
    #[error("the lease is lost")]
    Lost,
    /// Permanent: a wrong name, a payload that is too large.
    #[error("{0}")]
    Refused(String),
    /// Transient: the queue is full, the store is unavailable.
    #[error("{0}")]
    Away(String),
}

impl TaskCallError {
    pub(crate) fn into_task_error(self) -> TaskError {
        let message = self.to_string();
        match self {
            Self::Lost | Self::Away(_) => TaskError::transient(message),
            Self::Refused(_) => TaskError::permanent(message),
        }
    }
}

/// Answers the calls of one attempt.
#[async_trait]
pub trait TaskDesk: Debug + Send + Sync {
    /// Submits a task. It is durable when this returns its id.
    ///
    /// # Errors
    /// When it was not submitted.
    async fn submit(&self, task: ChildTask) -> Result<TaskId, TaskCallError>;

    /// Looks up a task; `None`: there is no such task.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn look_up(&self, task: TaskId) -> Result<Option<TaskInfo>, TaskCallError>;
}

/// The calls of one attempt, if there is a store that answers them.
#[derive(Clone, Debug, Default)]
pub struct TaskCalls(Option<Arc<dyn TaskDesk>>);

impl TaskCalls {
    /// Calls that this desk answers.
    #[must_use]
    pub fn to(desk: Arc<dyn TaskDesk>) -> Self {
        Self(Some(desk))
    }

    /// Calls that are refused: the attempt runs without a store.
    #[must_use]
    pub const fn refused() -> Self {
        Self(None)
    }

    fn desk(&self) -> Result<&dyn TaskDesk, TaskCallError> {
        let refused = || TaskCallError::Refused("there is no store to submit tasks to".to_owned());
        self.0.as_deref().ok_or_else(refused)
    }

    /// See [`TaskDesk::submit`].
    ///
    /// # Errors
    /// When it was not submitted.
    pub async fn submit(&self, task: ChildTask) -> Result<TaskId, TaskCallError> {
        self.desk()?.submit(task).await
    }

    /// See [`TaskDesk::look_up`].
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn look_up(&self, task: TaskId) -> Result<Option<TaskInfo>, TaskCallError> {
        self.desk()?.look_up(task).await
    }
}
