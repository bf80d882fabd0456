//! Submissions: one task or many, at once or bounded in time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ostler_core::{KeyHold, OnConflict, OnFailed, Overrides, Priority, TaskId, Timestamp, Traceparent};
#[cfg(feature = "postgres")]
use ostler_postgres::tokio_postgres::Transaction;
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;
use serde::Serialize;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::SubmitError;
use crate::handover::{HandOverRefused, MAX_WAITING, Withdrawn};

/// First and longest interval at which a submission to a full queue is tried again.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// Options of a submission. Retry settings that are left out come from the queue.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// The id of the task. With an id from the caller, a submission whose response was lost can be repeated and creates the
    /// task once. Default: a new id.
    pub id: Option<TaskId>,
    /// The priority, from −100 to 100; one point is worth a head start of one minute. Default: 0.
    pub priority: Priority,
    /// The earliest time at which the task may start. Default: immediately.
    pub run_at: Option<Timestamp>,
    /// A unique key: while a task with this key is stored, submitting again returns that task. See
    /// [`on_conflict`](Self::on_conflict).
    pub key: Option<String>,
    /// Tasks with the same limit key share limits; different keys take turns. Default: the value at the queue's key path in
    /// the payload, if any.
    pub limit_key: Option<String>,
    /// What the task takes from the rates. Default: the value at the queue's cost path in the payload, or 1.
    pub cost: Option<u32>,
    /// Attempts, backoff and timeout.
    pub overrides: Overrides,
    /// The task is cancelled if it is still waiting after this time.
    pub not_after: Option<Timestamp>,
    /// How long the task holds its key: until it is removed, until it has ended, or for a duration. `None`: as the queue
    /// says, which is until it is removed unless set otherwise.
    pub key_hold: Option<KeyHold>,
    /// What happens if another task has the key. Default: that task is kept and returned.
    pub on_conflict: OnConflict,
    /// The task waits until all of these have completed.
    pub after: Vec<TaskId>,
    /// What happens if one of them does not complete. Default: this task is cancelled as well.
    pub on_failed: OnFailed,
    /// No attempt starts after this time: a bound for all attempts together. A task that is still waiting then fails.
    pub deadline: Option<Timestamp>,
    /// The working folder of the task.
    pub folder: Option<String>,
    /// The W3C trace context of the caller: programs that run the task get it as `TRACEPARENT`, handlers by
    /// [`Context::traceparent`](ostler_exec::Context::traceparent).
    pub traceparent: Option<Traceparent>,
}

/// A submission under way: a future that returns the id of the task once the task is on disk. Dropped, it leaves open whether
/// the task is stored.
#[must_use = "a submission does nothing unless it is awaited"]
pub struct Submit(SubmitState);

enum SubmitState {
    Planned(Box<PlannedSubmit>),
    Running(Pin<Box<dyn Future<Output = Result<TaskId, SubmitError>> + Send>>),
}

struct PlannedSubmit {
    client: Client,
    task: Result<NewTask, SubmitError>,
    id: IdSource,
    within: Option<Duration>,
}

/// Who made the id of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdSource {
    /// The caller, which can repeat the submission with it.
    Caller,
    New,
}

impl Submit {
    /// Bounds the submission in time. When the time is over, the error says whether the task is stored:
    /// [`SubmitError::TimedOut`] if it is not and will not be, [`SubmitError::Unknown`], with the task's id, if the store has not
    /// answered. After that one, submit the task again with that id: it is created once.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: ostler::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let id = client.submit("mail", &"ada@example.org").within(Duration::from_secs(2)).await?;
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, timeout: Duration) -> Self {
        match &mut self.0 {
            SubmitState::Planned(plan) => plan.within = Some(timeout),
            SubmitState::Running(_) => {}
        }
        self
    }
}

impl Future for Submit {
    type Output = Result<TaskId, SubmitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                SubmitState::Running(running) => return running.as_mut().poll(context),
                SubmitState::Planned(plan) => {
                    let task = std::mem::replace(&mut plan.task, Err(SubmitError::TimedOut));
                    let (client, id, within) = (plan.client.clone(), plan.id, plan.within);
                    self.0 = SubmitState::Running(Box::pin(PlannedSubmit { client, task, id, within }.run()));
                }
            }
        }
    }
}

