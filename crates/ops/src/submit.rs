//! Submissions: tasks to enqueue, one or many, with times relative to the store's clock and dependencies by name; and waiting for it.

use std::time::Duration;

use ostler_core::{Task, TaskId, Timestamp};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::views::TaskRef;
use ostler_store::{Bounds, MAX_AFTER, Store, check_len, check_replacement};
use ostler_wire::task::{ObstacleView, SubmitResult, Submitted, SubmittedLine};
use tokio::time::Instant;

use crate::error::{Missing, OpsError, Refusal, Unsuccessful};
use crate::obstacle::{Candidate, ObstacleWatch, obstacles};
use crate::task_name::NamedTask;

/// The interval between two looks at what keeps a task from starting, while a caller waits for it.
pub const LOOK: Duration = Duration::from_secs(2);

/// A task to submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitRequest {
    /// Everything that needs no store.
    pub task: NewTask,
    /// Not due before this has passed, by the clock of the store.
    pub delay: Option<Duration>,
    /// No attempt starts after this has passed, by the clock of the store.
    pub deadline: Option<Duration>,
    /// The tasks to wait for; keys and parts of ids are looked up now.
    pub after: Vec<NamedTask>,
}

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitAnswer {
    Created(TaskId),
    /// The same task was submitted before, with this id.
    SameId(TaskId),
    /// Another task has the unique key, and stays.
    SameKey(TaskId),
    /// The waiting task with the unique key was replaced.
    Replaced(TaskId),
    /// Another task has the unique key, and nothing was enqueued.
    Rejected(TaskId),
}

impl SubmitAnswer {
    /// The task that exists now.
    #[must_use]
    pub const fn id(self) -> TaskId {
        match self {
            Self::Created(id)
            | Self::SameId(id)
            | Self::SameKey(id)
            | Self::Replaced(id)
            | Self::Rejected(id) => id,
        }
    }

    #[must_use]
    pub const fn result(self) -> SubmitResult {
        match self {
            Self::Created(_) => SubmitResult::Created,
            Self::SameId(_) | Self::SameKey(_) => SubmitResult::Existing,
            Self::Replaced(_) => SubmitResult::Replaced,
            Self::Rejected(_) => SubmitResult::Rejected,
        }
    }

    #[must_use]
    pub fn view(self) -> Submitted {
        Submitted::new(self.id(), self.result())
    }
}

impl SubmitRequest {
    /// Refuses what no store would take. `now` is the caller's time: the store's is not known yet.
    ///
    /// # Errors
    /// A sentence that names the field and its range.
    pub fn check(&self, bounds: Bounds, now: Timestamp) -> Result<(), OpsError> {
        check_len("tasks to wait for by one", self.after.len(), MAX_AFTER)?;
        check_replacement(self.task.unique.as_ref(), self.after.len())?;
        bounds.check_tasks(std::slice::from_ref(&self.at(now)))?;
        Ok(())
    }

    /// The task, if it is submitted at this time.
    fn at(&self, now: Timestamp) -> NewTask {
        NewTask {
            run_at: self.delay.map(|delay| now.after(delay)).or(self.task.run_at),
            deadline: self.deadline.map(|time| now.after(time)).or(self.task.deadline),
            ..self.task.clone()
        }
    }
}

/// Why a task was not enqueued, although the store took the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotEnqueued {
    /// The id belongs to different work.
    IdTaken {
        id: TaskId,
        queue: String,
        kind: String,
    },
    /// A task to wait for does not exist.
    NoSuchTask(TaskId),
    QueueFull {
        queue: String,
        limit: u64,
    },
}

/// The view of the answer to one line of many.
#[must_use]
pub fn line_view(line: u64, answer: &Result<SubmitAnswer, NotEnqueued>) -> SubmittedLine {
    let (id, result) = match answer {
        Ok(answer) => (Some(answer.id()), answer.result()),
        Err(NotEnqueued::IdTaken { id, .. }) => (Some(*id), SubmitResult::IdTaken),
        Err(NotEnqueued::NoSuchTask(_)) => (None, SubmitResult::NoSuchTask),
        Err(NotEnqueued::QueueFull { .. }) => (None, SubmitResult::QueueFull),
    };
    SubmittedLine::new(line, id, result)
}

impl From<NotEnqueued> for OpsError {
    fn from(why: NotEnqueued) -> Self {
        match why {
            NotEnqueued::IdTaken { id, queue, kind } => Refusal::IdTaken { id, queue, kind }.into(),
            NotEnqueued::NoSuchTask(id) => Missing::Dependency(id).into(),
            NotEnqueued::QueueFull { queue, limit } => Self::QueueFull { queue, limit },
        }
    }
}

/// Enqueues a task.
///
/// # Errors
/// When its queue is full, its id belongs to different work, or a task to wait for does not exist. Nothing was enqueued then.
pub async fn submit(store: &dyn Store, request: &SubmitRequest) -> Result<SubmitAnswer, OpsError> {
    let task = prepared(store, request, &mut None).await?;
    let answers = store.enqueue(vec![task.clone()]).await?;
    let answer = *answers.first().expect("one task has one answer");
    Ok(answered(store, &task, answer).await??)
}

