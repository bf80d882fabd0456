//! Schedules: recurring tasks.

use ostler_core::{Missed, Overlap, Overrides, Priority, TaskId, Timestamp, millis};
use serde::Serialize;

use crate::json::Json;
use crate::time::TimeView;

#[derive(Clone, Debug, Serialize)]
pub struct ScheduleView {
    pub name: String,
    /// `active`, `paused`, or `over` when no run is left.
    pub state: &'static str,
    /// When it runs: `cron`, `every_ms` or `at`.
    #[serde(flatten)]
    pub when: RecurrenceView,
    /// What happens when a run is due and the previous one has not finished: `skip`, `queue` or `replace`.
    pub overlap: &'static str,
    /// What happens with runs that were missed while no node was up: `skip`, `one` or `all`.
    pub missed: &'static str,
    /// The time of the next run; `null` while it is paused.
    pub next_at: Option<TimeView>,
    /// When its last run was enqueued.
    pub last_at: Option<TimeView>,
    /// The last run, which may have been pruned.
    pub last_task: Option<String>,
    /// The task that each run enqueues.
    pub task: RunView,
}

/// When a schedule runs. All are `null` if another version wrote a recurrence that this one cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecurrenceView {
    /// A cron expression.
    pub cron: Option<String>,
    /// The time zone of the cron expression.
    pub timezone: Option<String>,
    /// The interval.
    pub every_ms: Option<i64>,
    /// A single time.
    pub at: Option<TimeView>,
}

/// The task that each run of a schedule enqueues.
#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    pub queue: String,
    pub kind: String,
    pub payload: Json,
    /// From -100 to 100; each point is a minute's head start.
    pub priority: i64,
    /// The maximum number of attempts, if set.
    pub attempts: Option<u32>,
    /// The timeout of one attempt, if set.
    pub timeout_ms: Option<i64>,
}

/// A schedule with its next run times.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleDetail {
    #[serde(flatten)]
    pub schedule: ScheduleView,
    /// The next few run times.
    pub upcoming: Vec<TimeView>,
}

/// The result of an action on a schedule.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleActionView {
    pub schedule: String,
    /// `created`, `replaced`, `removed`, `paused` or `resumed`.
    pub result: &'static str,
    /// The time of the next run; `null` while it is paused.
    pub next_at: Option<TimeView>,
}

impl RunView {
    #[must_use]
    pub fn new(queue: &str, kind: &str, payload: &str, priority: Priority, overrides: &Overrides) -> Self {
        Self {
            queue: queue.to_owned(),
            kind: kind.to_owned(),
            payload: Json::from_text(payload),
            priority: priority.points(),
            attempts: overrides.attempts,
            timeout_ms: overrides.timeout.map(millis),
        }
    }
}

impl ScheduleView {
    /// Builds the view of a schedule that has not run yet.
    #[must_use]
    pub fn new(name: &str, when: RecurrenceView, overlap: Overlap, missed: Missed, task: RunView) -> Self {
        Self {
            name: name.to_owned(),
            state: "active",
            when,
            overlap: overlap.name(),
            missed: missed.name(),
            next_at: None,
            last_at: None,
            last_task: None,
            task,
        }
    }

    /// Adds the times of its runs.
    #[must_use]
    pub fn with_runs(self, next: Option<Timestamp>, last: Option<Timestamp>, task: Option<TaskId>) -> Self {
        Self {
            next_at: next.map(TimeView::from),
            last_at: last.map(TimeView::from),
            last_task: task.map(|task| task.to_string()),
            ..self
        }
    }
}
