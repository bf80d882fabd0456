//! Schedules: recurring tasks.

use ostler_core::{Timestamp, millis};
use ostler_schedule::ScheduleSpec;
use ostler_store::schedules::{Activity, ScheduleRecord, TaskTemplate};
use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{Json, in_two_parts};
use crate::time::TimeView;
use crate::word::{self, Word};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleView {
    pub name: String,
    /// `active`, `paused`, or `over` when no run is left.
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    /// When it runs: `cron`, `every_ms` or `at`.
    #[serde(flatten)]
    pub when: RecurrenceView,
    /// What happens when a run is due and the previous one has not finished: `skip`, `queue` or `replace`.
    #[serde(deserialize_with = "word::read")]
    pub overlap: Word,
    /// What happens with runs that were missed while no node was up: `skip`, `one` or `all`.
    #[serde(deserialize_with = "word::read")]
    pub missed: Word,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleDetail {
    #[serde(flatten)]
    pub schedule: ScheduleView,
    /// The next few run times.
    pub upcoming: Vec<TimeView>,
}

impl<'de> Deserialize<'de> for ScheduleDetail {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Rest {
            upcoming: Vec<TimeView>,
        }
        let (schedule, Rest { upcoming }) = in_two_parts(from)?;
        Ok(Self { schedule, upcoming })
    }
}

/// The result of an action on a schedule.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleActionView {
    pub schedule: String,
    pub result: ScheduleResult,
    /// The time of the next run; `null` while it is paused.
    pub next_at: Option<TimeView>,
    /// The time zone of a cron expression that was added.
    pub timezone: Option<String>,
}

/// What was done to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScheduleResult {
    Created,
    Replaced,
    Removed,
    Paused,
    Resumed,
}

impl ScheduleResult {
    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
        }
    }
}

impl From<&TaskTemplate> for RunView {
    fn from(template: &TaskTemplate) -> Self {
        let TaskTemplate { queue, kind, payload, priority, overrides } = template;
        Self {
            queue: queue.clone(),
            kind: kind.clone(),
            payload: Json::from_text(payload),
            priority: priority.points(),
            attempts: overrides.attempts,
            timeout_ms: overrides.timeout.map(millis),
        }
    }
}

impl RecurrenceView {
    /// Builds the view of a stored recurrence.
    fn of(spec: &str) -> Self {
        match ScheduleSpec::parse(spec) {
            Ok(ScheduleSpec::Cron(line)) => Self {
                cron: Some(line.line().to_owned()),
                timezone: Some(line.timezone().to_owned()),
                ..Self::default()
            },
            Ok(ScheduleSpec::Every(step)) => {
                Self { every_ms: Some(millis(step.length())), ..Self::default() }
            }
            Ok(ScheduleSpec::At(moment)) => Self { at: Some(moment.into()), ..Self::default() },
            Err(_) => Self::default(),
        }
    }
}

impl From<&ScheduleRecord> for ScheduleView {
    fn from(record: &ScheduleRecord) -> Self {
        let schedule = &record.schedule;
        Self {
            name: schedule.name.clone(),
            state: schedule_state(record),
            when: RecurrenceView::of(&schedule.spec),
            overlap: schedule.overlap.name(),
            missed: schedule.missed.name(),
            next_at: record.next_run().map(TimeView::from),
            last_at: record.last_at.map(TimeView::from),
            last_task: record.last_task.map(|task| task.to_string()),
            task: RunView::from(&schedule.task),
        }
    }
}

/// `active`, `paused`, or `over` when no run is left.
fn schedule_state(record: &ScheduleRecord) -> &'static str {
    match (record.activity, record.schedule.next_at) {
        (_, None) => "over",
        (Activity::Active, Some(_)) => "active",
        (Activity::Paused, Some(_)) => "paused",
    }
}

impl ScheduleDetail {
    #[must_use]
    pub fn new(record: &ScheduleRecord, upcoming: &[Timestamp]) -> Self {
        Self { schedule: record.into(), upcoming: upcoming.iter().copied().map(TimeView::from).collect() }
    }
}

impl ScheduleActionView {
    #[must_use]
    pub fn new(name: &str, result: ScheduleResult, next: Option<Timestamp>) -> Self {
        Self { schedule: name.to_owned(), result, next_at: next.map(TimeView::from), timezone: None }
    }

    /// With the time zone of the schedule that was added.
    #[must_use]
    pub fn of_added(record: &ScheduleRecord, result: ScheduleResult) -> Self {
        let RecurrenceView { timezone, .. } = RecurrenceView::of(&record.schedule.spec);
        Self { timezone, ..Self::new(&record.schedule.name, result, record.next_run()) }
    }
}
