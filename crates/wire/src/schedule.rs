//! Schedules: work that comes again and again.

use ostler_core::{Missed, Overlap, Overrides, Priority, TaskId, Timestamp, millis};
use serde::Serialize;

use crate::json::Json;
use crate::time::TimeView;

/// A schedule.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// `active`, `paused`, or `over` when no moment is left.
    pub state: &'static str,
    /// When it runs; one of the three.
    #[serde(flatten)]
    pub when: RecurrenceView,
    /// What happens when a run is due and the one before is not over: `skip`, `queue` or `replace`.
    pub overlap: &'static str,
    /// What happens with runs whose moment passed while nobody looked: `skip`, `one` or `all`.
    pub missed: &'static str,
    /// When it runs next, as long as it is not paused.
    pub next_at: Option<TimeView>,
    /// When its last run was enqueued.
    pub last_at: Option<TimeView>,
    /// Its last run, which may be pruned by now.
    pub last_task: Option<String>,
    /// What a run is.
    pub task: RunView,
}

/// RecurrenceView a schedule runs. All three are `null` where another version wrote what this one cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecurrenceView {
    /// By this cron line.
    pub cron: Option<String>,
    /// In this time zone.
    pub timezone: Option<String>,
    /// In steps of this length.
    pub every_ms: Option<i64>,
    /// At this moment.
    pub at: Option<TimeView>,
}

/// What every run of a schedule is.
#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    /// The queue it goes to.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// What to work on.
    pub payload: Json,
    /// Its head start.
    pub priority: i64,
    /// How many tries may fail, if it is said.
    pub attempts: Option<u32>,
    /// How long one attempt may take, if it is said.
    pub timeout_ms: Option<i64>,
}

/// A schedule with its next moments.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleDetail {
    /// The schedule.
    #[serde(flatten)]
    pub schedule: ScheduleView,
    /// The next few moments.
    pub upcoming: Vec<TimeView>,
}

/// What became of a request about a schedule.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleActionView {
    /// The schedule.
    pub schedule: String,
    /// `created`, `replaced`, `removed`, `paused` or `resumed`.
    pub result: &'static str,
    /// When it runs next, as long as it is not paused.
    pub next_at: Option<TimeView>,
}

impl RunView {
    /// What a run is.
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
    /// A schedule that runs like this, with nothing known of its life yet.
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

    /// The same, with what is known of its runs.
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
