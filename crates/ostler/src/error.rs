//! Error types of the library, one for each operation.

use ostler_core::{Failure, TaskId};
use ostler_exec::ThreadStartError;
use ostler_runtime::{AddPoolError, StartError};

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
    /// The queue of a job could not be served besides the others.
    #[error(transparent)]
    Job(#[from] AddPoolError),
    /// Handlers of `handle_local` run on threads that serve one queue only.
    #[error(
        "a job cannot be run by handlers on threads: they serve one queue only; register the handlers with `handle`"
    )]
    JobOnThreads,
    /// A queue has handlers, and an executor as well, which would run every kind.
    #[error("the queue \"{0}\" has both handlers and an executor; give one of them to another queue")]
    TwoSorts(String),
    /// The executor of a queue could not be built, with the reason.
    #[error("the executor of the queue \"{queue}\" cannot be used: {reason}")]
    Executor {
        /// The queue.
        queue: String,
        /// A sentence.
        reason: String,
    },
    /// The supervisor of child processes did not start.
    #[cfg(feature = "process")]
    #[error(transparent)]
    Supervisor(#[from] ostler_process::supervisor::StartError),
    /// A pool has child processes, but the program cannot be started again as their supervisor.
    #[cfg(feature = "process")]
    #[error("call ostler::process::init() as the first thing in main: child processes need a supervisor")]
    NoSupervisor,
    /// No folder for a temporary store could be created.
    #[cfg(feature = "testing")]
    #[error("cannot create a folder for the store: {0}")]
    Folder(std::io::Error),
    /// The threads for the handlers could not be configured or started.
    #[error(transparent)]
    Threads(#[from] ThreadStartError),
    /// The system provided no randomness for generating ids.
    #[error("cannot get random bytes from the system: {0}")]
    Chance(#[from] getrandom::Error),
}

/// Why a task was not submitted. Nothing of it was stored, except perhaps after [`Unknown`](Self::Unknown).
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
    /// The submission was not written within its time, and will not be.
    #[error("the task was not submitted in time; it is not stored")]
    TimedOut,
    /// The store did not answer within the time of the submission: the task may be stored, now or in a moment. Submitting it
    /// again with this id ([`Submission::id`](crate::Submission::id)) creates it once.
    #[error("the store has not answered in time: whether the task {0} is stored is not known")]
    Unknown(TaskId),
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
    /// More tasks match than one call acts on; nothing was done.
    #[error("more than {0} tasks match, the maximum for one call; add filters")]
    TooMany(usize),
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}

/// Why the result of a task could not be returned.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The task could not be waited for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The task has failed for good.
    #[error("the task {id} has failed: {}", .failure.message)]
    Failed {
        /// The task.
        id: TaskId,
        /// Its last failure.
        failure: Box<Failure>,
    },
    /// The task was cancelled.
    #[error("the task {0} was cancelled")]
    Cancelled(TaskId),
    /// The output is not of the expected type.
    #[error("the output of the task {id} does not fit: {error}")]
    Output {
        /// The task.
        id: TaskId,
        /// The deserialization error.
        error: serde_json::Error,
    },
}
