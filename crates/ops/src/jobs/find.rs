//! Jobs found by id, by name or by fingerprint, their views, and who runs them.

use ostler_core::{Cost, IdPart, JobId, State, StateName};
use ostler_store::jobs::{JobFilter, JobRecord, queue_of};
use ostler_store::views::{Filter, Liveness, NodeRecord, Survey};
use ostler_store::{Error, Store};
use ostler_wire::job::JobView;

use super::spec::{ItemPayload, JobSpec, ServedBy};
use super::totals::JobTotals;
use crate::error::{Missing, OpsError, Refusal};
use crate::overview::Overview;
use crate::published;

/// Jobs per page.
const PAGE: usize = 100;
/// The maximum number of jobs searched for a name.
const MAX_LOOKED: usize = 100_000;
/// Ids listed when a part of an id fits several jobs.
const MAX_CANDIDATES: usize = 5;
/// The maximum number of failed items that are shown with a job.
const MAX_FAILED_SHOWN: usize = 20;

/// Finds the job with this id, or the newest with this name, or the only one whose id begins or ends like this.
///
/// # Errors
/// When there is none, or several have this part in their id.
pub async fn find(store: &dyn Store, wanted: &str) -> Result<JobRecord, OpsError> {
    if let Ok(id) = wanted.parse::<JobId>()
        && let Some(found) = by_id(store, id).await?
    {
        return Ok(found);
    }
    let part: Option<IdPart> = wanted.parse().ok();
    let mut candidates = Vec::new();
    let mut before = None;
    for _ in 0..MAX_LOOKED / PAGE {
        let page = store.jobs(JobFilter { before, ..JobFilter::default() }, PAGE).await?;
        before = page.last().map(|record| record.job.id);
        for record in page {
            if record.job.name == wanted {
                return Ok(record);
            }
            let is_candidate = part.is_some_and(|part| part.matches(record.job.id.0));
            if is_candidate && candidates.len() < MAX_CANDIDATES {
                candidates.push(record);
            }
        }
        if before.is_none() {
            break;
        }
    }
    match (candidates.pop(), candidates.as_slice()) {
        (Some(found), []) => Ok(found),
        (Some(last), others) => {
            let jobs = others.iter().chain([&last]).map(|record| record.job.id).collect();
            Err(Refusal::SeveralJobs { part: wanted.to_owned(), jobs }.into())
        }
        (None, _) => Err(Missing::Job(wanted.to_owned()).into()),
    }
}

/// # Errors
/// When the store cannot be read.
pub async fn by_id(store: &dyn Store, id: JobId) -> Result<Option<JobRecord>, Error> {
    Ok(store.jobs(JobFilter { id: Some(id), ..JobFilter::default() }, 1).await?.pop())
}

/// The job with this id, which was there before.
///
/// # Errors
/// When it was removed.
pub async fn existing(store: &dyn Store, id: JobId) -> Result<JobRecord, OpsError> {
    Ok(by_id(store, id).await?.ok_or(Missing::JobRemoved(id))?)
}

/// The newest job with this fingerprint.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn made_from(store: &dyn Store, fingerprint: String) -> Result<Option<JobRecord>, Error> {
    let filter = JobFilter { fingerprint: Some(fingerprint), ..JobFilter::default() };
    Ok(store.jobs(filter, 1).await?.pop())
}

/// The newest jobs.
///
/// # Errors
/// When the store cannot be read.
pub async fn list(store: &dyn Store, limit: usize) -> Result<Vec<JobView>, OpsError> {
    page(store, None, limit).await
}

/// The newest jobs of those that are older than this one: the last of the previous page.
///
/// # Errors
/// When the store cannot be read.
pub async fn page(store: &dyn Store, before: Option<JobId>, limit: usize) -> Result<Vec<JobView>, OpsError> {
    let filter = JobFilter { before, ..JobFilter::default() };
    Ok(store.jobs(filter, limit).await?.iter().map(view).collect())
}

