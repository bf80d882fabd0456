//! Jobs as a whole: pause, resume, cancel, retry and remove.

use ostler_core::{Budget, Cost, JobId, StateName, TaskId};
use ostler_store::calls::{Prune, QueueChange, Replay, ReplayAnswer, StepsOnReplay};
use ostler_store::jobs::{JobAnswer, JobChange, queue_of};
use ostler_store::views::Filter;
use ostler_store::{MAX_MAINTENANCE_BATCH, MAX_PAGE, Store, release_all_dependents};
use ostler_wire::job::{JobAction, JobActionView};

use super::find::{find, serving};
use super::pilot::{PAUSED, approval_of};
use super::spec::{JobPool, JobSpec};
use crate::budgets;
use crate::error::{Missing, OpsError, Refusal, Unsuccessful};
use crate::nodes::{ResizeRequest, resize};

/// Tasks removed in one batch.
const BITE: usize = 500;
/// The maximum number of batches in which tasks are taken from dead nodes.
const MAX_BITES: usize = 1_000;

/// Starts no item until the job is resumed.
///
/// # Errors
/// When there is no such job.
pub async fn pause(store: &dyn Store, name: &str) -> Result<JobActionView, OpsError> {
    configure(store, name, QueueChange::Pause("paused by hand".to_owned()), JobAction::Paused).await
}

/// Lets the items of a job start again, with this budget if one is given.
///
/// # Errors
/// When there is no such job, or it is not known what its items cost.
pub async fn resume(
    store: &dyn Store,
    name: &str,
    max_cost: Option<Cost>,
) -> Result<JobActionView, OpsError> {
    if max_cost.is_some() {
        let record = find(store, name).await?;
        let queue = queue_of(record.job.id);
        let before = store.queue_settings(&queue).await?;
        let budget = Budget { total: max_cost, ..before.budget.unwrap_or_default() };
        let asked = JobSpec::of(&record).and_then(|spec| spec.pool);
        let pool = asked.as_ref().map_or(before.pool.as_deref(), JobPool::priced_by).unwrap_or(&queue);
        budgets::set(store, &queue, pool, budget).await?;
    }
    configure(store, name, QueueChange::Resume, JobAction::Resumed).await
}

async fn configure(
    store: &dyn Store,
    name: &str,
    change: QueueChange,
    did: JobAction,
) -> Result<JobActionView, OpsError> {
    let record = find(store, name).await?;
    store.configure(&queue_of(record.job.id), vec![change]).await?;
    Ok(JobActionView::new(record.job.id, did, record.counts.open()))
}

/// Lets up to this many items of a job run at once, on each node that runs it, until it is run again.
///
/// # Errors
/// When there is no such job, or no node runs it.
pub async fn set_concurrency(store: &dyn Store, name: &str, items: u32) -> Result<JobActionView, OpsError> {
    let record = find(store, name).await?;
    let id = record.job.id;
    let request = ResizeRequest { pool: queue_of(id), min: 1, max: items };
    match resize(store, &request).await {
        Err(OpsError::Missing(Missing::Pool(_))) => Err(Missing::JobProcess(id).into()),
        done => done.map(|_| JobActionView::new(id, JobAction::Resized, record.counts.open())),
    }
}

/// Cancels the unfinished tasks of a job.
///
/// # Errors
/// When there is no such job.
pub async fn cancel(store: &dyn Store, name: &str) -> Result<JobActionView, OpsError> {
    let id = find(store, name).await?.job.id;
    let tasks = cancel_tasks(store, id).await?;
    Ok(JobActionView::new(id, JobAction::Cancelled, tasks as u64))
}

/// Replays the failed tasks of a job.
///
/// # Errors
/// When there is no such job.
pub async fn retry_failed(
    store: &dyn Store,
    name: &str,
    steps: StepsOnReplay,
) -> Result<JobActionView, OpsError> {
    let record = find(store, name).await?;
    let id = record.job.id;
    store.change_job(id, JobChange::Reopen).await?;
    let tasks = replay_tasks(store, id, &[StateName::Failed], steps).await?;
    // The items of a pilot run again; the others wait on.
    if tasks > 0 && record.paused.as_deref() == Some(PAUSED) {
        store.configure(&queue_of(id), vec![QueueChange::Resume]).await?;
    }
    Ok(JobActionView::new(id, JobAction::Retried, tasks as u64))
}

/// Removes a job that no node is running, with its tasks.
///
/// # Errors
/// When there is no such job, a node is running it, or some of its tasks cannot be removed.
pub async fn remove(store: &dyn Store, name: &str) -> Result<JobActionView, OpsError> {
    let id = find(store, name).await?.job.id;
    // Tasks held by dead nodes become free.
    for _ in 0..MAX_BITES {
        if !store.expire(MAX_MAINTENANCE_BATCH).await?.more {
            break;
        }
    }
    if let Some(node) = serving(store, id).await? {
        return Err(Refusal::JobRunning { job: id, pid: node.pid, node: node.name }.into());
    }
    cancel_tasks(store, id).await?;
    let mut removed = 0;
    for state in [StateName::Completed, StateName::Failed, StateName::Cancelled] {
        for ids in tasks(store, id, state).await?.chunks(BITE) {
            removed += store.prune(Prune::Tasks(ids.to_vec())).await?.tasks;
        }
    }
    store.prune(Prune::Tasks(vec![approval_of(id)])).await?;
    match store.change_job(id, JobChange::Remove).await? {
        JobAnswer::Done | JobAnswer::NotFound => {
            Ok(JobActionView::new(id, JobAction::Removed, removed as u64))
        }
        JobAnswer::HasTasks => Err(Unsuccessful::JobHasTasks { job: id, removed }.into()),
    }
}

/// Cancels the unfinished tasks of a job. Returns their number.
///
/// # Errors
/// When the store cannot be written.
pub async fn cancel_tasks(store: &dyn Store, job: JobId) -> Result<usize, OpsError> {
    // The mark comes first, so that no more tasks are enqueued.
    store.change_job(job, JobChange::Cancel).await?;
    let mut count = 0;
    for state in [StateName::Queued, StateName::Claimed, StateName::Running] {
        for ids in tasks(store, job, state).await?.chunks(MAX_PAGE) {
            count += store.cancel(ids.to_vec()).await?.len();
        }
    }
    // Items that waited for this approval are cancelled by now. A job without a pilot has none.
    store.cancel(vec![approval_of(job)]).await?;
    release_all_dependents(store).await?;
    Ok(count)
}

/// Replays the job's tasks in these states. Returns their number.
///
/// # Errors
/// When the store cannot be written.
pub async fn replay_tasks(
    store: &dyn Store,
    job: JobId,
    states: &[StateName],
    steps: StepsOnReplay,
) -> Result<usize, OpsError> {
    let mut count = 0;
    for state in states {
        for ids in tasks(store, job, *state).await?.chunks(MAX_PAGE) {
            let answers = store.replay(ids.to_vec(), Replay { steps, payload: None }).await?;
            count += answers.iter().filter(|answer| **answer == ReplayAnswer::Requeued).count();
        }
    }
    Ok(count)
}

/// The tasks of a job in a state.
///
/// # Errors
/// When the store cannot be read.
pub async fn tasks(store: &dyn Store, job: JobId, state: StateName) -> Result<Vec<TaskId>, OpsError> {
    let filter = Filter { queue: Some(queue_of(job)), state: Some(state), ..Filter::default() };
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(filter.clone(), after, MAX_PAGE).await?;
        ids.extend(page.tasks.iter().map(|task| task.id));
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}
