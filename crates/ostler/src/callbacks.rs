//! What the program wants to be told of: completed tasks, failed ones, and tries that failed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{EndKind, Failure, Task, Timestamp};
use ostler_runtime::EndListener;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::TaskDetail;

/// The end of an attempt, for a callback.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEnded {
    /// The task, as it stands when the callback is called.
    pub task: Task,
    /// The number of the attempt.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// What it failed with, if it did.
    pub failure: Option<Failure>,
    /// When it is tried again, if it is.
    pub next_try: Option<Timestamp>,
}

type Callback = Arc<dyn Fn(AttemptEnded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The callbacks of a pool. A pool without any keeps nothing to be told.
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
    fn wants(&self) -> OutboxFilter {
        EndKind::ALL.into_iter().filter(|what| self.of(*what).is_some()).collect()
    }

    async fn ended(&self, telling: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        // Another process may have asked for more than this one wants to hear.
        let Some(callback) = self.of(telling.what) else { return Ok(()) };
        let OutboxEntry { attempt, at, failure, run_at, .. } = telling;
        callback(AttemptEnded { task: found.task, attempt, at, failure, next_try: run_at }).await;
        Ok(())
    }
}
