//! Thread executor: handlers that are not `Send`, on OS threads of their own.
//!
//! Each thread has its own runtime and runs one attempt at a time, in a fresh `LocalSet` that is dropped with everything
//! the attempt spawned: nothing of one attempt is left when the next starts.
//!
//! - `policy.rs`: the number of threads, the choice of the next one, the queue limit.
//! - `permit.rs`: backpressure and the drain.
//! - `worker.rs`: one thread.

mod permit;
mod policy;
mod worker;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ostler_core::{ErrorClass, WorkerId};
use tokio::sync::oneshot;

use crate::context::Context;
use crate::contract::{AttemptResult, Control, Executor, Served, Work};
use crate::inline::{HandlerFuture, no_handler};
use crate::resources::Resources;
use crate::unresponsive::Unresponsive;
pub use permit::{Backpressure, Permit, QueueFull};
pub use policy::{Choice, Runtimes, ThreadPolicy};
use worker::{Job, ThreadWorker};

pub(crate) type LocalHandler =
    Arc<dyn Fn(String, Context) -> Pin<Box<dyn Future<Output = HandlerFuture>>> + Send + Sync>;

/// Runs handlers that are not `Send`.
pub struct Threads {
    policy: ThreadPolicy,
    handlers: BTreeMap<String, LocalHandler>,
    shared: Arc<Resources>,
    workers: Vec<ThreadWorker>,
    permits: Arc<Backpressure>,
    next: AtomicUsize,
    unresponsive: Unresponsive,
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system cannot start more threads.
    pub fn start(policy: ThreadPolicy) -> std::io::Result<Self> {
        let workers = (0..policy.threads)
            .map(|place| ThreadWorker::start(place, policy.runtimes))
            .collect::<Result<_, _>>()?;
        let permits = Arc::new(Backpressure::new(policy.most));
        Ok(Self {
            policy,
            handlers: BTreeMap::new(),
            shared: Arc::default(),
            workers,
            permits,
            next: AtomicUsize::new(0),
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

    /// The permits of running and waiting attempts, and the drain.
    #[must_use]
    pub fn permits(&self) -> &Arc<Backpressure> {
        &self.permits
    }

    fn choose(&self) -> &ThreadWorker {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        match self.policy.choice {
            Choice::RoundRobin => &self.workers[turn],
            // Start at the turn, so that threads with equal load take turns too.
            Choice::LeastLoaded => (0..self.workers.len())
                .map(|step| &self.workers[(turn + step) % self.workers.len()])
                .min_by_key(|worker| worker.load())
                .unwrap_or(&self.workers[turn]),
        }
    }
}

#[async_trait]
impl Executor for Threads {
    fn served(&self) -> Served {
        Served::Only(self.handlers.keys().cloned().collect())
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.policy.most)
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        let Some(handler) = self.handlers.get(&*work.kind).cloned() else { return no_handler(&work.kind) };
        let Ok(_permit) = self.permits.take() else {
            // Full or draining: another node may run it.
            return AttemptResult::handed_back();
        };
        let worker = self.choose();
        let _load = worker.count_in();
        let (began, beginning) = oneshot::channel();
        let (caller, mut ending) = oneshot::channel();
        let place = work.worker;
        let (timeout, grace) = (work.timeout, work.grace);
        let (cancel, lost) = (control.cancel.clone(), control.lost.clone());
        let shared = Arc::clone(&self.shared);
        worker.send(Job { work, control, shared, handler, began, caller });
        tokio::select! {
            biased;
            begun = beginning => if begun.is_err() {
                return AttemptResult::failed_with(ErrorClass::Transient, "its thread has ended");
            },
            // It is still queued; when its turn comes, its thread finds that the caller is gone.
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
            ended = &mut ending => {
                return ended.unwrap_or_else(|_| AttemptResult::failed_with(ErrorClass::Transient, "its thread has ended"));
            }
            () = tokio::time::sleep(timeout + grace) => AttemptResult::too_long(timeout),
            () = told => AttemptResult::cancelled(),
        };
        worker.replace();
        self.unresponsive.keep(place, async move { drop(ending.await) });
        ended.unresponsive()
    }

    async fn close(&self, worker: WorkerId) {
        self.unresponsive.ended(worker).await;
    }
}
