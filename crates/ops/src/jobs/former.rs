//! Earlier runs of the same plan: resumed, enough because complete, or superseded by a new job.

use ostler_core::{JobId, StateName};
use ostler_store::Store;
use ostler_store::calls::{QueueChange, StepsOnReplay};
use ostler_store::jobs::{JobChange, JobRecord, queue_of};
use ostler_wire::job::JobState;

use super::find::{made_from, serving};
use super::manage::{cancel_tasks, replay_tasks};
use super::pilot::{self, PilotState};
use super::plan::JobPlan;
use super::spec::JobSpec;
use crate::act::MakeId;
use crate::error::OpsError;

/// Whether an earlier run counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerRuns {
    /// An unfinished one is resumed, and a complete one is repeated.
    Resume,
    /// An unfinished one is resumed, and a complete one is enough.
    Once,
    /// All items run again.
    Ignore,
}

/// The job to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChosenJob {
    /// A new one. It names the unfinished one that it supersedes, if there is one.
    New(JobId, Option<Superseded>),
    /// The job of an earlier run, and how many of its failed and cancelled items run again.
    Resumed { found: Box<JobRecord>, again: usize },
    /// None: this one has done everything.
    Enough(Box<JobRecord>),
}

/// What became of an unfinished job that a new one supersedes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Superseded {
    /// It is still running, and was left alone.
    Running { job: JobId, pid: u32 },
    /// The number of unfinished items that were cancelled.
    Cancelled { found: Box<JobRecord>, items: usize },
}

/// What happens to an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormerJobFate {
    Resume,
    Enough,
    Supersede,
}

const fn fate(runs: FormerRuns, state: JobState) -> FormerJobFate {
    match (runs, state) {
        (FormerRuns::Ignore, _) | (FormerRuns::Resume, JobState::Completed) => FormerJobFate::Supersede,
        (FormerRuns::Once, JobState::Completed) => FormerJobFate::Enough,
        (
            FormerRuns::Resume | FormerRuns::Once,
            JobState::Running
            | JobState::Unfinished
            | JobState::Paused
            | JobState::Failed
            | JobState::Cancelled,
        ) => FormerJobFate::Resume,
    }
}

/// Finds the job to resume, or creates a new one.
///
/// # Errors
/// When the store cannot be written.
pub async fn choose(
    store: &dyn Store,
    plan: &JobPlan,
    spec: &JobSpec,
    runs: FormerRuns,
    ids: MakeId<'_>,
) -> Result<ChosenJob, OpsError> {
    let former = made_from(store, plan.fingerprint()).await?;
    let fate = former.as_ref().map(|found| match JobSpec::of(found).and_then(|spec| spec.pilot) {
        // It was rejected: what runs now has a pilot of its own.
        Some(pilot)
            if found.cancelled_at.is_some() && found.counts.completed + found.counts.failed <= pilot =>
        {
            FormerJobFate::Supersede
        }
        Some(_) | None => fate(runs, JobState::of(found)),
    });
    match (former, fate) {
        (Some(found), Some(FormerJobFate::Resume)) => {
            let again = resume(store, &found).await?;
            Ok(ChosenJob::Resumed { found: Box::new(found), again })
        }
        (Some(found), Some(FormerJobFate::Enough)) => Ok(ChosenJob::Enough(Box::new(found))),
        (former, _) => {
            // The new job comes first: if this is interrupted, the next run finds the new job, not the one given up here.
            let id = JobId(ids());
            store.put_job(plan.job(id, spec)).await?;
            let superseded = match former {
                Some(found) => give_up(store, found).await?,
                None => None,
            };
            Ok(ChosenJob::New(id, superseded))
        }
    }
}

/// Resumes a job. Returns how many of its items run again.
async fn resume(store: &dyn Store, found: &JobRecord) -> Result<usize, OpsError> {
    let id = found.job.id;
    store.change_job(id, JobChange::Reopen).await?;
    let undone = [StateName::Failed, StateName::Cancelled];
    let again = replay_tasks(store, id, &undone, StepsOnReplay::Keep).await?;
    // A pilot whose items have ended waits on: only an approval resumes it.
    let waits = pilot::state(store, found).await? == PilotState::Waiting && again == 0;
    if found.paused.is_some() && !waits {
        store.configure(&queue_of(id), vec![QueueChange::Resume]).await?;
    }
    Ok(again)
}

/// Cancels the unfinished items of a superseded job. A job that is running now is left alone.
async fn give_up(store: &dyn Store, found: JobRecord) -> Result<Option<Superseded>, OpsError> {
    let job = found.job.id;
    if found.counts.open() == 0 {
        return Ok(None);
    }
    if let Some(node) = serving(store, job).await? {
        return Ok(Some(Superseded::Running { job, pid: node.pid }));
    }
    let items = cancel_tasks(store, job).await?;
    Ok(Some(Superseded::Cancelled { found: Box::new(found), items }))
}
