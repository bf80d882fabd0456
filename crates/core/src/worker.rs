//! The record of one worker: one slot of a pool.

use crate::id::{TaskId, WorkerId};
use crate::time::Timestamp;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerState {
    /// Its process or thread comes up.
    Starting,
    /// It waits for a task.
    Idle,
    /// It runs an attempt.
    Busy,
    /// It ends its attempt and takes no other.
    Draining,
    /// It was ended.
    Killed,
    /// Its attempt is past its time and does not stop: it still holds its thread. Another worker has its place.
    Deaf,
}

impl WorkerState {
    /// Every state; a store keeps the place in this list.
    pub const ALL: [Self; 6] =
        [Self::Starting, Self::Idle, Self::Busy, Self::Draining, Self::Killed, Self::Deaf];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Killed => "killed",
            Self::Deaf => "deaf",
        }
    }
}

/// One worker, as its node reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name, never used again.
    pub id: WorkerId,
    /// The pool it belongs to.
    pub pool: String,
    /// Its process, where it has one of its own. For display: never to be signalled.
    pub pid: Option<u32>,
    /// What it is doing.
    pub state: WorkerState,
    /// How much memory it has.
    pub memory_bytes: Option<u64>,
    /// When it came up.
    pub started_at: Timestamp,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// What it runs, and since when.
    pub task: Option<(TaskId, Timestamp)>,
}
