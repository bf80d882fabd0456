//! Schedules: add, show, pause, resume and remove recurring tasks.

use ostler_core::{TaskId, Timestamp};
use ostler_schedule::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{
    Activity, PutAnswer, ScheduleAnswer, ScheduleChange, ScheduleRecord, TaskTemplate,
};
use ostler_store::{Store, check_schedule};
use ostler_wire::schedule::{ScheduleActionView, ScheduleDetail, ScheduleResult};

use crate::error::{Missing, OpsError, Refusal};
use crate::submit::SubmitRequest;

/// The number of upcoming runs of a schedule that is shown.
const UPCOMING: usize = 5;

/// # Errors
/// When there is no such schedule.
pub async fn find(store: &dyn Store, name: &str) -> Result<ScheduleRecord, OpsError> {
    let all = store.schedules().await?;
    let found = all.into_iter().find(|record| record.schedule.name == name);
    Ok(found.ok_or_else(|| Missing::Schedule(name.to_owned()))?)
}

/// The view of a schedule, with its next run times.
#[must_use]
pub fn detail(record: &ScheduleRecord) -> ScheduleDetail {
    ScheduleDetail::new(record, &upcoming(record))
}

/// The next few runs; none while it is paused.
#[must_use]
pub fn upcoming(record: &ScheduleRecord) -> Vec<Timestamp> {
    let (Some(first), Ok(times)) = (record.next_run(), ScheduleSpec::parse(&record.schedule.spec)) else {
        return Vec::new();
    };
    std::iter::successors(Some(first), |last| times.next(first, *last)).take(UPCOMING).collect()
}

/// Refuses a schedule that no store would take. `now` is the caller's time: the store's is not known yet.
///
/// # Errors
/// A sentence that names the field and its range.
pub fn check(plan: &PlannedSchedule, now: Timestamp) -> Result<(), OpsError> {
    Ok(check_schedule(&plan.schedule(now))?)
}

/// Creates a schedule, or replaces the one with the same name. Returns it as it is now: a replaced one may be paused.
///
/// # Errors
/// When the store has reached its maximum of schedules.
pub async fn put(
    store: &dyn Store,
    plan: &PlannedSchedule,
) -> Result<(ScheduleActionView, ScheduleRecord), OpsError> {
    let result = match store.put_schedule(plan.schedule(store.now().await?)).await? {
        PutAnswer::Created => ScheduleResult::Created,
        PutAnswer::Replaced => ScheduleResult::Replaced,
        PutAnswer::TooMany { limit } => return Err(Refusal::TooManySchedules { limit }.into()),
    };
    let record = find(store, &plan.name).await?;
    Ok((ScheduleActionView::of_added(&record, result), record))
}

/// Removes a schedule; tasks that it has enqueued stay.
///
/// # Errors
/// When there is no such schedule.
pub async fn remove(store: &dyn Store, name: &str) -> Result<ScheduleActionView, OpsError> {
    change(store, name, ScheduleChange::Remove).await?;
    Ok(ScheduleActionView::new(name, ScheduleResult::Removed, None))
}

/// Pauses or resumes a schedule.
///
/// # Errors
/// When there is no such schedule.
pub async fn set(store: &dyn Store, name: &str, activity: Activity) -> Result<ScheduleActionView, OpsError> {
    change(store, name, ScheduleChange::Set(activity)).await?;
    let result = match activity {
        Activity::Paused => ScheduleResult::Paused,
        Activity::Active => ScheduleResult::Resumed,
    };
    Ok(ScheduleActionView::new(name, result, find(store, name).await?.next_run()))
}

/// The submission of one more run of a schedule, as a task of its own: the schedule goes on as if it were not there.
#[must_use]
pub fn extra_run(task: &TaskTemplate, id: TaskId) -> SubmitRequest {
    SubmitRequest { task: task.task(id), delay: None, deadline: None, after: Vec::new() }
}

async fn change(store: &dyn Store, name: &str, change: ScheduleChange) -> Result<(), OpsError> {
    match store.change_schedule(name, change).await? {
        ScheduleAnswer::Done => Ok(()),
        ScheduleAnswer::NotFound => Err(Missing::Schedule(name.to_owned()).into()),
    }
}
