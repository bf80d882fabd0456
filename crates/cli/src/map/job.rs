//! Jobs in the store: found by id, by name, or by fingerprint; and their state.

use ostler_core::{JobId, StateName, TaskId};
use ostler_store::calls::{Prune, Replay, ReplayAnswer};
use ostler_store::jobs::{JobAnswer, JobChange, JobFilter, JobRecord, queue_of};
use ostler_store::views::{Filter, Liveness, NodeRecord, Survey};
use ostler_store::{MAX_MAINTENANCE_BATCH, MAX_PAGE, Store, release_all_dependents};
use ostler_wire::job::JobState;

use super::progress::ended;
use crate::exit::{Code, refused};

/// Jobs per page.
const PAGE: usize = 100;
/// The maximum number of jobs searched for a name.
const MAX_LOOKED: usize = 100_000;
/// Tasks removed in one batch.
const BITE: usize = 500;
/// The maximum number of batches in which tasks are taken from dead nodes.
const MAX_BITES: usize = 1_000;

/// Finds the job with this id, or the newest with this name.
pub(crate) async fn find(store: &dyn Store, wanted: &str) -> anyhow::Result<JobRecord> {
    let not_found = || refused(Code::NotFound, format!("there is no job \"{wanted}\"; see: ostler job ls"));
    if let Ok(id) = wanted.parse::<JobId>()
        && let Some(found) = by_id(store, id).await?
    {
        return Ok(found);
    }
    let mut before = None;
    for _ in 0..MAX_LOOKED / PAGE {
        let page = store.jobs(JobFilter { before, ..JobFilter::default() }, PAGE).await?;
        before = page.last().map(|record| record.job.id);
        if let Some(found) = page.into_iter().find(|record| record.job.name == wanted) {
            return Ok(found);
        }
        if before.is_none() {
            return Err(not_found());
        }
    }
    Err(not_found())
}

pub(crate) async fn by_id(store: &dyn Store, id: JobId) -> anyhow::Result<Option<JobRecord>> {
    Ok(store.jobs(JobFilter { id: Some(id), ..JobFilter::default() }, 1).await?.pop())
}

/// The newest job with this fingerprint.
pub(crate) async fn made_from(store: &dyn Store, fingerprint: String) -> anyhow::Result<Option<JobRecord>> {
    let filter = JobFilter { fingerprint: Some(fingerprint), ..JobFilter::default() };
    Ok(store.jobs(filter, 1).await?.pop())
}

pub(crate) fn state(record: &JobRecord) -> JobState {
    let counts = &record.counts;
    let all_ended = ended(counts) >= record.job.items;
    if counts.completed >= record.job.items {
        JobState::Completed
    } else if record.cancelled_at.is_some() {
        JobState::Cancelled
    } else if all_ended && counts.failed > 0 {
        JobState::Failed
    } else if all_ended {
        JobState::Cancelled
    } else if record.paused.is_some() {
        JobState::Paused
    } else if counts.running + counts.claimed > 0 {
        JobState::Running
    } else {
        JobState::Unfinished
    }
}