impl PlannedSubmit {
    async fn run(self) -> Result<TaskId, SubmitError> {
        let Self { client, task, id: source, within } = self;
        let task = task?;
        let id = task.id;
        let repeatable = (source == IdSource::Caller).then(|| task.clone());
        let until = within.map(|within| Instant::now() + within);
        let mut receipt = match bounded(until, client.shared.hand_over.give(task)).await {
            Some(given) => given.map_err(refused)?,
            None => return Err(SubmitError::TimedOut),
        };
        let answer = match bounded(until, receipt.answer()).await {
            Some(answer) => answer.ok_or(SubmitError::Draining)?,
            None => match receipt.withdraw() {
                Withdrawn::NotWritten => return Err(SubmitError::TimedOut),
                Withdrawn::Answered(answer) => answer,
                Withdrawn::Unknown => return Err(SubmitError::Unknown(id)),
            },
        }?;
        if let Some(task) = repeatable.filter(|_| answer == Enqueued::Existing(id)) {
            let found = bounded(until, client.store().show(TaskRef::Id(id))).await;
            let found = found.ok_or(SubmitError::Unknown(id))??;
            if found.is_some_and(|found| !task.is_repeated_by(&found.task)) {
                return Err(SubmitError::IdTaken(id));
            }
        }
        taken_in(answer)
    }
}

/// The result of a future; `None` if it takes too long.
async fn bounded<T>(until: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => tokio::time::timeout_at(until, future).await.ok(),
        None => Some(future.await),
    }
}

impl Client {
    /// Submits a task and returns its id. Once this returns, the task is on disk. [`Submit::within`] bounds it in time.
    ///
    /// # Errors
    /// When the payload cannot be serialized, the queue is full, the pool is draining, or the store cannot be written.
    pub fn submit<P: Serialize + ?Sized>(&self, kind: &str, payload: &P) -> Submit {
        self.submit_with(kind, payload, Submission::default())
    }

    /// Submits a task with options. If another task has the unique key, its id is returned, unless
    /// [`Submission::on_conflict`] says otherwise. Repeating a submission with the id of a stored task changes nothing if
    /// it is the same work.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), and when the id belongs to other work, the key is rejected, or a task in
    /// [`Submission::after`] does not exist.
    pub fn submit_with<P: Serialize + ?Sized>(&self, kind: &str, payload: &P, about: Submission) -> Submit {
        let id = if about.id.is_some() { IdSource::Caller } else { IdSource::New };
        let task = self.new_task(kind, payload, about);
        Submit(SubmitState::Planned(Box::new(PlannedSubmit { client: self.clone(), task, id, within: None })))
    }

    /// Submits a task within a transaction of the caller on the pool's database: the task exists if and only if the
    /// transaction commits. A long transaction blocks no other submitter or worker. Key conflicts and the queue limit are
    /// checked after the commit: a task whose key is taken is dropped, and one that finds the queue full waits until there
    /// is room.
    ///
    /// ```no_run
    /// # async fn example(pool: ostler::Pool, mut client: ostler::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("INSERT INTO orders(id) VALUES (17)", &[]).await?;
    /// let id = pool.submit_in(&transaction, "send-invoice", &17, ostler::Submission::default()).await?;
    /// transaction.commit().await?;
    /// pool.wait(id).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SubmitError::NotShared`] when the store is a file. Otherwise when the pool is draining, the task is invalid, or
    /// the transaction has failed.
    #[cfg(feature = "postgres")]
    pub async fn submit_in<P: Serialize + Sync>(
        &self,
        transaction: &Transaction<'_>,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskId, SubmitError> {
        let shared = self.shared.postgres.as_ref().ok_or(SubmitError::NotShared)?;
        let task = self.new_task(kind, payload, about)?;
        let id = task.id;
        shared.enqueue_in(transaction, vec![task]).await?;
        Ok(id)
    }

