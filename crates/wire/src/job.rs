//! Jobs: tasks created together from one template by `ostler map`.

use serde::Serialize;

use crate::system::TaskCounts;
use crate::time::TimeView;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Some items are running.
    Running,
    /// Some items are not done, and none is running.
    Unfinished,
    /// No item starts until the job is resumed.
    Paused,
    /// All items are done.
    Completed,
    /// All items have finished, and some have failed.
    Failed,
    Cancelled,
}

impl JobState {
    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    pub id: String,
    pub name: String,
    pub state: JobState,
    pub items: u64,
    pub tasks: TaskCounts,
    pub created_at: TimeView,
    pub cancelled_at: Option<TimeView>,
    pub paused: Option<String>,
    pub queue: String,
    pub command: Vec<String>,
    /// The working folder of the command.
    pub folder: Option<String>,
}

/// The result of one item of a job.
#[derive(Clone, Debug, Serialize)]
pub struct JobResultView {
    /// The position among the items, counted from 1.
    pub number: u64,
    pub item: String,
    pub state: &'static str,
    /// The number of attempts.
    pub runs: u32,
    /// The duration of the last attempt.
    pub duration_ms: Option<u64>,
    /// Standard output, of a failed item too.
    pub output: Option<String>,
    /// The last error.
    pub error: Option<String>,
    pub task: String,
    /// The exit code of the last attempt; `null` if it did not exit by itself.
    pub exit_code: Option<u8>,
}

/// The result of an action on a job.
#[derive(Clone, Debug, Serialize)]
pub struct JobActionView {
    pub id: String,
    /// `paused`, `resumed`, `cancelled`, `retried` or `removed`.
    pub done: &'static str,
    /// The number of tasks affected.
    pub tasks: u64,
}
