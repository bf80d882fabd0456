//! Administration of tasks and of the queue: list, show, replay, drop, amend, pause, resume.

use ostler_core::{Overrides, StateName, TaskId, Timestamp};
use ostler_store::calls::Amended;
use ostler_store::calls::{Prune, QueueChange, Replay, ReplayAnswer};
use ostler_store::events::{Event, EventQuery};
use ostler_store::views::{Cursor, Filter, Page, TaskDetail, TaskRef, WorkerRecord};
use ostler_store::{Clock as _, MAX_PAGE, SystemClock};

use crate::error::WaitError;
use crate::pool::Pool;

impl Pool {
    /// Returns the current time, for example to compute a `run_at`: `pool.now().after(delay)`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// Lists the tasks that match the filter, newest first. Without a queue in the filter, only tasks of the pool's queue
    /// are listed. A page holds at most `limit` tasks, and never more than a thousand; its cursor leads to the next page.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, WaitError> {
        let queue = filter.queue.clone().or_else(|| Some(self.queue().to_owned()));
        Ok(self.store().list(Filter { queue, ..filter }, after, limit).await?)
    }

    /// Returns a task with its attempts, each with its times and its failure, and its steps.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub async fn show(&self, id: TaskId) -> Result<TaskDetail, WaitError> {
        self.store().show(TaskRef::Id(id)).await?.ok_or(WaitError::NotFound(id))
    }

    /// Returns the events of a task with a number above `after`, in order: log lines, progress, conversations, warnings and the
    /// files that attempts left. At most `limit`, and never more than a thousand; fewer where their texts are long, and none only
    /// if there are no more.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn events(&self, id: TaskId, after: u64, limit: usize) -> Result<Vec<Event>, WaitError> {
        Ok(self
            .store()
            .read_events(id, EventQuery { after, limit: limit.min(MAX_PAGE), ..EventQuery::default() })
            .await?)
    }

    /// Returns the workers that serve the queue, in any process, as their nodes have last reported them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>, WaitError> {
        let mut workers = self.store().survey().await?.workers;
        workers.retain(|record| record.worker.pool == self.queue());
        Ok(workers)
    }

    /// Requeues a failed or cancelled task, and makes a waiting one due now. A completed or running task stays unchanged,
    /// and the answer is [`ReplayAnswer::Refused`].
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn replay(&self, id: TaskId, how: Replay) -> Result<ReplayAnswer, WaitError> {
        match self.store().replay(vec![id], how).await?.as_slice() {
            [ReplayAnswer::NotFound] => Err(WaitError::NotFound(id)),
            [answer] => Ok(*answer),
            other => unreachable!("one task has one answer, and not {other:?}"),
        }
    }

    /// Removes a dead letter, with its attempts, steps and events, and returns the state in which the task was found. A task
    /// that has not failed stays.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn drop_dead_letter(&self, id: TaskId) -> Result<StateName, WaitError> {
        let state = self.get(id).await?.state.name();
        if state == StateName::Failed {
            self.store().prune(Prune::Tasks(vec![id])).await?;
        }
        Ok(state)
    }

    /// Changes attempts, backoff and timeout of a task that has not finished. Values that are `None` stay unchanged. The
    /// change also applies when the outcome of a running attempt is decided.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn amend(&self, id: TaskId, overrides: Overrides) -> Result<Amended, WaitError> {
        match self.store().amend(id, overrides).await? {
            Amended::NotFound => Err(WaitError::NotFound(id)),
            answer @ (Amended::Done | Amended::Ended(_)) => Ok(answer),
        }
    }

    /// Pauses the queue for all processes: no task of it starts until [`resume`](Self::resume). The reason is shown with
    /// the queue.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn pause(&self, reason: impl Into<String>) -> Result<(), WaitError> {
        self.store().configure(self.queue(), vec![QueueChange::Pause(reason.into())]).await?;
        Ok(())
    }

    /// Resumes the paused queue.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn resume(&self) -> Result<(), WaitError> {
        self.store().configure(self.queue(), vec![QueueChange::Resume]).await?;
        Ok(())
    }
}