    /// Submits a task without waiting: fails with [`SubmitError::QueueFull`] if too many submissions of this process wait
    /// to be written, or the queue has reached its limit. Once this returns an id, the task is on disk.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub async fn try_submit<P: Serialize + Sync>(
        &self,
        kind: &str,
        payload: &P,
    ) -> Result<TaskId, SubmitError> {
        let task = self.new_task(kind, payload, Submission::default())?;
        let mut receipt = self.shared.hand_over.try_give(task).map_err(refused)?;
        taken_in(receipt.answer().await.ok_or(SubmitError::Draining)??)
    }

    /// Submits up to ten thousand tasks of one kind in one transaction, and returns an answer for each payload, in order.
    ///
    /// # Errors
    /// When a payload cannot be serialized, there are too many, the pool is draining, or the store cannot be written: then
    /// no task is stored. A queue that becomes full refuses the tasks that do not fit, each with
    /// [`SubmitError::QueueFull`].
    pub async fn submit_many<P: Serialize + Sync>(
        &self,
        kind: &str,
        payloads: &[P],
    ) -> Result<Vec<Result<TaskId, SubmitError>>, SubmitError> {
        let tasks = payloads.iter().map(|payload| self.new_task(kind, payload, Submission::default()));
        let answers = self.enqueue(tasks.collect::<Result<_, _>>()?).await?;
        Ok(answers.into_iter().map(taken_in).collect())
    }

    /// Submits a task, retrying for up to `timeout` while the queue is full.
    ///
    /// # Errors
    /// [`SubmitError::QueueFull`] when the queue stayed full; otherwise as for [`submit`](Self::submit).
    pub async fn submit_wait<P: Serialize + Sync>(
        &self,
        kind: &str,
        payload: &P,
        timeout: Duration,
    ) -> Result<TaskId, SubmitError> {
        let until = Instant::now() + timeout;
        let mut pause = FIRST_LOOK;
        loop {
            match self.submit(kind, payload).await {
                Err(SubmitError::QueueFull { .. }) if Instant::now() + pause < until => {}
                answer => return answer,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    pub(crate) fn new_task<P: Serialize + ?Sized>(
        &self,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<NewTask, SubmitError> {
        if !self.takes_work() {
            return Err(SubmitError::Draining);
        }
        let payload = serde_json::to_string(payload)
            .map_err(|error| SubmitError::Payload { kind: kind.to_owned(), error })?;
        Ok(NewTask {
            priority: about.priority,
            run_at: about.run_at,
            unique: about.key.map(|key| Unique {
                hold: about.key_hold,
                on_conflict: about.on_conflict,
                ..Unique::new(key)
            }),
            after: about.after,
            on_failed: about.on_failed,
            deadline: about.deadline,
            folder: about.folder,
            traceparent: about.traceparent,
            limit_key: about.limit_key,
            cost: about.cost,
            overrides: about.overrides,
            not_after: about.not_after,
            ..NewTask::new(about.id.unwrap_or_else(|| self.new_id()), self.queue(), kind, payload)
        })
    }

    /// Returns a new id for a task; see [`Submission::id`].
    #[must_use]
    pub fn new_id(&self) -> TaskId {
        TaskId((self.shared.ids)())
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it maps the error of a result")]
const fn refused(why: HandOverRefused) -> SubmitError {
    match why {
        HandOverRefused::Full => SubmitError::QueueFull { limit: MAX_WAITING as u64 },
        HandOverRefused::Closed => SubmitError::Draining,
    }
}

/// The id of the task that is stored now, or why none is.
pub(crate) const fn taken_in(answer: Enqueued) -> Result<TaskId, SubmitError> {
    match answer {
        Enqueued::Created(id) | Enqueued::Existing(id) | Enqueued::Replaced(id) => Ok(id),
        Enqueued::Rejected { holder } => Err(SubmitError::KeyTaken { holder }),
        Enqueued::NoSuchTask(id) => Err(SubmitError::NoSuchTask(id)),
        Enqueued::QueueFull { limit } => Err(SubmitError::QueueFull { limit }),
    }
}
