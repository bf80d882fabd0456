//! The running pool: submit, wait, cancel, query, drain.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{KeyHold, OnConflict, OnFailed, Overrides, Priority, StateName, Task, TaskId, Timestamp};
use ostler_postgres::Postgres;
use ostler_postgres::tokio_postgres::Transaction;
use ostler_runtime::{Drained, Ids, Node, NodeState, Stopper};
use ostler_sqlite::Sqlite;
use ostler_store::calls::{CancelAnswer, Enqueued, NewTask};
use ostler_store::unique::Unique;
use ostler_store::views::{Counts, TaskRef};
use ostler_store::{Changes, Stats, Store, release_all_dependents};
use serde::Serialize;
use tokio::sync::{Mutex, watch};

use crate::error::{SubmitError, WaitError};
use crate::handover::{HandOver, HandOverRefused, MAX_WAITING, Receipt};

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
}

/// The store of a pool, embedded or shared.
pub(crate) enum AnyStore {
    /// One SQLite file.
    Embedded(Arc<Sqlite>),
    /// A PostgreSQL database.
    Shared(Arc<Postgres>),
}

impl AnyStore {
    /// The store as a trait object.
    pub(crate) fn any(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Shared(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }
}

/// A running pool. Clones share the same pool.
#[derive(Clone)]
pub struct Pool(Arc<PoolInner>);

struct PoolInner {
    store: Arc<dyn Store>,
    /// The same store, if it accepts tasks within a transaction of the caller.
    shared: Option<Arc<Postgres>>,
    /// `None` once it is drained.
    node: Mutex<Option<Node>>,
    stopper: Stopper,
    queue: String,
    ids: Ids,
    state: watch::Receiver<NodeState>,
    ends: watch::Receiver<u64>,
    hand_over: HandOver,
}

impl Pool {
    pub(crate) fn new(store: AnyStore, node: Node, queue: String, ids: Ids) -> Self {
        let (state, ends, stopper) = (node.state(), node.ends(), node.stopper());
        let (store, shared) = match store {
            AnyStore::Embedded(store) => (store as Arc<dyn Store>, None),
            AnyStore::Shared(store) => (Arc::clone(&store) as Arc<dyn Store>, Some(store)),
        };
        let hand_over = HandOver::start(Arc::clone(&store));
        let node = Mutex::new(Some(node));
        Self(Arc::new(PoolInner { store, shared, node, stopper, queue, ids, state, ends, hand_over }))
    }

    /// Submits a task and returns its id. Once this returns, the task is on disk.
    ///
    /// # Errors
    /// When the payload cannot be serialized, the queue is full, the pool is draining, or the store cannot be written.
    pub async fn submit<P: Serialize + Sync>(&self, kind: &str, payload: &P) -> Result<TaskId, SubmitError> {
        self.submit_with(kind, payload, Submission::default()).await
    }

    /// Submits a task with options. If another task has the unique key, its id is returned, unless
    /// [`Submission::on_conflict`] says otherwise. Repeating a submission with the id of a stored task changes nothing if
    /// it is the same work.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), and when the id belongs to other work, the key is rejected, or a task in
    /// [`Submission::after`] does not exist.
    pub async fn submit_with<P: Serialize + Sync>(
        &self,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskId, SubmitError> {
        let chosen = about.id;
        let task = self.task(kind, payload, about)?;
        // Only an id from the caller can be repeated.
        let repeatable = chosen.is_some().then(|| task.clone());
        let answer = settle(self.0.hand_over.give(task).await).await?;
        if let Some(task) = repeatable.filter(|task| answer == Enqueued::Existing(task.id)) {
            let found = self.0.store.show(TaskRef::Id(task.id)).await?;
            if found.is_some_and(|found| !task.is_repeated_by(&found.task)) {
                return Err(SubmitError::IdTaken(task.id));
            }
        }
        taken_in(answer)
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
    pub async fn submit_in<P: Serialize + Sync>(
        &self,
        transaction: &Transaction<'_>,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskId, SubmitError> {
        let shared = self.0.shared.as_ref().ok_or(SubmitError::NotShared)?;
        let task = self.task(kind, payload, about)?;
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
        let task = self.task(kind, payload, Submission::default())?;
        taken_in(settle(self.0.hand_over.try_give(task)).await?)
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
        let tasks = payloads.iter().map(|payload| self.task(kind, payload, Submission::default()));
        let answers = self.0.store.enqueue(tasks.collect::<Result<_, _>>()?).await?;
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
        let until = tokio::time::Instant::now() + timeout;
        let mut pause = FIRST_LOOK;
        loop {
            match self.submit(kind, payload).await {
                Err(SubmitError::QueueFull { .. }) if tokio::time::Instant::now() + pause < until => {}
                answer => return answer,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Waits until a worker of this pool is idle, so that a task submitted next starts immediately.
    ///
    /// # Errors
    /// [`SubmitError::Draining`] when the pool is draining.
    pub async fn wait_for_slot(&self) -> Result<(), SubmitError> {
        let mut ends = EndWatch::new(self);
        loop {
            ends.arm();
            if !self.takes_work() {
                return Err(SubmitError::Draining);
            }
            let (running, workers) = self.load().await;
            if running < workers {
                return Ok(());
            }
            ends.next().await;
        }
    }

    /// Waits until a task has finished, and returns it.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub async fn wait(&self, id: TaskId) -> Result<Task, WaitError> {
        let mut ends = EndWatch::new(self);
        loop {
            ends.arm();
            let task = self.get(id).await?;
            if task.state.name().is_terminal() {
                return Ok(task);
            }
            ends.next().await;
        }
    }

    /// Waits until no task of the queue is waiting or running in any process.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn wait_idle(&self) -> Result<(), WaitError> {
        let mut ends = EndWatch::new(self);
        loop {
            ends.arm();
            let Counts { queued, claimed, running, .. } = self.stats().await?.tasks;
            if queued + claimed + running == 0 {
                return Ok(());
            }
            ends.next().await;
        }
    }

    /// Returns the current state of a task.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub async fn get(&self, id: TaskId) -> Result<Task, WaitError> {
        let found = self.0.store.show(TaskRef::Id(id)).await?;
        found.map(|detail| detail.task).ok_or(WaitError::NotFound(id))
    }

    /// Cancels a task and returns the state in which it was found: [`StateName::Queued`] if it was waiting and is cancelled
    /// now, [`StateName::Running`] if its handler was asked to stop and the task will be cancelled when it has, otherwise
    /// the state in which it had already finished.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn cancel(&self, id: TaskId) -> Result<StateName, WaitError> {
        match self.0.store.cancel(vec![id]).await?.as_slice() {
            [CancelAnswer::Cancelled] => {
                // Cancels or releases all tasks that wait for it.
                release_all_dependents(self.0.store.as_ref()).await?;
                Ok(StateName::Queued)
            }
            [CancelAnswer::Requested] => Ok(StateName::Running),
            [CancelAnswer::Ended(state)] => Ok(*state),
            [CancelAnswer::NotFound] => Err(WaitError::NotFound(id)),
            other => unreachable!("one task has one answer, and not {other:?}"),
        }
    }

    /// Returns statistics of the queue: tasks by state, the highest number that ever waited at once, workers, and run times
    /// by kind.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn stats(&self) -> Result<Stats, WaitError> {
        Ok(Stats::of(&self.0.store.survey().await?, Some(&self.0.queue)))
    }