/// A batch that could not be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// This request, by its place, names a task that is not there. Nothing was enqueued.
    Request(usize, OpsError),
    /// Nothing was enqueued.
    Store(OpsError),
    /// The batch was stored, but a task that has the id of a request could not be read for comparison.
    Comparison(OpsError),
}

/// Enqueues many tasks in one call of the store: all that it takes are durable, or none. There is an answer for each request.
///
/// # Errors
/// When a task to wait for cannot be found by its name, or the store fails.
pub async fn submit_batch(
    store: &dyn Store,
    requests: &[SubmitRequest],
) -> Result<Vec<Result<SubmitAnswer, NotEnqueued>>, BatchError> {
    let (mut tasks, mut now) = (Vec::with_capacity(requests.len()), None);
    for (place, request) in requests.iter().enumerate() {
        let task = prepared(store, request, &mut now).await;
        tasks.push(task.map_err(|error| BatchError::Request(place, error))?);
    }
    let answers = store.enqueue(tasks.clone()).await.map_err(|error| BatchError::Store(error.into()))?;
    let mut all = Vec::with_capacity(tasks.len());
    for (task, answer) in tasks.iter().zip(answers) {
        all.push(answered(store, task, answer).await.map_err(BatchError::Comparison)?);
    }
    Ok(all)
}

/// The task with times by the store's clock, which may be another machine's, and the ids of the tasks to wait for. `now` is read once.
async fn prepared(
    store: &dyn Store,
    request: &SubmitRequest,
    now: &mut Option<Timestamp>,
) -> Result<NewTask, OpsError> {
    let mut task = match (request.delay, request.deadline, *now) {
        (None, None, _) => request.task.clone(),
        (Some(_), _, Some(now)) | (_, Some(_), Some(now)) => request.at(now),
        (Some(_), _, None) | (_, Some(_), None) => request.at(*now.insert(store.now().await?)),
    };
    for other in &request.after {
        task.after.push(other.id(store).await?);
    }
    Ok(task)
}

async fn answered(
    store: &dyn Store,
    task: &NewTask,
    answer: Enqueued,
) -> Result<Result<SubmitAnswer, NotEnqueued>, OpsError> {
    Ok(match answer {
        Enqueued::Created(id) => Ok(SubmitAnswer::Created(id)),
        Enqueued::Existing(id) if id == task.id => match other_work(store, task).await? {
            Some(Task { queue, kind, .. }) => Err(NotEnqueued::IdTaken { id, queue, kind }),
            None => Ok(SubmitAnswer::SameId(id)),
        },
        Enqueued::Existing(id) => Ok(SubmitAnswer::SameKey(id)),
        Enqueued::Replaced(id) => Ok(SubmitAnswer::Replaced(id)),
        Enqueued::Rejected { holder } => Ok(SubmitAnswer::Rejected(holder)),
        Enqueued::NoSuchTask(id) => Err(NotEnqueued::NoSuchTask(id)),
        Enqueued::QueueFull { limit } => Err(NotEnqueued::QueueFull { queue: task.queue.clone(), limit }),
    })
}

/// The task with this id, if it is different work: the payload of the new one would be lost silently.
async fn other_work(store: &dyn Store, task: &NewTask) -> Result<Option<Task>, OpsError> {
    let found = store.show(TaskRef::Id(task.id)).await?;
    Ok(found.map(|found| found.task).filter(|found| !task.is_repeated_by(found)))
}

/// Waits until a task has ended, at most for `bound` if there is one.
///
/// # Errors
/// When the task is removed, or has not ended in time.
pub async fn wait(store: &dyn Store, id: TaskId, bound: Option<Duration>) -> Result<Task, OpsError> {
    within(bound, id, until_ended(store, id, None)).await
}

/// The same, and reports what keeps the task from starting: each reason once, and again when it returns.
///
/// # Errors
/// When the task is removed, or has not ended in time.
pub async fn wait_and_tell(
    store: &dyn Store,
    id: TaskId,
    bound: Option<Duration>,
    tell: &mut (dyn FnMut(&ObstacleView) + Send),
) -> Result<Task, OpsError> {
    within(bound, id, until_ended(store, id, Some(tell))).await
}

async fn within(
    bound: Option<Duration>,
    id: TaskId,
    ended: impl Future<Output = Result<Task, OpsError>>,
) -> Result<Task, OpsError> {
    match bound {
        None => ended.await,
        Some(bound) => {
            let in_time = tokio::time::timeout(bound, ended).await;
            in_time.unwrap_or_else(|_| Err(Unsuccessful::NotFinished(id).into()))
        }
    }
}

async fn until_ended(
    store: &dyn Store,
    id: TaskId,
    mut tell: Option<&mut (dyn FnMut(&ObstacleView) + Send)>,
) -> Result<Task, OpsError> {
    let (mut changes, mut watch) = (store.changes(), ObstacleWatch::default());
    let mut next_look = Instant::now();
    loop {
        let task = store.show(TaskRef::Id(id)).await?.ok_or(Missing::Removed(id))?.task;
        if task.state.name().is_terminal() {
            return Ok(task);
        }
        if let Some(tell) = tell.as_mut().filter(|_| Instant::now() >= next_look) {
            next_look = Instant::now() + LOOK;
            let survey = store.survey().await?;
            let found = obstacles(&survey, &Candidate::from(&task), store.now().await?);
            watch.news(found).iter().for_each(tell);
        }
        changes.wait().await;
    }
}
