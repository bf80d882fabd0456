//! Schedules: recurring tasks by cron line, interval or date.

use ostler_core::{Missed, Overlap, Overrides, Priority, Timestamp};
use ostler_runtime::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{
    Activity, PutAnswer, ScheduleAnswer, ScheduleChange, ScheduleRecord, TaskTemplate,
};
use serde::Serialize;

use crate::client::Client;
use crate::error::{ScheduleError, WaitError};

/// Options of a schedule. Retry settings that are left out come from the queue.
#[derive(Clone, Debug, Default)]
pub struct Recurrence {
    /// What happens when a run is due while the previous one has not finished. Default: the run is skipped.
    pub overlap: Overlap,
    /// What happens to runs that became due while no process was up or the schedule was paused. Default: one run stands in
    /// for all of them.
    pub missed: Missed,
    /// The priority of each run, from −100 to 100. Default: 0.
    pub priority: Priority,
    /// Attempts, backoff and timeout of each run.
    pub overrides: Overrides,
}

impl Client {
    /// Creates or replaces the schedule with this name: at the given times, a task of this kind is enqueued in the
    /// client's queue, exactly once regardless of how many processes are up. A schedule whose times are unchanged continues where it
    /// was, so a program may call this at every start.
    ///
    /// Returns the time of the next run; `None` if no run is left or the schedule is paused.
    ///
    /// # Errors
    /// When the payload cannot be serialized to JSON, the store has reached its maximum of schedules, or the store returns
    /// an error.
    pub async fn schedule<P: Serialize + Sync>(
        &self,
        name: &str,
        times: ScheduleSpec,
        kind: &str,
        payload: &P,
    ) -> Result<Option<Timestamp>, ScheduleError> {
        self.schedule_with(name, times, kind, payload, Recurrence::default()).await
    }

    /// Like [`schedule`](Self::schedule), with options.
    ///
    /// # Errors
    /// As for [`schedule`](Self::schedule).
    pub async fn schedule_with<P: Serialize + Sync>(
        &self,
        name: &str,
        times: ScheduleSpec,
        kind: &str,
        payload: &P,
        about: Recurrence,
    ) -> Result<Option<Timestamp>, ScheduleError> {
        let payload = serde_json::to_string(payload)
            .map_err(|error| ScheduleError::Payload { kind: kind.to_owned(), error })?;
        let Recurrence { overlap, missed, priority, overrides } = about;
        let (queue, kind) = (self.queue().to_owned(), kind.to_owned());
        let task = TaskTemplate { queue, kind, payload, priority, overrides };
        let plan = PlannedSchedule { name: name.to_owned(), times, overlap, missed, task };
        let now = self.store().now().await?;
        match self.store().put_schedule(plan.schedule(now)).await? {
            PutAnswer::Created | PutAnswer::Replaced => {}
            PutAnswer::TooMany { limit } => return Err(ScheduleError::TooMany { limit }),
        }
        let all = self.store().schedules().await?;
        let kept = all.into_iter().find(|record| record.schedule.name == name);
        Ok(kept.filter(|kept| kept.activity == Activity::Active).and_then(|kept| kept.schedule.next_at))
    }

    /// Removes a schedule. Tasks that it has enqueued stay. The answer says whether the schedule existed.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn unschedule(&self, name: &str) -> Result<ScheduleAnswer, WaitError> {
        Ok(self.store().change_schedule(name, ScheduleChange::Remove).await?)
    }

    /// Pauses a schedule: nothing is enqueued for it until [`resume_schedule`](Self::resume_schedule).
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleAnswer, WaitError> {
        Ok(self.store().change_schedule(name, ScheduleChange::Set(Activity::Paused)).await?)
    }

    /// Resumes a paused schedule. [`Recurrence::missed`] decides about runs that became due while it was paused.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn resume_schedule(&self, name: &str) -> Result<ScheduleAnswer, WaitError> {
        Ok(self.store().change_schedule(name, ScheduleChange::Set(Activity::Active)).await?)
    }

    /// Returns all schedules of the store, ordered by name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn schedules(&self) -> Result<Vec<ScheduleRecord>, WaitError> {
        Ok(self.store().schedules().await?)
    }
}
