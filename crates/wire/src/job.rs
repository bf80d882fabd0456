//! Jobs: many tasks made together from one template, as users see them.

use serde::Serialize;

use crate::system::TaskCounts;
use crate::time::TimeView;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Some of its items are being worked on.
    Running,
    /// Not all of its items are done, and nobody works on one now.
    Unfinished,
    /// Nothing of it begins until it is resumed.
    Paused,
    /// All items are done.
    Completed,
    /// All items have ended, and some have failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// The word that users see.
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

/// A job.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Where it stands.
    pub state: JobState,
    /// How many items it has.
    pub items: u64,
    /// How its tasks stand.
    pub tasks: TaskCounts,
    /// When it was made.
    pub created_at: TimeView,
    /// Since when it is cancelled.
    pub cancelled_at: Option<TimeView>,
    /// Why it is paused.
    pub paused: Option<String>,
    /// The queue that its tasks are in.
    pub queue: String,
    /// What is run for each item.
    pub command: Vec<String>,
    /// Where it is run.
    pub folder: Option<String>,
}

/// What became of one item of a job.
#[derive(Clone, Debug, Serialize)]
pub struct JobResultView {
    /// Where it stands among the items, counted from one.
    pub number: u64,
    /// The item.
    pub item: String,
    /// Where its task stands.
    pub state: &'static str,
    /// How often it was run.
    pub runs: u32,
    /// How long the last run took.
    pub duration_ms: Option<u64>,
    /// What it wrote to standard output, also when it failed.
    pub output: Option<String>,
    /// What went wrong last.
    pub error: Option<String>,
    /// The task.
    pub task: String,
    /// The exit code of the last run, where it ended by itself with one.
    pub exit_code: Option<u8>,
}

/// What became of a request about a job.
#[derive(Clone, Debug, Serialize)]
pub struct JobActionView {
    /// The job.
    pub id: String,
    /// What was asked for.
    pub done: &'static str,
    /// How many of its tasks it was done to.
    pub tasks: u64,
}
