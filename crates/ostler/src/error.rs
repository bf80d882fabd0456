//! What can go wrong for a user of the library, an error for each thing that is done.

use ostler_core::TaskId;
use ostler_runtime::StartError;

use crate::store_url::StoreUrlError;

/// Why a pool could not be opened or started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
    /// The text names no store.
    #[error(transparent)]
    Url(StoreUrlError),
    /// The node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A pool has handlers of one sort.
    #[error("a pool has handlers of one sort: either all by `handle`, or all by `handle_local`")]
    TwoSorts,
    /// There are no threads for its handlers.
    #[error("{0}")]
    Threads(String),
    /// The system gave no randomness, which ids are made of.
    #[error("no randomness from the system: {0}")]
    Chance(#[from] getrandom::Error),
}

/// Why a task was not submitted. Nothing of it was kept.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The payload cannot be written as JSON.
    #[error("the payload of \"{kind}\" cannot be written as JSON: {error}")]
    Payload {
        /// The kind it was for.
        kind: String,
        /// Why.
        error: serde_json::Error,
    },
    /// The queue has as many tasks as it may have.
    #[error("the queue is full: {limit} tasks wait in it")]
    QueueFull {
        /// How many that is.
        limit: u64,
    },
    /// Another task has the key.
    #[error("the task {holder} has this key")]
    KeyTaken {
        /// Which one.
        holder: TaskId,
    },
    /// Other work was submitted under this id before: another kind, another payload, or in another queue.
    #[error("the id {0} belongs to other work")]
    IdTaken(TaskId),
    /// The task that it should wait for is not there.
    #[error("there is no task {0}")]
    NoSuchTask(TaskId),
    /// The store has no transactions that others could take part in.
    #[error("the store is a file, and only one on PostgreSQL takes tasks with a transaction of yours")]
    NotShared,
    /// The pool takes no more: it drains.
    #[error("the pool drains, and takes nothing new")]
    Draining,
    /// The store refused, or cannot be written.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}

/// Why a schedule was not kept.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The payload cannot be written as JSON.
    #[error("the payload of \"{kind}\" cannot be written as JSON: {error}")]
    Payload {
        /// The kind it was for.
        kind: String,
        /// Why.
        error: serde_json::Error,
    },
    /// The store has as many as it may have.
    #[error("there are {limit} schedules, and a store has no more")]
    TooMany {
        /// How many that is.
        limit: usize,
    },
    /// The store refused, or cannot be written.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}

/// Why nothing can be said about a task.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// There is no such task.
    #[error("there is no task {0}")]
    NotFound(TaskId),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}
