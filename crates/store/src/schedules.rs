//! Schedules: recurring work. A store keeps them with their next times, and ensures that each time is
//! fired once over all nodes. The caller that fires computes the times: that needs a calendar.

use ostler_core::{Missed, Overlap, Overrides, Priority, TaskId, Timestamp};

use crate::calls::NewTask;

/// A schedule of recurring work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Unique.
    pub name: String,
    /// When it runs, in a form opaque to the store: a cron line with its time zone, an interval, one timestamp.
    pub spec: String,
    /// What happens when a run is due and the previous one has not finished.
    pub overlap: Overlap,
    /// What happens to runs that became due while no node was checking.
    pub missed: Missed,
    /// The task of each run.
    pub task: TaskTemplate,
    /// The next time; `None`: there is none.
    pub next_at: Option<Timestamp>,
}

/// The task of every run of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTemplate {
    /// The queue it belongs to.
    pub queue: String,
    /// The kind of work.
    pub kind: String,
    /// The input: JSON text.
    pub payload: String,
    /// The priority: a head start in the queue.
    pub priority: Priority,
    /// The policy values set on the task.
    pub overrides: Overrides,
}

impl TaskTemplate {
    /// The task of one run.
    #[must_use]
    pub fn task(&self, id: TaskId) -> NewTask {
        let Self { queue, kind, payload, priority, overrides } = self.clone();
        NewTask { priority, overrides, ..NewTask::new(id, queue, kind, payload) }
    }
}

/// Whether a schedule is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activity {
    /// Fires when due.
    #[default]
    Active,
    /// Does not fire until it is resumed. Runs that become due in between are missed.
    Paused,
}

/// A schedule, as a store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// The schedule, with its current next time.
    pub schedule: Schedule,
    /// Whether it is active.
    pub activity: Activity,
    /// When its last run was enqueued.
    pub last_at: Option<Timestamp>,
    /// Its last run, which may have been pruned.
    pub last_task: Option<TaskId>,
}

impl ScheduleRecord {
    /// The time of the next run; `None`: no run is left, or it is paused.
    #[must_use]
    pub const fn next_run(&self) -> Option<Timestamp> {
        match self.activity {
            Activity::Active => self.schedule.next_at,
            Activity::Paused => None,
        }
    }
}

/// The answer to putting a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    Created,
    /// It replaced the one with the same name. The next time is kept if the spec is the same; so are the
    /// pause and the last run.
    Replaced,
    /// The store has reached the maximum number of schedules.
    TooMany {
        /// The maximum.
        limit: usize,
    },
}

/// A change of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChange {
    /// Tasks that it has enqueued stay.
    Remove,
    /// Pauses or resumes it.
    Set(Activity),
}

/// The answer to a change of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleAnswer {
    /// Done.
    Done,
    /// There is no such schedule.
    NotFound,
}

/// The firing of a schedule that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    pub schedule: String,
    /// The time it is fired for. It must be the schedule's next one, or nothing happens: another caller was first.
    pub expected: Timestamp,
    /// The time after that; `None`: that was the last.
    pub next: Option<Timestamp>,
    /// The run; `None`: the time was missed, and is skipped.
    pub task: Option<NewTask>,
}

/// The answer to a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// The run is queued.
    Enqueued(TaskId),
    /// The run is queued, and the previous one is cancelled, or its worker gets a stop signal.
    Replaced {
        /// The new run.
        run: TaskId,
        /// The previous run.
        before: TaskId,
    },
    /// This run is skipped; the schedule advances to its next time.
    Skipped(Skipped),
    /// The time is not the schedule's next one, or lies in the future; or the schedule is paused or does not exist. Nothing was
    /// written.
    NotDue,
}

/// Why a run was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// The caller passed no run.
    Missed,
    /// The previous run has not finished.
    Overlap(TaskId),
    /// The queue has reached its limit.
    QueueFull {
        /// The limit of waiting tasks.
        limit: u64,
    },
    /// A task with this id exists.
    Existing(TaskId),
}
