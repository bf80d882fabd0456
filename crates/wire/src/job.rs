//! Jobs: tasks created together from one template by `ostler map`.

use ostler_core::{Attempt, Conversation, JobId, StateName, Usage};
use ostler_store::jobs::{JobRecord, queue_of};
use ostler_store::views::TaskDetail;
use serde::{Deserialize, Serialize};

use crate::cost::BudgetView;
use crate::system::TaskCounts;
use crate::time::TimeView;
use crate::word::{self, Word};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The state that follows from the counts of the job's tasks.
    #[must_use]
    pub fn of(record: &JobRecord) -> Self {
        let counts = &record.counts;
        let all_ended = counts.ended() >= record.job.items;
        if counts.completed >= record.job.items {
            Self::Completed
        } else if record.cancelled_at.is_some() {
            Self::Cancelled
        } else if all_ended && counts.failed > 0 {
            Self::Failed
        } else if all_ended {
            Self::Cancelled
        } else if record.paused.is_some() {
            Self::Paused
        } else if counts.running + counts.claimed > 0 {
            Self::Running
        } else {
            Self::Unfinished
        }
    }

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

#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// How many items run before the others are approved.
    pub pilot: Option<u64>,
    /// What all attempts cost; `null`: not known, or not summed up.
    pub cost_usd: Option<f64>,
    /// From the start of the first attempt to the end of the last one.
    pub duration_ms: Option<u64>,
    /// What its items may spend, and have spent.
    pub budget: Option<BudgetView>,
}

impl JobView {
    /// Builds the view of a job; `command` and `folder` are those of its spec, if it is readable.
    #[must_use]
    pub fn new(record: &JobRecord, command: Vec<String>, folder: Option<String>) -> Self {
        Self {
            id: record.job.id.to_string(),
            name: record.job.name.clone(),
            state: JobState::of(record),
            items: record.job.items,
            tasks: record.counts.into(),
            created_at: record.made_at.into(),
            cancelled_at: record.cancelled_at.map(Into::into),
            paused: record.paused.clone(),
            queue: queue_of(record.job.id),
            command,
            folder,
            pilot: None,
            cost_usd: None,
            duration_ms: None,
            budget: None,
        }
    }
}

/// The result of one item of a job.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobResultView {
    /// The position among the items, counted from 1.
    pub number: u64,
    pub item: String,
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
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
    /// The conversation of the last attempt, if it asked a model; by this id it can be resumed.
    pub session_id: Option<String>,
    /// What the last attempt spent, over all models; null: not known.
    pub cost_usd: Option<f64>,
    /// Input that was not read from a cache.
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// The files that the last attempt left.
    pub files: Vec<String>,
    /// The folder of the item, if it has one of its own.
    pub folder: Option<String>,
    /// The start of the last attempt.
    pub started_at: Option<TimeView>,
    /// Standard error of the last attempt.
    pub stderr: Option<String>,
    /// The command as a line for a shell; `null` if a pool runs the item.
    pub command: Option<String>,
}

impl JobResultView {
    /// The fields in their order, for a table.
    pub const COLUMNS: [&str; 18] = [
        "number",
        "item",
        "state",
        "runs",
        "duration_ms",
        "output",
        "error",
        "task",
        "exit_code",
        "session_id",
        "cost_usd",
        "input_tokens",
        "output_tokens",
        "files",
        "folder",
        "started_at",
        "stderr",
        "command",
    ];
}

impl JobResultView {
    /// Builds the view of an item's task; `output` is the standard output of its last attempt, and `files` are those it left.
    #[must_use]
    pub fn new(number: u64, item: String, found: &TaskDetail, output: &[u8], files: Vec<String>) -> Self {
        let task = &found.task;
        let took = found.attempts.last().and_then(Attempt::took);
        let asked = found.attempts.last().map(|attempt| &attempt.conversation);
        let usage = asked.map(|asked| asked.usage.as_slice()).filter(|usage| !usage.is_empty());
        let tokens = |of: fn(&Usage) -> u64| usage.map(|usage| usage.iter().map(of).sum());
        let output = String::from_utf8_lossy(output).into_owned();
        let exit_code = match task.state.name() {
            StateName::Completed => Some(0),
            StateName::Failed => task.last_failure.as_ref().and_then(|failure| failure.exit_code),
            StateName::Queued | StateName::Claimed | StateName::Running | StateName::Cancelled => None,
        };
        Self {
            number,
            item,
            state: task.state.name().name(),
            runs: task.runs,
            duration_ms: took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            output: Some(output).filter(|output| !output.is_empty()),
            error: task.last_failure.as_ref().map(|failure| failure.message.clone()),
            task: task.id.to_string(),
            exit_code,
            session_id: asked.and_then(|asked| asked.session.clone()),
            cost_usd: asked.and_then(Conversation::cost).map(|cost| cost.usd()),
            input_tokens: tokens(|usage| usage.input_tokens),
            output_tokens: tokens(|usage| usage.output_tokens),
            files,
            folder: None,
            started_at: found.attempts.last().map(|attempt| attempt.started_at.into()),
            stderr: None,
            command: None,
        }
    }
}

/// The result of an action on a job.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobActionView {
    pub id: String,
    pub done: JobAction,
    /// The number of tasks affected.
    pub tasks: u64,
}

/// What was done to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// Its items were left to a node.
    Enqueued,
    Paused,
    Resumed,
    Cancelled,
    Retried,
    Removed,
    /// It has more items.
    Added,
    /// It runs another number of items at once.
    Resized,
    /// The items that waited for the pilot may run.
    Approved,
    /// The items that waited for the pilot were cancelled.
    Rejected,
}

impl JobAction {
    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Cancelled => "cancelled",
            Self::Retried => "retried",
            Self::Removed => "removed",
            Self::Added => "added",
            Self::Resized => "resized",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }
}

impl JobActionView {
    #[must_use]
    pub fn new(id: JobId, done: JobAction, tasks: u64) -> Self {
        Self { id: id.to_string(), done, tasks }
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, Timestamp};
    use ostler_store::jobs::NewJob;
    use ostler_store::views::Counts;

    use super::*;

    #[test]
    fn a_job_stands_where_its_tasks_do() {
        let state = |counts: Counts, paused: Option<&str>, cancelled: Option<i64>| {
            let job = NewJob {
                id: JobId(Id::from_bits(1)),
                name: "j".to_owned(),
                fingerprint: "f".to_owned(),
                spec: "{}".to_owned(),
                items: 3,
            };
            JobState::of(&JobRecord {
                job,
                made_at: Timestamp::ZERO,
                cancelled_at: cancelled.map(Timestamp::from_millis),
                paused: paused.map(ToOwned::to_owned),
                counts,
                pruned: 0,
            })
        };
        let none = Counts::default();
        assert_eq!(state(none, None, None), JobState::Unfinished);
        assert_eq!(state(Counts { running: 1, ..none }, None, None), JobState::Running);
        assert_eq!(state(Counts { running: 1, ..none }, Some("x"), None), JobState::Paused);
        assert_eq!(state(Counts { completed: 3, ..none }, Some("x"), Some(1)), JobState::Completed);
        assert_eq!(state(Counts { completed: 2, failed: 1, ..none }, None, None), JobState::Failed);
        assert_eq!(state(Counts { completed: 2, cancelled: 1, ..none }, None, None), JobState::Cancelled);
        assert_eq!(state(none, None, Some(1)), JobState::Cancelled);
    }
}
