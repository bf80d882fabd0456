//! A planned schedule: a name, its times and its task, before it is put into a store.

use ostler_core::{Missed, Overlap, Timestamp};
use ostler_store::schedules::{Schedule, TaskTemplate};

use crate::spec::ScheduleSpec;

/// A schedule as configured, with a valid spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSchedule {
    /// The unique name.
    pub name: String,
    pub times: ScheduleSpec,
    /// What happens when a run is due while the previous one has not finished.
    pub overlap: Overlap,
    /// What happens to runs that became due while no node was up.
    pub missed: Missed,
    /// The task that each run enqueues.
    pub task: TaskTemplate,
}

impl PlannedSchedule {
    /// The schedule as created at this time.
    #[must_use]
    pub fn schedule(&self, now: Timestamp) -> Schedule {
        let Self { name, times, overlap, missed, task } = self.clone();
        Schedule { name, spec: times.to_string(), overlap, missed, task, next_at: times.first(now) }
    }
}