/// The tasks of a job in a state.
pub(crate) async fn tasks(store: &dyn Store, job: JobId, state: StateName) -> anyhow::Result<Vec<TaskId>> {
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

/// Replays the job's tasks in these states. Returns their number.
pub(crate) async fn replay(store: &dyn Store, job: JobId, states: &[StateName]) -> anyhow::Result<usize> {
    let mut count = 0;
    for state in states {
        for ids in tasks(store, job, *state).await?.chunks(MAX_PAGE) {
            let answers = store.replay(ids.to_vec(), Replay::default()).await?;
            count += answers.iter().filter(|answer| **answer == ReplayAnswer::Requeued).count();
        }
    }
    Ok(count)
}

/// Cancels the unfinished tasks of a job. Returns their number.
pub(crate) async fn cancel(store: &dyn Store, job: JobId) -> anyhow::Result<usize> {
    // The mark comes first, so that no more tasks are enqueued.
    store.change_job(job, JobChange::Cancel).await?;
    let mut count = 0;
    for state in [StateName::Queued, StateName::Claimed, StateName::Running] {
        for ids in tasks(store, job, state).await?.chunks(MAX_PAGE) {
            count += store.cancel(ids.to_vec()).await?.len();
        }
    }
    release_all_dependents(store).await?;
    Ok(count)
}

/// The job that owns this queue, if any.
pub(crate) fn of_queue(queue: &str) -> Option<JobId> {
    let id = queue.split(' ').next_back()?.parse().ok()?;
    (queue_of(id) == queue).then_some(id)
}

/// The live node that serves a job, if any: a mapping process, or a node that serves jobs.
pub(crate) fn server(survey: &Survey, job: JobId) -> Option<&NodeRecord> {
    let queue = queue_of(job);
    let serves = |node: &&NodeRecord| {
        let brings = serde_json::from_str::<serde_json::Value>(&node.settings)
            .is_ok_and(|settings| settings.get(&queue).is_some());
        brings || survey.workers.iter().any(|at| at.session == node.session && at.worker.pool == queue)
    };
    survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive).find(serves)
}

/// Removes a job that no node is running, with its tasks. Returns their number.
pub(crate) async fn remove(store: &dyn Store, found: &JobRecord) -> anyhow::Result<usize> {
    let id = found.job.id;
    // Tasks held by dead nodes become free.
    for _ in 0..MAX_BITES {
        if !store.expire(MAX_MAINTENANCE_BATCH).await?.more {
            break;
        }
    }
    if let Some(node) = server(&store.survey().await?, id) {
        let sentence = format!(
            "job {id} is running in process {} (node \"{}\"); stop it first: ostler job cancel {id}",
            node.pid, node.name
        );
        return Err(refused(Code::BadInput, sentence));
    }
    cancel(store, id).await?;
    let mut count = 0;
    for state in [StateName::Completed, StateName::Failed, StateName::Cancelled] {
        for ids in tasks(store, id, state).await?.chunks(BITE) {
            count += store.prune(Prune::Tasks(ids.to_vec())).await?.tasks;
        }
    }
    match store.change_job(id, JobChange::Remove).await? {
        JobAnswer::Done | JobAnswer::NotFound => Ok(count),
        JobAnswer::HasTasks => {
            let sentence = format!(
                "removed {count} tasks of job {id}, but some are still running or other tasks depend on them; try again"
            );
            Err(refused(Code::WorkFailed, sentence))
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, Timestamp};
    use ostler_store::jobs::NewJob;
    use ostler_store::views::Counts;

    use super::*;

    #[test]
    fn a_job_stands_where_its_tasks_do() {
        let record = |counts: Counts, paused: Option<&str>, cancelled: Option<i64>| JobRecord {
            job: NewJob {
                id: JobId(Id::from_bits(1)),
                name: "j".to_owned(),
                fingerprint: "f".to_owned(),
                spec: "{}".to_owned(),
                items: 3,
            },
            made_at: Timestamp::ZERO,
            cancelled_at: cancelled.map(Timestamp::from_millis),
            paused: paused.map(ToOwned::to_owned),
            counts,
            pruned: 0,
        };
        let none = Counts::default();
        assert_eq!(state(&record(none, None, None)), JobState::Unfinished);
        assert_eq!(state(&record(Counts { running: 1, ..none }, None, None)), JobState::Running);
        assert_eq!(state(&record(Counts { running: 1, ..none }, Some("x"), None)), JobState::Paused);
        assert_eq!(state(&record(Counts { completed: 3, ..none }, Some("x"), Some(1))), JobState::Completed);
        assert_eq!(state(&record(Counts { completed: 2, failed: 1, ..none }, None, None)), JobState::Failed);
        assert_eq!(
            state(&record(Counts { completed: 2, cancelled: 1, ..none }, None, None)),
            JobState::Cancelled
        );
        assert_eq!(state(&record(none, None, Some(1))), JobState::Cancelled);
    }
}
