//! Administration of tasks and of the queue: list, show, events, files, replay, drop, amend, pause, resume.

use async_trait::async_trait;
use ostler_core::{Account, AccountChange, EventBody, EventKind, EventKinds, Overrides, StateName, TaskId};
use ostler_ops::act::{Act, Acted, Approval, Operator, act};
use ostler_ops::selection::Selector;
use ostler_ops::{OpsError, Refusal};
use ostler_store::accounts::AccountRecord;
use ostler_store::call_breakers::CallBreakerRecord;
use ostler_store::calls::Amended;
use ostler_store::calls::{Prune, QueueChange, Replay, ReplayAnswer};
use ostler_store::costs::{CostQuery, CostRecord};
use ostler_store::events::{Event, EventQuery, TextPart, TextRef};
use ostler_store::views::{Cursor, Filter, GoneWorker, Page, TaskDetail, TaskRef, WorkerRecord};
use ostler_store::{Error, MAX_GONE_WORKERS, MAX_PAGE, Store};

use crate::client::Client;
use crate::error::WaitError;

/// The conversation of an attempt with a model, with its tool calls.
const TRANSCRIPT: EventKinds = EventKinds::only(EventKind::Session)
    .with(EventKind::Prompt)
    .with(EventKind::Message)
    .with(EventKind::Thinking)
    .with(EventKind::ToolCall)
    .with(EventKind::ToolResult)
    .with(EventKind::Result);

impl Client {
    /// Lists the tasks that match the filter, newest first. Without a queue in the filter, only tasks of the client's queue
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

    /// Returns the events of a task that a query selects: some kinds, or with their long texts cut.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read_events(&self, id: TaskId, query: EventQuery) -> Result<Vec<Event>, WaitError> {
        Ok(self.store().read_events(id, query).await?)
    }

    /// Returns all that was said between the attempts of a task and a model, in order: sessions, prompts as they were sent,
    /// messages, reasoning, tool calls with their results, and answers. An event has the token of its attempt's lease.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn transcript(&self, id: TaskId) -> Result<Vec<Event>, WaitError> {
        let (mut all, mut query) = (Vec::new(), EventQuery { kinds: TRANSCRIPT, ..EventQuery::default() });
        loop {
            let page = self.store().read_events(id, query).await?;
            let Some(newest) = page.last() else { return Ok(all) };
            query.after = newest.number;
            all.extend(page);
        }
    }

    /// Returns a part of a long text of a task, its output or the text of an event: up to `most` bytes from position `from`.
    /// `None`: there is no such text.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read_text(
        &self,
        id: TaskId,
        text: TextRef,
        from: u64,
        most: usize,
    ) -> Result<Option<TextPart>, WaitError> {
        Ok(self.store().read_text(id, text, from, most).await?)
    }

    /// Returns the files that the attempts of a task have left, in order.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn files(&self, id: TaskId) -> Result<Vec<TaskFile>, WaitError> {
        Ok(files_of(self.store(), id).await?)
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

    /// Returns the last records of workers of the queue that are gone, the newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn gone_workers(&self) -> Result<Vec<GoneWorker>, WaitError> {
        let mut gone = self.store().gone_workers(MAX_GONE_WORKERS).await?;
        gone.retain(|record| record.worker.pool == self.queue());
        Ok(gone)
    }

    /// Cancels the tasks that match the filter and have not finished: waiting ones at once, running ones when their handlers
    /// have stopped. Without a queue in the filter, those of the client's queue. Returns their number.
    ///
    /// # Errors
    /// When more than a million tasks match, or the store cannot be written. What was done before the error stays done.
    pub async fn cancel_all(&self, filter: Filter) -> Result<usize, WaitError> {
        self.act_on_all(filter, &Act::Cancel).await
    }

    /// Requeues the failed and cancelled tasks that match the filter. Without a queue in the filter, those of the client's queue.
    /// Returns their number.
    ///
    /// # Errors
    /// As for [`cancel_all`](Self::cancel_all).
    pub async fn replay_all(&self, filter: Filter, how: Replay) -> Result<usize, WaitError> {
        self.act_on_all(filter, &Act::Replay(how)).await
    }

    /// Removes the dead letters that match the filter. Without a queue in the filter, those of the client's queue. Returns their
    /// number.
    ///
    /// # Errors
    /// As for [`cancel_all`](Self::cancel_all).
    pub async fn drop_all(&self, filter: Filter) -> Result<usize, WaitError> {
        self.act_on_all(filter, &Act::DropLetters).await
    }

    async fn act_on_all(&self, filter: Filter, what: &Act<'_>) -> Result<usize, WaitError> {
        let queue = filter.queue.clone().or_else(|| Some(self.queue().to_owned()));
        let selector = Selector::Matching(Filter { queue, ..filter });
        match act(self.store(), &selector, what, &mut Unasked).await? {
            Acted::Done { answers, .. } => Ok(answers.len()),
            Acted::Declined => Ok(0),
        }
    }

    /// Returns the breakers around calls of handlers ([`Context::breaker`](crate::Context::breaker)) that are not closed or have
    /// counted something, ordered by name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn call_breakers(&self) -> Result<Vec<CallBreakerRecord>, WaitError> {
        Ok(self.store().call_breakers().await?)
    }

    /// Returns the accounts whose limits queues share, with what holds them, in the order of their names.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn accounts(&self) -> Result<Vec<AccountRecord>, WaitError> {
        Ok(self.store().accounts().await?)
    }

    /// Holds or releases an account, or sets its concurrency. All processes that use the store obey. Returns the changed account.
    ///
    /// # Errors
    /// When the name or the change is invalid, or the store cannot be written.
    pub async fn change_account(&self, name: &str, change: AccountChange) -> Result<Account, WaitError> {
        Ok(self.store().change_account(name, change).await?)
    }

    /// Returns what attempts spent on models, of this queue unless the query names another.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn costs(&self, query: CostQuery) -> Result<Vec<CostRecord>, WaitError> {
        let queue = query.queue.or_else(|| Some(self.queue().to_owned()));
        Ok(self.store().costs(CostQuery { queue, ..query }).await?)
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

/// A file that an attempt has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFile {
    /// The token of the attempt's lease, as in [`Attempt::token`](crate::Attempt::token).
    pub token: u64,
    /// The path, relative to the task's folder.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// Reads the files that the attempts of a task have left.
pub(crate) async fn files_of(store: &dyn Store, id: TaskId) -> Result<Vec<TaskFile>, Error> {
    let (mut files, mut query) = (Vec::new(), EventQuery::of(EventKind::File));
    loop {
        let events = store.read_events(id, query).await?;
        let Some(newest) = events.last() else { return Ok(files) };
        query.after = newest.number;
        for event in events {
            if let EventBody::File { path, size, sha256 } = event.body {
                files.push(TaskFile { token: event.token, path, size, sha256 });
            }
        }
    }
}

/// The caller has decided already: a program is not asked.
struct Unasked;

#[async_trait]
impl Operator for Unasked {
    async fn approve(&mut self, _tasks: usize) -> Approval {
        Approval::GoOn
    }
}

impl From<OpsError> for WaitError {
    fn from(error: OpsError) -> Self {
        match error {
            OpsError::Store(error) => Self::Store(error),
            OpsError::Refused(Refusal::TooManyTasks(most)) => Self::TooMany(most),
            OpsError::Missing(_)
            | OpsError::Refused(_)
            | OpsError::Failed(_)
            | OpsError::QueueFull { .. } => Self::Store(Error::invalid(error.to_string())),
        }
    }
}
