//! Worker records: one slot of a pool.

use crate::id::{TaskId, WorkerId};
use crate::time::Timestamp;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerState {
    /// Its process or thread is starting.
    Starting,
    /// Waits for a task.
    Idle,
    /// Runs an attempt.
    Busy,
    /// Finishes its attempt and takes no other.
    Draining,
    /// Was killed.
    Killed,
    /// Unresponsive: its attempt has timed out and does not stop, so it still holds its thread. Another worker replaces it.
    Unresponsive,
}

impl WorkerState {
    /// Every state; a store persists the index in this list.
    pub const ALL: [Self; 6] =
        [Self::Starting, Self::Idle, Self::Busy, Self::Draining, Self::Killed, Self::Unresponsive];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Killed => "killed",
            Self::Unresponsive => "unresponsive",
        }
    }
}

/// A process of a worker: its own, or one that it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeProcess {
    pub pid: u32,
    /// How many processes of the worker are above it.
    pub depth: usize,
    /// The name that the kernel has for it, which it can change.
    pub name: String,
    /// Resident memory. Shared pages are counted for each process.
    pub memory_bytes: u64,
}

/// One worker, as its node reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Never reused.
    pub id: WorkerId,
    /// Unique in its node at any time: when the worker is gone, another one may get its name.
    pub name: String,
    pub pool: String,
    /// The process id, if the worker has a process of its own. For display only: never signal it.
    pub pid: Option<u32>,
    pub state: WorkerState,
    /// The memory in use.
    pub memory_bytes: Option<u64>,
    pub started_at: Timestamp,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The task it runs, and since when.
    pub task: Option<(TaskId, Timestamp)>,
}
