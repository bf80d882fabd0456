//! Thread executor: handlers that are not `Send`, on OS threads of their own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use ostler_core::{ErrorClass, WorkerId};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::permit::Backpressure;
use super::policy::ThreadPolicy;
use super::set::{ThreadSet, ThreadStartError};
use super::worker::{JobEnd, ThreadEnded};
use crate::context::Context;
use crate::contract::{AttemptResult, Control, Executor, Served, Work};
use crate::inline::{HandlerFuture, conclude, no_handler, panicked};
use crate::resources::Resources;
use crate::unresponsive::Unresponsive;

type LocalHandler =
    Arc<dyn Fn(String, Context) -> Pin<Box<dyn Future<Output = HandlerFuture>>> + Send + Sync>;

/// Runs handlers that are not `Send`.
pub struct Threads {
    threads: ThreadSet,
    handlers: BTreeMap<String, LocalHandler>,
    shared: Arc<Resources>,
    unresponsive: Unresponsive,
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the policy cannot be used, or the system cannot start more threads.
    pub fn start(policy: ThreadPolicy) -> Result<Self, ThreadStartError> {
        Ok(Self {
            threads: ThreadSet::start(policy)?,
            handlers: BTreeMap::new(),
            shared: Arc::default(),
            unresponsive: Unresponsive::default(),
        })
    }

    /// Adds a handler for a kind: JSON text in, JSON text out. Its future stays on the thread that created it.
    #[must_use]
    pub fn handle<F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        F: Fn(String, Context) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerFuture> + 'static,
    {
        let handler: LocalHandler = Arc::new(move |payload, context| Box::pin(handler(payload, context)));
        self.handlers.insert(kind.into(), handler);
        self
    }

    /// Gives handlers this shared state; see [`Context::shared`].
    #[must_use]
    pub fn sharing(self, shared: Arc<Resources>) -> Self {
        Self { shared, ..self }
    }

    /// The permits of running and queued attempts, and the drain.
    #[must_use]
    pub fn permits(&self) -> &Arc<Backpressure> {
        self.threads.permits()
    }
}

#[async_trait]
impl Executor for Threads {
    fn served(&self) -> Served {
        Served::Only(self.handlers.keys().cloned().collect())
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.threads.policy().most)
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        let Some(handler) = self.handlers.get(&*work.kind).cloned() else { return no_handler(&work.kind) };
        // Both are given back when this returns, even if the handler still blocks its thread: another thread takes its place then.
        let Ok(_permit) = self.permits().take() else {
            // Full or draining: another node may run it.
            return AttemptResult::handed_back();
        };
        let worker = self.threads.choose();
        let _load = worker.count_in();
        let (began, beginning) = oneshot::channel();
        let place = work.worker;
        let (timeout, grace) = (work.timeout, work.grace);
        let (cancel, lost) = (control.cancel.clone(), control.lost.clone());
        let shared = Arc::clone(&self.shared);
        let begin = move || async move {
            // The caller has given up at the same moment: the task may be elsewhere already.
            if began.send(()).is_err() {
                return AttemptResult::cancelled();
            }
            attempt(work, control, shared, handler).await
        };
        let mut ticket = worker.submit(begin, ());
        tokio::select! {
            biased;
            begun = beginning => if begun.is_err() {
                return thread_ended();
            },
            // It is still queued, and leaves the queue with its ticket.
            () = cancel.cancelled() => return AttemptResult::cancelled(),
            () = lost.cancelled() => return AttemptResult::cancelled(),
        }
        let told = async {
            // The thread gives the work one grace period to stop by itself, unless the lease is lost; the other is for dropping what it
            // spawned.
            tokio::select! {
                () = lost.cancelled() => {}
                () = async { cancel.cancelled().await; tokio::time::sleep(grace).await } => {}
            }
            tokio::time::sleep(grace).await;
        };
        let ended = tokio::select! {
            biased;
            ended = ticket.ended() => return result(ended),
            () = tokio::time::sleep(timeout + grace) => AttemptResult::too_long(timeout),
            () = told => AttemptResult::cancelled(),
        };
        worker.replace();
        self.unresponsive.keep(place, async move { drop(ticket.ended().await) });
        ended.unresponsive()
    }

    async fn close(&self, worker: WorkerId) {
        self.unresponsive.ended(worker).await;
    }
}

fn result(ended: Result<JobEnd<AttemptResult>, ThreadEnded>) -> AttemptResult {
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => panicked(panic.as_ref()),
        Err(ThreadEnded) => thread_ended(),
    }
}

fn thread_ended() -> AttemptResult {
    AttemptResult::failed_with(ErrorClass::Transient, "its thread has ended")
}

/// Runs on the thread.
async fn attempt(
    work: Work,
    control: Control,
    shared: Arc<Resources>,
    handler: LocalHandler,
) -> AttemptResult {
    let context = Context::new(&work, &control, &shared, Instant::now());
    let payload = work.payload.clone();
    let handled = async move { handler(payload, context).await };
    let mut running = tokio::task::spawn_local(handled.instrument(control.span.clone()));
    tokio::select! {
        biased;
        joined = &mut running => conclude(joined, &control.cancel),
        () = tokio::time::sleep(work.timeout) => AttemptResult::too_long(work.timeout),
        () = control.lost.cancelled() => AttemptResult::cancelled(),
        () = control.cancel.cancelled() => tokio::select! {
            biased;
            // The context has signalled the stop; a result within the grace period counts.
            joined = &mut running => conclude(joined, &control.cancel),
            () = control.lost.cancelled() => AttemptResult::cancelled(),
            () = tokio::time::sleep(work.grace) => AttemptResult::cancelled(),
        },
    }
}
