//! Callbacks for completed tasks, failed tasks and attempts that are retried.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{EndKind, Failure, Task, Timestamp};
use ostler_runtime::EndListener;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::TaskDetail;

/// The outcome of an attempt, as passed to a callback.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEnded {
    /// The task as it is when the callback is called; it may have changed since the attempt finished.
    pub task: Task,
    /// The number of the attempt.
    pub attempt: u32,
    /// When the attempt finished.
    pub at: Timestamp,
    /// The failure, if the attempt failed.
    pub failure: Option<Failure>,
    /// When the next attempt is due, if the task is retried.
    pub next_try: Option<Timestamp>,
}

type Callback = Arc<dyn Fn(AttemptEnded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The name under which the callbacks of a queue are subscribed.
const SUBSCRIBER: &str = "callbacks";

/// The callbacks of a pool. Without any, the pool writes no outbox entries.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    completed: Option<Callback>,
    failed: Option<Callback>,
    retry: Option<Callback>,
}

impl Callbacks {
    pub(crate) fn set<F, R>(&mut self, what: EndKind, callback: F)
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let callback: Callback = Arc::new(move |ended| Box::pin(callback(ended)));
        *self.place(what) = Some(callback);
    }

    fn place(&mut self, what: EndKind) -> &mut Option<Callback> {
        match what {
            EndKind::Completed => &mut self.completed,
            EndKind::Failed => &mut self.failed,
            EndKind::Retry => &mut self.retry,
        }
    }

    fn of(&self, what: EndKind) -> Option<&Callback> {
        match what {
            EndKind::Completed => self.completed.as_ref(),
            EndKind::Failed => self.failed.as_ref(),
            EndKind::Retry => self.retry.as_ref(),
        }
    }
}

#[async_trait]
impl EndListener for Callbacks {
    fn subscriber(&self) -> &str {
        SUBSCRIBER
    }

    fn wants(&self) -> OutboxFilter {
        EndKind::ALL.into_iter().filter(|what| self.of(*what).is_some()).collect()
    }

    async fn ended(&self, entry: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        // Another process may have asked for more outcomes than this one.
        let Some(callback) = self.of(entry.what) else { return Ok(()) };
        let OutboxEntry { attempt, at, failure, run_at, .. } = entry;
        callback(AttemptEnded { task: found.task, attempt, at, failure, next_try: run_at }).await;
        Ok(())
    }
}
