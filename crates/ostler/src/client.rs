//! Client: submits tasks and looks at them, without a node and its heartbeat. A pool has one too.

use std::path::Path;
use std::sync::Arc;

use ostler_core::{StateName, Task, TaskId, Timestamp};
#[cfg(feature = "postgres")]
use ostler_postgres::Postgres;
use ostler_runtime::{Ids, NodeState, Telemetry};
use ostler_store::calls::{CancelAnswer, Enqueued, NewTask};
use ostler_store::views::{Counts, TaskRef};
use ostler_store::{Changes, Clock as _, Stats, Store, SystemClock, release_all_dependents};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::error::{OpenError, ResultError, WaitError};
use crate::handover::HandOver;
use crate::ids::ids;
use crate::opening::{OpenStore, StoreSource};

/// The queue of a client or pool that names none.
pub(crate) const DEFAULT_QUEUE: &str = "default";

/// Submits tasks to a queue, and looks at tasks. It runs nothing: another process, or a [`Pool`](crate::Pool) in this one, has
/// the handlers. Clones share the same store.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ostler::Client::open("jobs.db").await?;
/// let id = client.submit("mail", &"ada@example.org").await?;
/// let done = client.wait(id).await?;
/// println!("{}: {:?}", done.state.name().name(), done.output);
/// // Another queue of the same store.
/// client.on("thumbnails").submit("resize", &"a.png").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<ClientStore>,
    queue: Arc<str>,
}

/// What all clones of a client share.
pub(crate) struct ClientStore {
    pub(crate) store: Arc<dyn Store>,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: Option<Arc<Postgres>>,
    pub(crate) ids: Ids,
    pub(crate) hand_over: HandOver,
    telemetry: Telemetry,
    /// The node of the pool that this is the client of.
    node: Option<NodeSignals>,
    #[cfg(feature = "testing")]
    _folder: Option<tempfile::TempDir>,
}

/// What a node signals to the client of its pool.
pub(crate) struct NodeSignals {
    pub(crate) state: watch::Receiver<NodeState>,
    /// Changes when the node has written outcomes.
    pub(crate) ends: watch::Receiver<u64>,
    pub(crate) telemetry: Telemetry,
}

impl Client {
    /// Opens a store as [`open`](crate::open) does, for submissions and queries. A missing file is created. Tasks go to the queue
    /// "default" unless [`on`](Self::on) names another.
    ///
    /// # Errors
    /// When the file is not an Ostler store (the file is left unchanged) or cannot be written, the URL is invalid, or the server
    /// cannot be reached.
    pub async fn open(place: impl AsRef<Path>) -> Result<Self, OpenError> {
        let store = StoreSource::at(place.as_ref())?.open().await?;
        Ok(Self::new(store, DEFAULT_QUEUE, ids()?, None))
    }

    pub(crate) fn new(store: OpenStore, queue: &str, ids: Ids, node: Option<NodeSignals>) -> Self {
        let telemetry =
            node.as_ref().map_or_else(|| Telemetry::here("client"), |node| node.telemetry.clone());
        let hand_over = HandOver::start(Arc::clone(&store.store), telemetry.clone());
        let shared = ClientStore {
            store: store.store,
            #[cfg(feature = "postgres")]
            postgres: store.postgres,
            ids,
            hand_over,
            telemetry,
            node,
            #[cfg(feature = "testing")]
            _folder: store.folder,
        };
        Self { shared: Arc::new(shared), queue: queue.into() }
    }

    /// Returns a client of another queue of the same store.
    #[must_use]
    pub fn on(&self, queue: impl Into<String>) -> Self {
        Self { shared: Arc::clone(&self.shared), queue: queue.into().into() }
    }

    /// Returns the queue that tasks are submitted to.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the current time, for example to compute a `run_at`: `client.now().after(delay)`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        SystemClock.now()
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

    /// Waits until a task has completed, and returns its output.
    ///
    /// # Errors
    /// When the task fails or is cancelled, its output is of another type, there is no such task, or the store cannot be read.
    pub async fn wait_as<T: DeserializeOwned>(&self, id: TaskId) -> Result<T, ResultError> {
        let task = self.wait(id).await?;
        match task.state.name() {
            StateName::Cancelled => return Err(ResultError::Cancelled(id)),
            StateName::Failed => {
                let failure = task.last_failure.unwrap_or_else(|| {
                    // Not after an attempt: its deadline passed while it waited.
                    ostler_core::Failure::new(ostler_core::ErrorClass::Timeout, "it was too late to start")
                });
                return Err(ResultError::Failed { id, failure: Box::new(failure) });
            }
            StateName::Queued | StateName::Claimed | StateName::Running | StateName::Completed => {}
        }
        let output = task.output.as_deref().unwrap_or("null");
        serde_json::from_str(output).map_err(|error| ResultError::Output { id, error })
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
        let found = self.store().show(TaskRef::Id(id)).await?;
        found.map(|detail| detail.task).ok_or(WaitError::NotFound(id))
    }

    /// Cancels a task and returns the state in which it was found: [`StateName::Queued`] if it was waiting and is cancelled
    /// now, [`StateName::Running`] if its handler was asked to stop and the task will be cancelled when it has, otherwise
    /// the state in which it had already finished.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn cancel(&self, id: TaskId) -> Result<StateName, WaitError> {
        match self.store().cancel(vec![id]).await?.as_slice() {
            [CancelAnswer::Cancelled] => {
                // Cancels or releases all tasks that wait for it.
                release_all_dependents(self.store()).await?;
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
        Ok(Stats::of(&self.store().survey().await?, Some(self.queue())))
    }

    /// Enqueues tasks, and reports them.
    pub(crate) async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, ostler_store::Error> {
        self.shared.telemetry.enqueue(self.store(), tasks).await
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.shared.store.as_ref()
    }

    /// Whether tasks are accepted: always without a pool.
    pub(crate) fn takes_work(&self) -> bool {
        match self.shared.node.as_ref().map(|node| *node.state.borrow()) {
            // A fenced node rejoins, and a submitted task is on disk whether it does or not.
            None | Some(NodeState::Running | NodeState::Fenced) => true,
            Some(NodeState::Draining | NodeState::Ended) => false,
        }
    }
}

/// Waits for attempts to finish: signalled within this process, and by hints of other processes.
pub(crate) struct EndWatch {
    here: Option<watch::Receiver<u64>>,
    elsewhere: Changes,
}

impl EndWatch {
    pub(crate) fn new(client: &Client) -> Self {
        let here = client.shared.node.as_ref().map(|node| node.ends.clone());
        Self { here, elsewhere: client.store().changes() }
    }

    /// Counts outcomes from now on. Arm first, then query, then wait.
    pub(crate) fn arm(&mut self) {
        if let Some(here) = &mut self.here {
            here.mark_unchanged();
        }
    }

    pub(crate) async fn next(&mut self) {
        // In either case the caller queries again.
        let Some(here) = &mut self.here else {
            let _ = self.elsewhere.wait().await;
            return;
        };
        tokio::select! {
            Ok(()) = here.changed() => {}
            _ = self.elsewhere.wait() => {}
        }
    }
}
