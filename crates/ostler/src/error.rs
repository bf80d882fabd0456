//! Error types of the library, one for each operation.

use ostler_core::TaskId;
use ostler_runtime::StartError;

use crate::store_url::StoreUrlError;

/// Why a pool could not be opened or started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
    /// The text is not a valid store URL or path.
    #[error(transparent)]
    Url(StoreUrlError),
    /// The node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The builder has handlers registered by both `handle` and `handle_local`; a pool accepts only one of the two.
    #[error("the handlers of a pool must all be registered with `handle`, or all with `handle_local`")]
    TwoSorts,
    /// The threads for the handlers could not be configured or started.
    #[error("{0}")]
    Threads(String),
    /// The system provided no randomness for generating ids.
    #[error("cannot get random bytes from the system: {0}")]
    Chance(#[from] getrandom::Error),
}

/// Why a task was not submitted. Nothing of it was stored.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The payload could not be serialized to JSON.
    #[error("the payload of \"{kind}\" cannot be written as JSON: {error}")]
    Payload {
        /// The kind of the task.
        kind: String,
        /// The serialization error.
        error: serde_json::Error,
    },
    /// The queue has reached its limit, or too many submissions of this process are waiting to be written.
    #[error("the queue is full: {limit} tasks are waiting")]
    QueueFull {
        /// The limit that was reached.
        limit: u64,
    },
    /// Another task has the key, and [`OnConflict::Reject`](crate::OnConflict::Reject) was requested.
    #[error("the task {holder} has this key")]
    KeyTaken {
        /// The id of the task that has the key.
        holder: TaskId,
    },
    /// The id belongs to a task of another kind, with another payload, or in another queue.
    #[error("the id {0} belongs to another task")]
    IdTaken(TaskId),
    /// A task that this one should wait for does not exist.
    #[error("there is no task {0}")]
    NoSuchTask(TaskId),
    /// The store is a file: only a PostgreSQL store accepts tasks within a transaction of the caller.
    #[error("only a PostgreSQL store can enqueue tasks in your transaction, and this store is a file")]
    NotShared,
    /// The pool is draining and accepts no new tasks.
    #[error("the pool is draining and accepts no new tasks")]
    Draining,
    /// The store rejected the task, or could not be written.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}

/// Why a schedule was not stored.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The payload could not be serialized to JSON.
    #[error("the payload of \"{kind}\" cannot be written as JSON: {error}")]
    Payload {
        /// The kind of the task.
        kind: String,
        /// The serialization error.
        error: serde_json::Error,
    },
    /// The store already holds the maximum number of schedules.
    #[error("the store has {limit} schedules, the maximum")]
    TooMany {
        /// The maximum number of schedules.
        limit: usize,
    },
    /// The store rejected the schedule, or could not be written.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}

/// Why a query about a task, schedule or queue, or a change to one, failed.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// There is no task with this id.
    #[error("there is no task {0}")]
    NotFound(TaskId),
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}
