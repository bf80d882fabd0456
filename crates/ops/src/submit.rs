//! Submissions: a task to enqueue, with times relative to the store's clock and dependencies by name; and waiting for it.

use std::time::Duration;

use ostler_core::{Task, TaskId, Timestamp};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::views::TaskRef;
use ostler_store::{Bounds, MAX_AFTER, Store, check_len, check_replacement};
use ostler_wire::task::{SubmitResult, Submitted};

use crate::error::{Missing, OpsError, Refusal, Unsuccessful};
use crate::task_name::NamedTask;

/// The polling interval of a wait, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(100);

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
    pub fn view(self) -> Submitted {
        let result = match self {
            Self::Created(_) => SubmitResult::Created,
            Self::SameId(_) | Self::SameKey(_) => SubmitResult::Existing,
            Self::Replaced(_) => SubmitResult::Replaced,
            Self::Rejected(_) => SubmitResult::Rejected,
        };
        Submitted::new(self.id(), result)
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

/// Enqueues a task.
///
/// # Errors
/// When its queue is full, its id belongs to different work, or a task to wait for does not exist. Nothing was enqueued then.
pub async fn submit(store: &dyn Store, request: &SubmitRequest) -> Result<SubmitAnswer, OpsError> {
    let mut task = match (request.delay, request.deadline) {
        (None, None) => request.task.clone(),
        // The store's clock decides, and it may be another machine's.
        (Some(_), _) | (_, Some(_)) => request.at(store.now().await?),
    };
    for other in &request.after {
        task.after.push(other.id(store).await?);
    }
    let answers = store.enqueue(vec![task.clone()]).await?;
    match *answers.first().expect("one task has one answer") {
        Enqueued::Created(id) => Ok(SubmitAnswer::Created(id)),
        Enqueued::Existing(id) if id == task.id => {
            is_the_same(store, &task).await?;
            Ok(SubmitAnswer::SameId(id))
        }
        Enqueued::Existing(id) => Ok(SubmitAnswer::SameKey(id)),
        Enqueued::Replaced(id) => Ok(SubmitAnswer::Replaced(id)),
        Enqueued::Rejected { holder } => Ok(SubmitAnswer::Rejected(holder)),
        Enqueued::NoSuchTask(id) => Err(Missing::Dependency(id).into()),
        Enqueued::QueueFull { limit } => Err(OpsError::QueueFull { queue: task.queue, limit }),
    }
}

/// Refuses a task whose id belongs to a different task: its payload would be lost silently.
async fn is_the_same(store: &dyn Store, task: &NewTask) -> Result<(), OpsError> {
    match store.show(TaskRef::Id(task.id)).await? {
        Some(found) if !task.is_repeated_by(&found.task) => {
            let Task { queue, kind, .. } = found.task;
            Err(Refusal::IdTaken { id: task.id, queue, kind }.into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Waits until a task has ended, at most for `bound` if there is one.
///
/// # Errors
/// When the task is removed, or has not ended in time.
pub async fn wait(store: &dyn Store, id: TaskId, bound: Option<Duration>) -> Result<Task, OpsError> {
    let ended = until_ended(store, id);
    match bound {
        None => ended.await,
        Some(bound) => {
            let in_time = tokio::time::timeout(bound, ended).await;
            in_time.unwrap_or_else(|_| Err(Unsuccessful::NotFinished(id).into()))
        }
    }
}

async fn until_ended(store: &dyn Store, id: TaskId) -> Result<Task, OpsError> {
    let mut pause = FIRST_LOOK;
    loop {
        let task = store.show(TaskRef::Id(id)).await?.ok_or(Missing::Removed(id))?.task;
        if task.state.name().is_terminal() {
            return Ok(task);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
}
