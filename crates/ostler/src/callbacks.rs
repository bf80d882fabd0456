//! Callbacks for completed tasks, failed tasks and attempts that are retried.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{Attempt, EndKind, Failure, Task, Timestamp};
use ostler_runtime::EndListener;
use ostler_store::Store;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::TaskDetail;

use crate::admin::{TaskFile, files_of};

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
    /// The attempt: when it ran and for how long, and the session, prompt, tokens and cost of what it asked of a model. `None` if the
    /// task ended without one, as by its deadline.
    pub record: Option<Attempt>,
    /// The files that the attempt left.
    pub files: Vec<TaskFile>,
    /// How often this outcome was handed to a callback before. Above 0, that callback may have been called: its process died.
    pub earlier: u32,
}

type Callback = Arc<dyn Fn(AttemptEnded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The callbacks of a queue, at most one for each kind of outcome. Without any, no outbox entries are written.
#[derive(Clone, Default)]
pub(crate) struct Callbacks(BTreeMap<&'static str, OutcomeCallback>);

/// The callback for one kind of outcome. Each kind is a subscriber of its own: of two pools of a queue with different callbacks,
/// neither takes what the other waits for.
#[derive(Clone)]
struct OutcomeCallback {
    what: EndKind,
    call: Callback,
}

/// The name under which a callback is subscribed.
const fn subscriber(what: EndKind) -> &'static str {
    match what {
        EndKind::Completed => "on_completed",
        EndKind::Failed => "on_failed",
        EndKind::Retry => "on_retry",
    }
}

impl Callbacks {
    pub(crate) fn set<F, R>(&mut self, what: EndKind, callback: F)
    where
        F: Fn(AttemptEnded) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let call: Callback = Arc::new(move |ended| Box::pin(callback(ended)));
        self.0.insert(subscriber(what), OutcomeCallback { what, call });
    }

    /// Each as a listener of its pool.
    pub(crate) fn into_listeners(self, store: &Arc<dyn Store>) -> Vec<Arc<dyn EndListener>> {
        let listener = |callback| {
            Arc::new(CallbackListener { callback, store: Arc::clone(store) }) as Arc<dyn EndListener>
        };
        self.0.into_values().map(listener).collect()
    }
}

/// Calls a callback for the ends that a node takes from the outbox.
struct CallbackListener {
    callback: OutcomeCallback,
    store: Arc<dyn Store>,
}

#[async_trait]
impl EndListener for CallbackListener {
    fn subscriber(&self) -> &str {
        subscriber(self.callback.what)
    }

    fn wants(&self) -> OutboxFilter {
        OutboxFilter::NONE.with(self.callback.what)
    }

    async fn ended(&self, entry: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        let OutboxEntry { attempt, at, failure, run_at: next_try, earlier, .. } = entry;
        let record = found.attempts.into_iter().find(|record| record.number == attempt);
        // A callback is called though the files cannot be read now.
        let mut files = files_of(self.store.as_ref(), found.task.id).await.unwrap_or_default();
        files.retain(|file| record.as_ref().is_some_and(|record| record.token == file.token));
        let ended = AttemptEnded { task: found.task, attempt, at, failure, next_try, record, files, earlier };
        (self.callback.call)(ended).await;
        Ok(())
    }
}
