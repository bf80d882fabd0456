//! Jobs that a running node serves: created from items over one of its pools, and given more items.

use ostler_core::{Budget, JobId};
use ostler_store::Store;
use ostler_store::calls::QueueChange;
use ostler_store::jobs::{JobPut, queue_of};
use ostler_wire::job::{JobAction, JobActionView};

use super::find::{existing, find};
use super::item::Item;
use super::plan::{ItemWork, JobPlan, PlanError, PlanRequest, PoolWork, add, enqueue};
use super::spec::{JobPool, JobSpec, ServedBy};
use crate::budgets;
use crate::error::{OpsError, Refusal};
use crate::input::JobRequest;

/// What became of a job to create.
#[derive(Clone, Debug)]
pub enum CreatedJob {
    Enqueued(JobActionView),
    /// The id belongs to a job that was made from something else.
    OtherJob(JobId),
    /// An item cannot be made into a task.
    Refused(PlanError),
}

/// Creates a job with this id, and enqueues its items. Repeating it goes on where it was.
///
/// # Errors
/// When it has a budget and it is not known what its items cost, or the store cannot be written.
pub async fn create(store: &dyn Store, request: JobRequest, id: JobId) -> Result<CreatedJob, OpsError> {
    let JobRequest { plan, concurrency, attempts, max_cost } = request;
    let plan = match JobPlan::new(plan) {
        Ok(plan) => plan,
        Err(error) => return Ok(CreatedJob::Refused(error)),
    };
    if max_cost.is_some()
        && let Some(pool) = plan.pool().and_then(JobPool::priced_by)
    {
        budgets::check(store, &[pool]).await?;
    }
    let job = plan.job(id, &plan.spec(ServedBy::Node, concurrency, attempts));
    match store.put_job(job.clone()).await? {
        JobPut::Created => {}
        JobPut::Existing => {
            let there = existing(store, id).await?.job;
            if (there.fingerprint, there.spec) != (job.fingerprint, job.spec) {
                return Ok(CreatedJob::OtherJob(id));
            }
        }
    }
    if let Some(total) = max_cost {
        let budget = Budget { total: Some(total), ..Budget::default() };
        store.configure(&queue_of(id), vec![QueueChange::Budget(Some(budget))]).await?;
    }
    let items = enqueue(store, &plan, id).await?;
    Ok(CreatedJob::Enqueued(JobActionView::new(id, JobAction::Enqueued, items)))
}

/// Adds items to a job over a pool that renders no prompts.
///
/// # Errors
/// When there is no such job, it was made in another way, or the store cannot be written.
pub async fn add_items(
    store: &dyn Store,
    name: &str,
    items: Vec<Item>,
    payload_bytes: usize,
) -> Result<Result<JobActionView, PlanError>, OpsError> {
    let record = find(store, name).await?;
    let id = record.job.id;
    let spec = JobSpec::of(&record);
    let pool = spec.as_ref().and_then(|spec| spec.pool.clone()).filter(|pool| pool.prompt.is_none());
    let (Some(spec), Some(pool)) = (spec, pool) else { return Err(Refusal::OtherItems(id).into()) };
    let request = PlanRequest {
        name: record.job.name.clone(),
        work: ItemWork::Pool(PoolWork { pool, prompt: None, payload_bytes }),
        items,
        columns: Vec::new(),
        folder: spec.folder,
        item_folders: spec.item_folders,
        shell: None,
        timeout_ms: spec.timeout_ms.map(u128::from),
        pilot: None,
        before: record.job.items,
    };
    match JobPlan::new(request) {
        Err(error) => Ok(Err(error)),
        Ok(plan) => {
            let added = add(store, &plan, id).await?;
            Ok(Ok(JobActionView::new(id, JobAction::Added, added)))
        }
    }
}
