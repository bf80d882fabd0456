//! Pilot: the first items of a job run, and the others wait until they are approved.
//!
//! The approval is a task that no pool runs, in a queue of its own, and the other items run after it. So the store itself holds them
//! back: no process can start one before the approval, whatever is restarted meanwhile. To approve is to end that task.

use std::time::Duration;

use ostler_core::{Cost, JobId, StateName, TaskId};
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::jobs::{JobRecord, queue_of};
use ostler_store::views::TaskRef;
use ostler_store::{Store, release_all_dependents};
use ostler_wire::job::{JobAction, JobActionView};

use super::find::{existing, find};
use super::fingerprint::derived;
use super::manage::cancel_tasks;
use super::spec::JobSpec;
use super::totals::JobTotals;
use crate::error::{OpsError, Refusal};

/// The queue of the approvals. No pool serves it.
pub const APPROVALS: &str = "approvals";
/// The kind of such a task.
const KIND: &str = "pilot";
/// Why a job is paused whose pilot has ended.
pub const PAUSED: &str = "its pilot waits for approval";
/// The approval is not due before this has passed: no pool could claim it.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// What an id is derived from, besides the job.
const MARK: &[u8] = b"approval";

/// How far a pilot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PilotState {
    /// The job has none.
    None,
    /// Its items have not ended.
    Running,
    /// Its items have ended, and the others wait.
    Waiting,
    Approved,
    /// The job was cancelled.
    Cancelled,
}

/// The result of a pilot, and what it means for the other items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PilotResult {
    pub items: u64,
    pub failed: u64,
    /// The items that wait.
    pub rest: u64,
    /// What it cost; `None`: not known.
    pub cost: Option<Cost>,
    /// How long all of its attempts took together.
    pub took: Duration,
}

impl PilotResult {
    /// What the other items will cost, if they are like those of the pilot.
    #[must_use]
    pub fn cost_of_rest(&self) -> Option<Cost> {
        let each = self.cost?.nanos() / self.items.max(1);
        Some(Cost::from_nanos(each.saturating_mul(self.rest)))
    }

    /// How long the other items will take with this many at once, if they are like those of the pilot.
    #[must_use]
    pub fn time_of_rest(&self, at_once: u32) -> Duration {
        let each = self.took / u32::try_from(self.items.max(1)).unwrap_or(u32::MAX);
        let rounds = self.rest.div_ceil(u64::from(at_once.max(1)));
        each.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
    }
}

/// The task whose end is the approval of a job.
#[must_use]
pub fn approval_of(job: JobId) -> TaskId {
    derived(job, MARK)
}

/// How many items of a job run before its approval, as stored; `None`: all may run. The approval exists when this returns, so that items
/// can wait for it.
///
/// # Errors
/// When the store cannot be written.
pub async fn to_enqueue(store: &dyn Store, record: &JobRecord) -> Result<Option<u64>, OpsError> {
    match state(store, record).await? {
        PilotState::None | PilotState::Approved | PilotState::Cancelled => return Ok(None),
        PilotState::Running | PilotState::Waiting => {}
    }
    ask(store, record.job.id).await?;
    Ok(JobSpec::of(record).and_then(|spec| spec.pilot))
}

/// Enqueues the approval of a job, unless it is there.
async fn ask(store: &dyn Store, job: JobId) -> Result<(), OpsError> {
    let payload = serde_json::json!({ "job": job.to_string() }).to_string();
    let task = NewTask::new(approval_of(job), APPROVALS, KIND, payload);
    let run_at = Some(store.now().await?.after(NEVER));
    store.enqueue(vec![NewTask { run_at, ..task }]).await?;
    Ok(())
}

/// # Errors
/// When the store cannot be read.
pub async fn state(store: &dyn Store, record: &JobRecord) -> Result<PilotState, OpsError> {
    let Some(pilot) = JobSpec::of(record).and_then(|spec| spec.pilot) else { return Ok(PilotState::None) };
    if record.cancelled_at.is_some() {
        return Ok(PilotState::Cancelled);
    }
    let approval = store.show(TaskRef::Id(approval_of(record.job.id))).await?;
    Ok(match approval.map(|found| found.task.state.name()) {
        Some(StateName::Queued) if record.counts.ended() >= pilot => PilotState::Waiting,
        Some(StateName::Queued) => PilotState::Running,
        None if record.counts.submitted() == 0 => PilotState::Running,
        // It was pruned long after it had ended.
        None | Some(_) => PilotState::Approved,
    })
}

/// The result of the pilot of a job.
///
/// # Errors
/// When the job was removed, or the store cannot be read.
pub async fn result(store: &dyn Store, job: JobId) -> Result<PilotResult, OpsError> {
    let record = existing(store, job).await?;
    let totals = JobTotals::of(store, &record).await?;
    Ok(PilotResult {
        items: record.counts.ended(),
        failed: record.counts.failed,
        rest: record.job.items.saturating_sub(record.counts.ended()),
        cost: totals.cost,
        took: totals.work,
    })
}

/// Pauses a job whose pilot has ended, so that its state shows what it waits for.
///
/// # Errors
/// When the store cannot be written.
pub async fn wait_for_approval(store: &dyn Store, job: JobId) -> Result<(), OpsError> {
    store.configure(&queue_of(job), vec![QueueChange::Pause(PAUSED.to_owned())]).await?;
    Ok(())
}

/// Lets the other items of a job run. Returns how many wait.
///
/// # Errors
/// When there is no such job, or it has no pilot to approve.
pub async fn approve(store: &dyn Store, name: &str) -> Result<JobActionView, OpsError> {
    let record = find(store, name).await?;
    let id = record.job.id;
    let waiting = match state(store, &record).await? {
        PilotState::None | PilotState::Cancelled => return Err(Refusal::NothingToApprove(id).into()),
        PilotState::Running | PilotState::Waiting => {
            store.cancel(vec![approval_of(id)]).await?;
            release_all_dependents(store).await?;
            record.counts.open()
        }
        PilotState::Approved => 0,
    };
    if record.paused.as_deref() == Some(PAUSED) {
        store.configure(&queue_of(id), vec![QueueChange::Resume]).await?;
    }
    Ok(JobActionView::new(id, JobAction::Approved, waiting))
}

/// Cancels the items that wait for an approval. Returns their number.
///
/// # Errors
/// When there is no such job, or its pilot does not wait.
pub async fn reject(store: &dyn Store, name: &str) -> Result<JobActionView, OpsError> {
    let record = find(store, name).await?;
    let id = record.job.id;
    match state(store, &record).await? {
        PilotState::Running | PilotState::Waiting => {}
        PilotState::None | PilotState::Approved | PilotState::Cancelled => {
            return Err(Refusal::NothingToApprove(id).into());
        }
    }
    let items = cancel_tasks(store, id).await?;
    Ok(JobActionView::new(id, JobAction::Rejected, items as u64))
}
