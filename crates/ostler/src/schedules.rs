//! Schedules: work that comes again and again.

use ostler_core::{Missed, Overlap, Overrides, Priority, Timestamp};
use ostler_runtime::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{Activity, PutAnswer, ScheduleAnswer, ScheduleRecord, TaskTemplate};
use serde::Serialize;

use crate::error::{ScheduleError, WaitError};
use crate::pool::Pool;

/// What may be said about a schedule. What is left out about its runs comes from the queue.
#[derive(Clone, Debug, Default)]
pub struct Recurrence {
    /// What happens when a run is due and the one before is not over. Unless told otherwise: it is skipped.
    pub overlap: Overlap,
    /// What happens with runs whose moment passed while no process was up. Unless told otherwise: one stands for all.
    pub missed: Missed,
    /// The head start of a run.
    pub priority: Priority,
    /// Attempts, backoff and timeout of a run.
    pub overrides: Overrides,
}

impl Pool {
    /// Keeps a schedule in the store: at these times, a task of this kind is enqueued in the pool's queue, once, however many
    /// processes are up. It takes the place of the one with its name. If that one has the same times, it goes on where it was:
    /// so a program may say this at every start.
    ///
    /// # Errors
    /// When the payload cannot be written as JSON, or the store refuses.
    pub async fn schedule<P: Serialize + Sync>(
        &self,
        name: &str,
        times: ScheduleSpec,
        kind: &str,
        payload: &P,
    ) -> Result<Option<Timestamp>, ScheduleError> {
        self.schedule_with(name, times, kind, payload, Recurrence::default()).await
    }

    /// The same, where more is said. Answers with the next moment; `None`: none is left, or it is paused.
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

    /// Removes a schedule. What it has enqueued stays.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn unschedule(&self, name: &str) -> Result<ScheduleAnswer, WaitError> {
        Ok(self.store().drop_schedule(name).await?)
    }

    /// Nothing is enqueued for a schedule until it is resumed.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleAnswer, WaitError> {
        Ok(self.store().pause_schedule(name, Activity::Paused).await?)
    }

    /// A paused schedule goes on. What was missed meanwhile is missed.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn resume_schedule(&self, name: &str) -> Result<ScheduleAnswer, WaitError> {
        Ok(self.store().pause_schedule(name, Activity::Active).await?)
    }

    /// All schedules of the store, in order of name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn schedules(&self) -> Result<Vec<ScheduleRecord>, WaitError> {
        Ok(self.store().schedules().await?)
    }
}