#[must_use]
pub fn view(record: &JobRecord) -> JobView {
    let spec = JobSpec::of(record);
    let command = spec.as_ref().map(JobSpec::shown).unwrap_or_default();
    let pilot = spec.as_ref().and_then(|spec| spec.pilot);
    let folder = spec.map(|spec| spec.folder).filter(|folder| !folder.is_empty());
    JobView { pilot, ..JobView::new(record, command, folder) }
}

/// A failed item of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedItem {
    pub item: String,
    pub error: String,
}

/// A job, and some of its failed items.
///
/// # Errors
/// When there is no such job.
pub async fn show(store: &dyn Store, name: &str) -> Result<(JobView, Vec<FailedItem>), OpsError> {
    let record = find(store, name).await?;
    let totals = JobTotals::of(store, &record).await?;
    let view = JobView {
        cost_usd: totals.cost.map(Cost::usd),
        budget: Overview::take(store)
            .await?
            .queue(&queue_of(record.job.id))
            .ok()
            .and_then(|view| view.budget),
        duration_ms: totals.span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        ..view(&record)
    };
    let (queue, state) = (Some(view.queue.clone()), Some(StateName::Failed));
    let failed = store.list(Filter { queue, state, ..Filter::default() }, None, MAX_FAILED_SHOWN).await?;
    let failed = failed.tasks.iter().map(|task| FailedItem {
        item: ItemPayload::of(&task.payload)
            .map_or_else(|| task.id.to_string(), |payload| payload.item.shown()),
        error: task.last_failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default(),
    });
    Ok((view, failed.collect()))
}

/// The live node that serves a job, if any: a mapping process, or a node that serves jobs.
#[must_use]
pub fn server(survey: &Survey, job: JobId) -> Option<&NodeRecord> {
    let queue = queue_of(job);
    let serves = |node: &&NodeRecord| {
        published::queues(node).contains(&queue)
            || survey.workers.iter().any(|at| at.session == node.session && at.worker.pool == queue)
    };
    survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive).find(serves)
}

/// The same, also when the node holds tasks of the job and has not reported its workers yet.
///
/// # Errors
/// When the store cannot be read.
pub async fn serving(store: &dyn Store, job: JobId) -> Result<Option<NodeRecord>, Error> {
    let survey = store.survey().await?;
    if let Some(node) = server(&survey, job) {
        return Ok(Some(node.clone()));
    }
    for state in [StateName::Claimed, StateName::Running] {
        let filter = Filter { queue: Some(queue_of(job)), state: Some(state), ..Filter::default() };
        for task in store.list(filter, None, 1).await?.tasks {
            if let State::Claimed { session, .. } | State::Running { session, .. } = task.state {
                let holds = |node: &NodeRecord| node.session == session && node.liveness == Liveness::Alive;
                return Ok(survey.nodes.into_iter().find(holds));
            }
        }
    }
    Ok(None)
}

/// Who has to run the items of a job that no process is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRunner {
    /// A node that serves jobs.
    Node,
    /// The same `ostler map` command again, in this folder if it is known.
    Mapper { folder: Option<String> },
    /// The program that made it with the library.
    Program,
}

impl JobRunner {
    #[must_use]
    pub fn of(record: &JobRecord) -> Self {
        let spec = JobSpec::of(record);
        match spec.as_ref().map(|spec| spec.served_by) {
            Some(ServedBy::Node) => Self::Node,
            Some(ServedBy::Program) => Self::Program,
            Some(ServedBy::Mapper) | None => Self::Mapper { folder: spec.map(|spec| spec.folder) },
        }
    }

    /// Who has to run the waiting items of a job; `None` if a process is running it, or none waits.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn awaited(store: &dyn Store, id: JobId) -> Result<Option<Self>, OpsError> {
        if serving(store, id).await?.is_some() {
            return Ok(None);
        }
        let waiting = by_id(store, id).await?.filter(|record| record.counts.queued > 0);
        Ok(waiting.as_ref().map(Self::of))
    }
}
