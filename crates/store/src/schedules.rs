//! Schedules: work that comes again and again. A store keeps them and their next moments, and sees to it that each moment is
//! fired once over all nodes. When the moments are is the business of whoever fires: that needs a calendar.

use ostler_core::{Missed, Overlap, Overrides, Priority, TaskId, Timestamp};

use crate::calls::NewTask;

/// Work that comes again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name; there is one of each.
    pub name: String,
    /// When it runs, in words that a store does not read: a cron line with its time zone, an interval, one moment.
    pub spec: String,
    /// What happens when a run is due and the one before is not over.
    pub overlap: Overlap,
    /// What happens with runs whose moment passed while nobody looked.
    pub missed: Missed,
    /// What a run is.
    pub task: TaskTemplate,
    /// The next moment; `None`: there is none any more.
    pub next_at: Option<Timestamp>,
}

/// What every run of a schedule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTemplate {
    /// The queue it goes to.
    pub queue: String,
    /// What sort of work it is.
    pub kind: String,
    /// What to work on: JSON text.
    pub payload: String,
    /// Its head start.
    pub priority: Priority,
    /// What is said about its policy.
    pub overrides: Overrides,
}

impl TaskTemplate {
    /// A run.
    #[must_use]
    pub fn task(&self, id: TaskId) -> NewTask {
        let Self { queue, kind, payload, priority, overrides } = self.clone();
        NewTask { priority, overrides, ..NewTask::new(id, queue, kind, payload) }
    }
}

/// Whether a schedule runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activity {
    /// It does.
    #[default]
    Active,
    /// No moment of it is fired until it is resumed. What is missed then is missed.
    Paused,
}

/// A schedule, as a store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// The schedule, with its next moment as it is now.
    pub schedule: Schedule,
    /// Whether it runs.
    pub activity: Activity,
    /// When its last run was enqueued.
    pub last_at: Option<Timestamp>,
    /// Its last run, which may be pruned by now.
    pub last_task: Option<TaskId>,
}

/// What became of a schedule that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    /// It is there now.
    Created,
    /// It took the place of the one with its name. Its next moment stayed if it runs at the same times, and so did whether it is
    /// paused, and its last run.
    Replaced,
    /// The store has as many as it may have.
    TooMany {
        /// How many that is.
        limit: usize,
    },
}

/// What became of a request about a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleAnswer {
    /// It is so.
    Done,
    /// There is no such schedule.
    NotFound,
}

/// A moment of a schedule has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The schedule.
    pub schedule: String,
    /// The moment that it is fired for. It must be the schedule's next one, or nothing happens: somebody else was first.
    pub expected: Timestamp,
    /// The moment after that; `None`: that was the last.
    pub next: Option<Timestamp>,
    /// The run; `None`: the moment was missed, and is left out.
    pub task: Option<NewTask>,
}

/// What became of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// The run is queued.
    Enqueued(TaskId),
    /// The run is queued, and the one before is cancelled, or its worker is asked to stop.
    Replaced {
        /// The run.
        run: TaskId,
        /// The one before.
        before: TaskId,
    },
    /// This run is left out; the schedule goes on to its next moment.
    Skipped(Skipped),
    /// It is not, or not yet, or not any more the schedule's next moment; or the schedule is paused or gone. Nothing was
    /// written.
    NotDue,
}

/// Why a run was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Whoever fired it said so.
    Missed,
    /// The run before is not over.
    Overlap(TaskId),
    /// The queue has as many tasks as it may have.
    QueueFull {
        /// How many that is.
        limit: u64,
    },
    /// A task with this id was there already.
    Existing(TaskId),
}
