//! The running pool: a client with a node that runs the tasks. Free workers, the drain, and how it is taken back.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{StateName, TaskId};
use ostler_ops::budgets;
use ostler_runtime::{
    DrainWait, Drained, EndListener, Node, NodeHandle, NodeState, PoolConfig, PoolSize, Reservation, TakeOver,
};
use ostler_store::calls::{Prune, QueueChange, Retention};
use ostler_store::gates::BreakerScope;
use ostler_store::node_commands::ResumeAnswer;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::client::{Client, EndWatch, NodeSignals};
use crate::error::{OpenError, SubmitError, WaitError};
use crate::opening::OpenStore;
use crate::submit::{Submission, taken_in};

/// A running pool. Clones share the same pool. It is a [`Client`] of its queue too: submit and wait with it.
#[derive(Clone)]
pub struct Pool {
    client: Client,
    inner: Arc<PoolInner>,
}

struct PoolInner {
    /// Locked while it drains; `None` once it is drained.
    node: Mutex<Option<Node>>,
    handle: NodeHandle,
    /// The pool of the first queue, as a pattern for those of jobs.
    first: PoolConfig,
    retention: Retention,
    /// Stopped when no child is needed any more.
    #[cfg(feature = "process")]
    supervisor: Option<ostler_process::supervisor::Supervisor>,
}

impl Pool {
    pub(crate) fn new(
        store: OpenStore,
        node: Node,
        first: PoolConfig,
        retention: Retention,
        ids: ostler_runtime::Ids,
        #[cfg(feature = "process")] supervisor: Option<ostler_process::supervisor::Supervisor>,
    ) -> Self {
        let handle = node.handle();
        let telemetry = node.telemetry().clone();
        let signals = NodeSignals { state: handle.state(), ends: handle.ends(), telemetry };
        let queue = first.queue.clone();
        let inner = PoolInner {
            node: Mutex::new(Some(node)),
            handle,
            first,
            retention,
            #[cfg(feature = "process")]
            supervisor,
        };
        Self { client: Client::new(store, &queue, ids, Some(signals)), inner: Arc::new(inner) }
    }

    /// Returns the same pool, to submit to another of its queues and to ask for its workers. A queue that this pool does not serve
    /// has no worker here that could be free.
    #[must_use]
    pub fn on(&self, queue: impl Into<String>) -> Self {
        Self { client: self.client.on(queue), inner: Arc::clone(&self.inner) }
    }

    /// Submits a task if a worker of this pool is free for it. `None`: none is, and nothing is stored. The worker is reserved
    /// before the task is enqueued: of two callers for the last one, one gets `None`.
    ///
    /// The reservation holds against other callers of this method. A task that is already in the queue may still take the
    /// worker first, and another process that serves the queue may take the task.
    ///
    /// # Errors
    /// As for [`submit`](Client::submit).
    pub async fn submit_if_free<P: Serialize + Sync>(
        &self,
        kind: &str,
        payload: &P,
    ) -> Result<Option<TaskId>, SubmitError> {
        let task = self.new_task(kind, payload, Submission::default())?;
        let Some(reserved) = self.inner.handle.reserve(self.queue(), task.id) else { return Ok(None) };
        let id = task.id;
        let answers = self.enqueue(vec![task]).await?;
        taken_in(*answers.first().expect("one task has one answer"))?;
        tokio::spawn(keep_until_taken(self.client.clone(), reserved, id));
        Ok(Some(id))
    }