    /// Returns how many attempts are running in this process.
    pub async fn running_here(&self) -> usize {
        self.load().await.0
    }

    /// Running attempts and the maximum number of workers, including changes by `ostler resize`.
    async fn load(&self) -> (usize, usize) {
        self.0.node.lock().await.as_ref().map_or((0, 0), |node| (node.running(), node.most_workers()))
    }

    /// Returns the lifecycle state of the pool.
    #[must_use]
    pub fn state(&self) -> NodeState {
        *self.0.state.borrow()
    }

    /// Drains the pool: takes no more work, waits for running attempts, and hands the rest back to the queue after
    /// `timeout`. Nothing is lost. From then on, submissions to this pool fail with [`SubmitError::Draining`]; other
    /// processes are not affected. A second caller waits for the drain under way and gets empty counts.
    pub async fn drain(&self, timeout: Duration) -> Drained {
        let node = self.0.node.lock().await.take();
        match node {
            Some(node) => node.drain(timeout).await,
            None => {
                // The drain under way sets this state; if it is already over, the wait returns immediately.
                let _ = self.0.state.clone().wait_for(|state| *state == NodeState::Ended).await;
                Drained::default()
            }
        }
    }

    /// Aborts running attempts without a grace period and hands them back to the queue, within three seconds even if the
    /// store does not answer. Nothing is lost, and no attempt counts as a failure. Cuts short a [`drain`](Self::drain) that
    /// is under way.
    pub async fn stop_now(&self) -> Drained {
        self.0.stopper.stop_now();
        self.drain(Duration::ZERO).await
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.0.store.as_ref()
    }

    pub(crate) fn queue(&self) -> &str {
        &self.0.queue
    }

    fn takes_work(&self) -> bool {
        match self.state() {
            // A fenced node rejoins, and a submitted task is on disk whether it does or not.
            NodeState::Running | NodeState::Fenced => true,
            NodeState::Draining | NodeState::Ended => false,
        }
    }

    fn task<P: Serialize + Sync>(
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
            limit_key: about.limit_key,
            cost: about.cost,
            overrides: about.overrides,
            not_after: about.not_after,
            ..NewTask::new(
                about.id.unwrap_or_else(|| TaskId((self.0.ids)())),
                self.0.queue.as_str(),
                kind,
                payload,
            )
        })
    }
}

/// Waits until a submission is on disk.
async fn settle(receipt: Result<Receipt, HandOverRefused>) -> Result<Enqueued, SubmitError> {
    let answer = match receipt {
        Ok(receipt) => receipt.answer().await,
        Err(HandOverRefused::Full) => return Err(SubmitError::QueueFull { limit: MAX_WAITING as u64 }),
        Err(HandOverRefused::Closed) => None,
    };
    Ok(answer.ok_or(SubmitError::Draining)??)
}

/// The id of the task that is stored now, or why none is.
const fn taken_in(answer: Enqueued) -> Result<TaskId, SubmitError> {
    match answer {
        Enqueued::Created(id) | Enqueued::Existing(id) | Enqueued::Replaced(id) => Ok(id),
        Enqueued::Rejected { holder } => Err(SubmitError::KeyTaken { holder }),
        Enqueued::NoSuchTask(id) => Err(SubmitError::NoSuchTask(id)),
        Enqueued::QueueFull { limit } => Err(SubmitError::QueueFull { limit }),
    }
}

/// Waits for attempts to finish: signalled within this process, and by hints of other processes.
struct EndWatch {
    here: watch::Receiver<u64>,
    elsewhere: Changes,
}

impl EndWatch {
    fn new(pool: &Pool) -> Self {
        Self { here: pool.0.ends.clone(), elsewhere: pool.0.store.changes() }
    }

    /// Counts outcomes from now on. Arm first, then query, then wait.
    fn arm(&mut self) {
        self.here.mark_unchanged();
    }

    async fn next(&mut self) {
        // In either case the caller queries again.
        tokio::select! {
            Ok(()) = self.here.changed() => {}
            _ = self.elsewhere.wait() => {}
        }
    }
}
