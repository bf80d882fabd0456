//! What is done to tasks and to the queue from outside: look, replay, amend, pause.

use ostler_core::{Overrides, TaskId, Timestamp};
use ostler_store::calls::{QueueChange, Replay, ReplayAnswer};
use ostler_store::plans::Amended;
use ostler_store::views::{Cursor, Filter, Page};
use ostler_store::{Clock as _, SystemClock};

use crate::error::WaitError;
use crate::pool::Pool;

impl Pool {
    /// This moment, for what is said about others: `pool.now().after(time)`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// Tasks that match, the newest first; those of the pool's queue, unless the filter names another. A page has at most
    /// `limit` of them, and a thousand at most; it says where the next one begins.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, WaitError> {
        let queue = filter.queue.clone().or_else(|| Some(self.queue().to_owned()));
        Ok(self.store().list(Filter { queue, ..filter }, after, limit).await?)
    }

    /// Gives a failed or cancelled task another life, and a waiting one its turn now. One that is completed, or runs, is
    /// left as it is, and the answer says so.
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

    /// Says something else about the tries and the time of a task that has not ended. What is left out stays as it was. It holds
    /// for the end of an attempt that runs, too.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn amend(&self, id: TaskId, overrides: Overrides) -> Result<Amended, WaitError> {
        match self.store().amend(id, overrides).await? {
            Amended::NotFound => Err(WaitError::NotFound(id)),
            answer @ (Amended::Done | Amended::Ended(_)) => Ok(answer),
        }
    }

    /// Nothing of the queue begins, in whatever process, until it is resumed. The reason is for whoever finds it paused.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn pause(&self, reason: impl Into<String>) -> Result<(), WaitError> {
        self.store().configure(self.queue(), vec![QueueChange::Pause(reason.into())]).await?;
        Ok(())
    }

    /// The queue is served again.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn resume(&self) -> Result<(), WaitError> {
        self.store().configure(self.queue(), vec![QueueChange::Resume]).await?;
        Ok(())
    }
}
