//! Synthesis: one last task of a job, with a prompt over the results of all items. It is enqueued when they have ended.

use ostler_core::{JobId, cut};
use ostler_store::Store;
use ostler_store::jobs::JobRecord;
use serde_json::{Value, json};

use super::find::existing;
use super::item::Item;
use super::plan::{ItemWork, JobPlan, PlanError, PlanRequest, PoolWork, RenderPrompt, enqueue};
use super::results::JobResults;
use super::spec::{JobPool, JobSpec};
use crate::error::OpsError;

/// What stands for the item of the task.
pub const ITEM: &str = "(synthesis)";
/// The least that is kept of an output, however many there are.
const MIN_OUTPUT_BYTES: usize = 200;

/// The pool of a job whose items have all ended, and whose synthesis is not enqueued yet.
#[must_use]
pub fn due(record: &JobRecord) -> Option<JobPool> {
    let pool = JobSpec::of(record)?.pool.filter(|pool| pool.synthesis.is_some())?;
    let (counts, others) = (&record.counts, record.job.items.saturating_sub(1));
    let due = counts.open() == 0 && counts.submitted() == others && record.cancelled_at.is_none();
    due.then_some(pool)
}

/// The results of a job for a prompt: number, item, state, output and error of each item. Outputs are cut so that all of them have
/// at most half of `payload_bytes`.
///
/// # Errors
/// When the store cannot be read.
pub async fn results(store: &dyn Store, job: JobId, payload_bytes: usize) -> Result<Vec<Value>, OpsError> {
    let mut found = JobResults::of(store, job).await?;
    let count = usize::try_from(found.last().max(1)).unwrap_or(usize::MAX);
    let most = (payload_bytes / 2 / count).max(MIN_OUTPUT_BYTES);
    let mut rows = Vec::new();
    while let Some(result) = found.next(store).await? {
        let view = result.view();
        let output = view.output.as_deref().map(|output| cut(output, most));
        let (number, item, state, error) = (view.number, view.item, view.state, view.error);
        rows.push(json!({"number": number, "item": item, "state": state, "output": output, "error": error}));
    }
    Ok(rows)
}

/// Enqueues the synthesis of a job, with this prompt.
///
/// # Errors
/// When the prompt is too long, the job was removed, or the store cannot be written.
pub async fn enqueue_last(
    store: &dyn Store,
    job: JobId,
    pool: JobPool,
    prompt: RenderPrompt,
    payload_bytes: usize,
) -> Result<Result<(), PlanError>, OpsError> {
    let record = existing(store, job).await?;
    let folder = JobSpec::of(&record).map(|spec| spec.folder).unwrap_or_default();
    let request = PlanRequest {
        name: record.job.name.clone(),
        work: ItemWork::Pool(PoolWork { pool, prompt: Some(prompt), payload_bytes }),
        items: vec![Item::plain(ITEM)],
        columns: Vec::new(),
        folder,
        // It is no item: it works in the folder of the job.
        item_folders: None,
        shell: None,
        timeout_ms: None,
        pilot: None,
        before: record.job.items.saturating_sub(1),
    };
    match JobPlan::new(request) {
        Ok(plan) => enqueue(store, &plan, job).await.map(|_| Ok(())),
        Err(error) => Ok(Err(error)),
    }
}
