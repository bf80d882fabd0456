//! A running pool: submit, wait, cancel, look, drain.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{OnConflict, OnFailed, Overrides, Priority, StateName, Task, TaskId, Timestamp};
use ostler_postgres::Postgres;
use ostler_postgres::tokio_postgres::Transaction;
use ostler_runtime::{Drained, Ids, Node, NodeState, Stopper};
use ostler_sqlite::Sqlite;
use ostler_store::calls::{CancelAnswer, Enqueued, NewTask};
use ostler_store::plans::Unique;
use ostler_store::views::{Counts, TaskRef};
use ostler_store::{Stats, Store, see_to_dependents};
use serde::Serialize;
use tokio::sync::{Mutex, watch};

use crate::error::{SubmitError, WaitError};
use crate::handover::{HandOver, HandOverRefused, MAX_WAITING, Receipt};

/// How often a wait looks at what other processes do, at first and at most. What ends in this process is heard of at once.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// What may be said about a task when it is submitted. What is left out comes from the queue.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// Its id, if the caller makes it: then a submission whose answer was lost can be repeated, and is taken once. Unless it is said, one is made.
    pub id: Option<TaskId>,
    /// Its head start.
    pub priority: Priority,
    /// Not before this moment.
    pub run_at: Option<Timestamp>,
    /// While a task with this key is kept, a repeat answers with that one.
    pub key: Option<String>,
    /// Shares limits, and takes turns, with others of the same key. Unless it is said: what the queue finds in the payload.
    pub limit_key: Option<String>,
    /// What it takes from the rates. Unless it is said: what the queue finds in the payload, else one.
    pub cost: Option<u32>,
    /// Attempts, backoff, timeout.
    pub overrides: Overrides,
    /// Too late to be useful after this.
    pub not_after: Option<Timestamp>,
    /// How long it has its key, from now on; `None`: for as long as it is kept.
    pub key_for: Option<Duration>,
    /// What happens if another task has the key.
    pub on_conflict: OnConflict,
    /// It waits until all of these have ended well.
    pub after: Vec<TaskId>,
    /// What happens when one of them does not.
    pub on_failed: OnFailed,
    /// No attempt begins after this: the time for all of them together.
    pub deadline: Option<Timestamp>,
    /// The folder it works in.
    pub folder: Option<String>,
}

/// The store of a pool.
pub(crate) enum AnyStore {
    /// One file.
    Embedded(Arc<Sqlite>),
    /// A database.
    Shared(Arc<Postgres>),
}

