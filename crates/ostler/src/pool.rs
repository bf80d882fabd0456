//! A running pool: submit, wait, cancel, look, drain.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Overrides, Priority, StateName, Task, TaskId, Timestamp};
use ostler_runtime::{Drained, Ids, Node, NodeState};
use ostler_store::Store;
use ostler_store::calls::{CancelAnswer, Enqueued, NewTask};
use ostler_store::views::{Counts, Which};
use serde::Serialize;
use tokio::sync::watch;

use crate::error::{SubmitError, WaitError};

/// How often a wait looks at what other processes do, at first and at most. What ends in this process is heard of at once.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// What may be said about a task when it is submitted. What is left out comes from the queue.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// Its head start.
    pub priority: Priority,
    /// Not before this moment.
    pub run_at: Option<Timestamp>,
    /// While a task with this key is kept, a repeat answers with that one.
    pub key: Option<String>,
    /// Shares limits, and takes turns, with others of the same key.
    pub limit_key: Option<String>,
    /// Attempts, backoff, timeout.
    pub overrides: Overrides,
    /// Too late to be useful after this.
    pub not_after: Option<Timestamp>,
}

/// How a queue stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// All tasks of the queue, by state; what has ended is counted for ever.
    pub tasks: Counts,
    /// The most that ever waited at once, in any one kind.
    pub queue_high_water: u64,
    /// Attempts that run in this process.
    pub running_here: usize,
}

/// A running pool.
pub struct Pool {
    store: Arc<dyn Store>,
    node: Node,
    queue: String,
    ids: Ids,
    state: watch::Receiver<NodeState>,
}

impl Pool {
    pub(crate) fn new(store: Arc<dyn Store>, node: Node, queue: String, ids: Ids) -> Self {
        let state = node.state();
        Self { store, node, queue, ids, state }
    }

    /// Submits a task. When this has answered, the task is on disk.
    ///
    /// # Errors
    /// When the queue is full, the pool drains, or the store cannot be written.
    pub async fn submit<P: Serialize + Sync>(&self, kind: &str, payload: &P) -> Result<TaskId, SubmitError> {
        self.submit_with(kind, payload, Submission::default()).await
    }

    /// Submits a task of which more is said. A task whose key is there already answers with the one that is there.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub async fn submit_with<P: Serialize + Sync>(
        &self,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskId, SubmitError> {
        if *self.state.borrow() != NodeState::Running {
            return Err(SubmitError::Draining);
        }
        let payload = serde_json::to_string(payload)
            .map_err(|error| SubmitError::Payload { kind: kind.to_owned(), error })?;
        let task = NewTask {
            priority: about.priority,
            run_at: about.run_at,
            unique_key: about.key,
            limit_key: about.limit_key,
            overrides: about.overrides,
            not_after: about.not_after,
            ..NewTask::new(TaskId((self.ids)()), self.queue.as_str(), kind, payload)
        };
        match self.store.enqueue(vec![task]).await?.as_slice() {
            [Enqueued::Created(id) | Enqueued::Existing(id)] => Ok(*id),
            [Enqueued::QueueFull { limit }] => Err(SubmitError::QueueFull { limit: *limit }),
            other => unreachable!("one task has one answer, and not {other:?}"),
        }
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

    /// Waits until a task has ended, and answers with it.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub async fn wait(&self, id: TaskId) -> Result<Task, WaitError> {
        let mut ends = Ends::new(self);
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
        let mut ends = Ends::new(self);
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
        let found = self.store.show(Which::Id(id)).await?;
        found.map(|detail| detail.task).ok_or(WaitError::NotFound(id))
    }

    /// Cancels a task, or tells its handler to stop. Answers where the task stood: `queued` tasks are cancelled now,
    /// running ones when their handler has stopped.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be written.
    pub async fn cancel(&self, id: TaskId) -> Result<StateName, WaitError> {
        match self.store.cancel(vec![id]).await?.as_slice() {
            [CancelAnswer::Cancelled] => Ok(StateName::Queued),
            [CancelAnswer::Requested] => Ok(StateName::Running),
            [CancelAnswer::Ended(state)] => Ok(*state),
            [CancelAnswer::NotFound] => Err(WaitError::NotFound(id)),
            other => unreachable!("one task has one answer, and not {other:?}"),
        }
    }

    /// How the queue stands.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn stats(&self) -> Result<Stats, WaitError> {
        let survey = self.store.survey().await?;
        let mut stats = Stats { running_here: self.node.running(), ..Stats::default() };
        for lane in survey.lanes.iter().filter(|lane| lane.queue == self.queue) {
            stats.queue_high_water = stats.queue_high_water.max(lane.high_water);
            stats.tasks.queued += lane.counts.queued;
            stats.tasks.claimed += lane.counts.claimed;
            stats.tasks.running += lane.counts.running;
            stats.tasks.completed += lane.counts.completed;
            stats.tasks.failed += lane.counts.failed;
            stats.tasks.cancelled += lane.counts.cancelled;
        }
        Ok(stats)
    }

    /// Where the pool stands.
    #[must_use]
    pub fn state(&self) -> NodeState {
        *self.state.borrow()
    }

    /// Takes no more work, waits for what runs, and after `timeout` gives the rest back. Nothing is lost.
    pub async fn drain(self, timeout: Duration) -> Drained {
        self.node.drain(timeout).await
    }

    /// Gives everything back at once. Nothing is lost.
    pub async fn stop_now(self) -> Drained {
        self.drain(Duration::ZERO).await
    }
}

/// Waits for something to have ended: at once where it ended in this process, by looking where it did not.
struct Ends {
    here: watch::Receiver<u64>,
    pause: Duration,
}

impl Ends {
    fn new(pool: &Pool) -> Self {
        Self { here: pool.node.ends(), pause: FIRST_LOOK }
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
