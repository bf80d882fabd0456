//! What the program wants to be told of: completed tasks, failed ones, and tries that failed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{Failure, Task, Timestamp, Told};
use ostler_runtime::Listener;
use ostler_store::tell::{Tell, Telling};
use ostler_store::views::TaskDetail;

/// The end of an attempt, for a callback.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
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

type Callback = Arc<dyn Fn(Ended) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The callbacks of a pool. A pool without any keeps nothing to be told.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    completed: Option<Callback>,
    failed: Option<Callback>,
    retry: Option<Callback>,
}

impl Callbacks {
    pub(crate) fn set<F, R>(&mut self, what: Told, callback: F)
    where
        F: Fn(Ended) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let callback: Callback = Arc::new(move |ended| Box::pin(callback(ended)));
        *self.place(what) = Some(callback);
    }

    fn place(&mut self, what: Told) -> &mut Option<Callback> {
        match what {
            Told::Completed => &mut self.completed,
            Told::Failed => &mut self.failed,
            Told::Retry => &mut self.retry,
        }
    }

    fn of(&self, what: Told) -> Option<&Callback> {
        match what {
            Told::Completed => self.completed.as_ref(),
            Told::Failed => self.failed.as_ref(),
            Told::Retry => self.retry.as_ref(),
        }
    }
}

#[async_trait]
impl Listener for Callbacks {
    fn wants(&self) -> Tell {
        Told::ALL.into_iter().filter(|what| self.of(*what).is_some()).collect()
    }

    async fn hear(&self, telling: Telling, found: TaskDetail) -> Result<(), String> {
        // Another process may have asked for more than this one wants to hear.
        let Some(callback) = self.of(telling.what) else { return Ok(()) };
        let Telling { attempt, at, failure, run_at, .. } = telling;
        callback(Ended { task: found.task, attempt, at, failure, next_try: run_at }).await;
        Ok(())
    }
}