impl AnyStore {
    /// The store, of whatever sort it is.
    pub(crate) fn any(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Shared(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }
}

/// A running pool. Clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    /// The same, where it takes tasks with a transaction of the caller's.
    shared: Option<Arc<Postgres>>,
    /// Until it is drained.
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
        Self(Arc::new(Inner { store, shared, node, stopper, queue, ids, state, ends, hand_over }))
    }

    /// Submits a task. When this has answered, the task is on disk.
    ///
    /// # Errors
    /// When the queue is full, the pool drains, or the store cannot be written.
    pub async fn submit<P: Serialize + Sync>(&self, kind: &str, payload: &P) -> Result<TaskId, SubmitError> {
        self.submit_with(kind, payload, Submission::default()).await
    }

    /// Submits a task of which more is said. A task whose key is there already answers with the one that is there, unless
    /// [`Submission::on_conflict`] says otherwise. One whose id is there already, for as long as that task is kept, is a repetition if it
    /// is the same work, and changes nothing.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), and when its id belongs to other work.
    pub async fn submit_with<P: Serialize + Sync>(
        &self,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskId, SubmitError> {
        let chosen = about.id;
        let task = self.task(kind, payload, about)?;
        // Only whoever made the id can repeat it.
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

    /// Submits a task with a transaction of the caller's, on the database of the pool: the task exists if and only if the transaction
    /// commits. Nobody waits for the transaction meanwhile, however long it takes. What a key that is taken or a full queue means
    /// for the task is seen when it has committed: whose key another task has is not taken in, and one that finds the queue full waits
    /// until it is not.
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
    /// [`SubmitError::NotShared`] when the store is a file. Else when the pool drains, a rule is broken, or the transaction has failed.
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

    /// Submits a task without waiting for room: when too many submissions of this process wait to be written, or the queue has
    /// as many tasks as it may have, it answers *queue full* at once. When it has answered with an id, the task is on disk.
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

    /// Submits a task, and waits up to `timeout` while the queue is full.
    ///
    /// # Errors
    /// [`SubmitError::QueueFull`] when it stayed full; else as for [`submit`](Self::submit).
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

    /// Waits until a worker of this pool has nothing to do, so that what is submitted next begins at once.
    ///
    /// # Errors
    /// [`SubmitError::Draining`] when the pool drains: no worker gets free any more.
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

    /// Waits until a task has ended, and answers with it.
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

    /// Waits until nothing of the queue waits or runs, in any process.
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

    /// A task as it stands.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub async fn get(&self, id: TaskId) -> Result<Task, WaitError> {
        let found = self.0.store.show(TaskRef::Id(id)).await?;
        found.map(|detail| detail.task).ok_or(WaitError::NotFound(id))
    }

    /// Cancels a task, or tells its handler to stop. Answers where the task stood: `queued` tasks are cancelled now,
    /// running ones when their handler has stopped.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn cancel(&self, id: TaskId) -> Result<StateName, WaitError> {
        match self.0.store.cancel(vec![id]).await?.as_slice() {
            [CancelAnswer::Cancelled] => {
                // Those who wait for it, however many they are.
                see_to_dependents(self.0.store.as_ref()).await?;
                Ok(StateName::Queued)
            }
            [CancelAnswer::Requested] => Ok(StateName::Running),
            [CancelAnswer::Ended(state)] => Ok(*state),
            [CancelAnswer::NotFound] => Err(WaitError::NotFound(id)),
            other => unreachable!("one task has one answer, and not {other:?}"),
        }
    }

    /// How the queue stands: tasks by state, how many ever waited at once, workers, and how long each kind takes.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn stats(&self) -> Result<Stats, WaitError> {
        Ok(Stats::of(&self.0.store.survey().await?, Some(&self.0.queue)))
    }

    /// How many attempts this process holds.
    pub async fn running_here(&self) -> usize {
        self.load().await.0
    }

    /// How many attempts run, and how many workers there may be for them: also after `ostler resize`.
    async fn load(&self) -> (usize, usize) {
        self.0.node.lock().await.as_ref().map_or((0, 0), |node| (node.running(), node.most_workers()))
    }

    /// Where the pool stands.
    #[must_use]
    pub fn state(&self) -> NodeState {
        *self.0.state.borrow()
    }

    /// Takes no more work, waits for what runs, and after `timeout` gives the rest back. Nothing is lost. Meanwhile a submit to
    /// this pool answers that it drains; other processes are not affected. Whoever asks while it drains waits for the end, and
    /// is told of nothing.
    pub async fn drain(&self, timeout: Duration) -> Drained {
        let node = self.0.node.lock().await.take();
        match node {
            Some(node) => node.drain(timeout).await,
            None => {
                // It ends with the drain that is under way; an end that was missed is an end too.
                let _ = self.0.state.clone().wait_for(|state| *state == NodeState::Ended).await;
                Drained::default()
            }
        }
    }

    /// Ends what runs at once, without its grace, and gives everything back, in three seconds at most, also when the store does
    /// not answer. Nothing is lost, and nothing is counted as a failure. Cuts a [`drain`](Self::drain) short that is under way.
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
            // One that was fenced comes back, and what is submitted is on disk whether it does or not.
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
                hold: about.key_for,
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

/// The task that is there now, if there is one.
const fn taken_in(answer: Enqueued) -> Result<TaskId, SubmitError> {
    match answer {
        Enqueued::Created(id) | Enqueued::Existing(id) | Enqueued::Replaced(id) => Ok(id),
        Enqueued::Rejected { holder } => Err(SubmitError::KeyTaken { holder }),
        Enqueued::NoSuchTask(id) => Err(SubmitError::NoSuchTask(id)),
        Enqueued::QueueFull { limit } => Err(SubmitError::QueueFull { limit }),
    }
}

/// Waits for something to have ended: at once where it ended in this process, by looking where it did not.
struct EndWatch {
    here: watch::Receiver<u64>,
    pause: Duration,
}

impl EndWatch {
    fn new(pool: &Pool) -> Self {
        Self { here: pool.0.ends.clone(), pause: FIRST_LOOK }
    }

    /// From now on, ends count. Arm first, then look, then wait.
    fn arm(&mut self) {
        self.here.mark_unchanged();
    }

    async fn next(&mut self) {
        // Either way it is time to look again.
        let _ = tokio::time::timeout(self.pause, self.here.changed()).await;
        self.pause = (self.pause * 2).min(LAST_LOOK);
    }
}