    /// Waits until a worker of this pool is free, so that a task submitted next starts immediately.
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
            if self.inner.handle.free_workers(self.queue()) > 0 {
                return Ok(());
            }
            ends.next().await;
        }
    }

    /// Waits until this pool runs nothing: no attempt in this process, of any of its queues, and no task that it has claimed
    /// or reserved a worker for. Tasks that wait in the store are not waited for; see [`wait_idle`](Client::wait_idle).
    pub async fn wait_for_completion(&self) {
        let mut ends = EndWatch::new(self);
        loop {
            ends.arm();
            if self.inner.handle.occupied() == 0 {
                return;
            }
            ends.next().await;
        }
    }

    /// Serves another queue as the first one, with its own workers, and on the same account and budget. These listeners replace those of the first queue that have the same
    /// name.
    pub(crate) async fn serve_also(
        &self,
        queue: &str,
        workers: Option<usize>,
        listeners: Vec<Arc<dyn EndListener>>,
    ) -> Result<(), OpenError> {
        let first = &self.inner.first;
        if first.executor.capacity().is_some() {
            return Err(OpenError::JobOnThreads);
        }
        // The limits of the first queue as a whole hold for the other one, too: it is served by the same pool.
        let served_by = QueueChange::ServedBy(Some(first.queue.clone()));
        let own = first.settings.iter().filter(|change| is_of_each_queue(change)).cloned();
        let settings = own.chain([served_by]).collect();
        let mut pool = PoolConfig { queue: queue.to_owned(), settings, ..first.clone() };
        pool.size = workers.map_or(pool.size, PoolSize::fixed);
        pool.listeners.retain(|one| listeners.iter().all(|own| own.subscriber() != one.subscriber()));
        pool.listeners.extend(listeners);
        Ok(self.inner.handle.add_pool(pool, TakeOver::No).await?)
    }

    /// Refuses a budget for a job if it is not known what the work of the first queue costs.
    pub(crate) fn check_priced(&self) -> Result<(), OpenError> {
        let first = &self.inner.first;
        let refused = |why: ostler_ops::Refusal| OpenError::Executor {
            queue: first.queue.clone(),
            reason: why.to_string(),
        };
        budgets::check_priced(first.unpriced.clone()).map_err(refused)
    }

    /// Serves the queue no longer.
    pub(crate) async fn leave(&self, queue: &str, timeout: Duration) {
        self.inner.handle.remove_pool(queue, timeout).await;
    }

    /// Removes the finished tasks of the store that this pool does not keep, now, and returns their number. A running pool does so
    /// once a minute; this is for programs that run for less. See [`keep_for`](crate::Builder::keep_for).
    ///
    /// # Errors
    /// When the store cannot be written. What was removed before stays removed.
    pub async fn prune(&self) -> Result<usize, WaitError> {
        let mut removed = 0;
        loop {
            // Each batch removes tasks, so it ends.
            let batch = self.store().prune(Prune::Retention(self.inner.retention)).await?;
            removed += batch.tasks;
            if !batch.more {
                return Ok(removed);
            }
        }
    }

    /// Returns how many attempts are running in this process.
    pub async fn running_here(&self) -> usize {
        self.inner.handle.running()
    }

    /// Returns the lifecycle state of the pool.
    #[must_use]
    pub fn state(&self) -> NodeState {
        *self.inner.handle.state().borrow()
    }

    /// Drains the pool: takes no more work, waits for running attempts, hands the rest back to the queue after `timeout`, and ends.
    /// Nothing is lost. From the beginning on, submissions to this pool fail with [`SubmitError::Draining`]; other processes are not
    /// affected. A second caller waits for the drain under way and gets empty counts.
    ///
    /// While it waits for running attempts, [`cancel_drain`](Self::cancel_drain) takes the drain back: this then returns empty counts, and
    /// [`state`](Self::state) is [`NodeState::Running`] again. If this future is dropped meanwhile, the pool goes on draining, until it
    /// is drained again or that is cancelled.
    pub async fn drain(&self, timeout: Duration) -> Drained {
        let handle = &self.inner.handle;
        handle.begin_drain();
        // A second caller waits here.
        let mut place = self.inner.node.lock().await;
        if place.is_none() {
            // It is drained already.
            return Drained::default();
        }
        let left = match handle.drained(timeout).await {
            DrainWait::Over { left } => left,
            DrainWait::TakenBack => return Drained::default(),
        };
        let Some(node) = place.take() else { return Drained::default() };
        let drained = node.drain(left).await;
        #[cfg(feature = "process")]
        if let Some(supervisor) = &self.inner.supervisor {
            supervisor.stop().await;
        }
        drained
    }

    /// Takes a drain back that still waits for running attempts, whether [`drain`](Self::drain) or a command from elsewhere began it:
    /// the pool takes work again, with the workers that it has. [`ResumeAnswer::Stopping`]: too late, the pool ends or has ended.
    #[must_use = "it may be too late"]
    pub fn cancel_drain(&self) -> ResumeAnswer {
        self.inner.handle.resume()
    }

    /// Waits until the pool has ended, or its drain was taken back.
    pub(crate) async fn drain_over(&self) {
        let _ = self.inner.handle.state().wait_for(|state| *state != NodeState::Draining).await;
    }

    /// Aborts running attempts without a grace period and hands them back to the queue, within three seconds even if the
    /// store does not answer. Nothing is lost, and no attempt counts as a failure. Cuts short a [`drain`](Self::drain) that
    /// is under way.
    pub async fn stop_now(&self) -> Drained {
        self.inner.handle.stopper().stop_now();
        self.drain(Duration::ZERO).await
    }
}

/// A pool does what its client does.
impl Deref for Pool {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Keeps a reservation until the pool has claimed the task, or the task no longer waits.
async fn keep_until_taken(client: Client, reserved: Reservation, id: TaskId) {
    let mut ends = EndWatch::new(&client);
    while reserved.is_pending() && client.takes_work() {
        ends.next().await;
        match client.get(id).await {
            Ok(task) if task.state.name() == StateName::Queued => {}
            Ok(_) | Err(WaitError::NotFound(_)) => return,
            // An unavailable store is asked again.
            Err(_) => {}
        }
    }
}

/// Whether a setting is for each queue that a pool serves: how attempts run, the account that they use, and limits of keys.
fn is_of_each_queue(change: &QueueChange) -> bool {
    match change {
        QueueChange::Overrides(_)
        | QueueChange::KindOverrides(..)
        | QueueChange::Account(_)
        | QueueChange::KeyConcurrency(_)
        | QueueChange::KeyRate(_)
        | QueueChange::KeyPath(_)
        | QueueChange::CostPath(_) => true,
        QueueChange::Breaker(breaker) => breaker.is_some_and(|breaker| breaker.scope == BreakerScope::Key),
        QueueChange::Pause(_)
        | QueueChange::Resume
        | QueueChange::Limit(_)
        | QueueChange::Concurrency(_)
        | QueueChange::KeyHold(_)
        | QueueChange::Priority(_)
        | QueueChange::Subscribe(_)
        | QueueChange::AlsoSubscribe(_)
        | QueueChange::Unsubscribe(_)
        | QueueChange::Budget(_)
        | QueueChange::ServedBy(_)
        | QueueChange::SetBy(_)
        | QueueChange::Rate(_)
        | QueueChange::OpenBreaker(_)
        | QueueChange::ResetBreaker
        | QueueChange::EndHold
        | QueueChange::OpenKeyBreaker { .. }
        | QueueChange::ResetKeyBreaker(_)
        | QueueChange::EndKeyHold(_) => false,
    }
}
