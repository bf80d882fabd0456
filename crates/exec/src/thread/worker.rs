//! Thread worker: one thread with its own runtime, one attempt at a time, a fresh `LocalSet` for each.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tracing::Instrument as _;

use super::LocalHandler;
use super::policy::Runtimes;
use crate::context::Context;
use crate::contract::{AttemptResult, Control, Work};
use crate::inline::{conclude, panicked};
use crate::resources::Resources;

/// An attempt queued for a thread.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) control: Control,
    pub(super) shared: Arc<Resources>,
    pub(super) handler: LocalHandler,
    /// Notified when its turn comes.
    pub(super) began: oneshot::Sender<()>,
    /// Receives the result.
    pub(super) caller: oneshot::Sender<AttemptResult>,
}

/// A thread, or its replacement, and the attempts queued for it.
pub(super) struct ThreadWorker {
    place: usize,
    runtimes: Runtimes,
    line: Arc<ThreadQueue>,
    load: AtomicUsize,
}

/// The attempts queued for a thread. Their number is bounded by the permits of the pool.
#[derive(Default)]
struct ThreadQueue {
    waiting: Mutex<QueuedAttempts>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedAttempts {
    jobs: VecDeque<Job>,
    /// The number of the thread that serves the queue: a replaced thread finds another number here, and exits.
    serving: u64,
    closed: bool,
}

impl ThreadQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedAttempts> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next attempt for this thread; `None` when it should exit.
    fn next(&self, thread: u64) -> Option<Job> {
        let idle = |waiting: &mut QueuedAttempts| {
            waiting.jobs.is_empty() && waiting.serving == thread && !waiting.closed
        };
        let mut waiting = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if waiting.serving != thread || waiting.closed {
            return None;
        }
        waiting.jobs.pop_front()
    }
}

/// Counts one attempt that a thread runs or has queued.
pub(super) struct Assigned<'a>(&'a AtomicUsize);

impl Drop for Assigned<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ThreadWorker {
    pub(super) fn start(place: usize, runtimes: Runtimes) -> std::io::Result<Self> {
        let worker = Self { place, runtimes, line: Arc::default(), load: AtomicUsize::new(0) };
        worker.spawn(0)?;
        Ok(worker)
    }

    fn spawn(&self, thread: u64) -> std::io::Result<()> {
        let runtime = match self.runtimes {
            Runtimes::TwoWorkers => Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
            Runtimes::CurrentThread => Builder::new_current_thread().enable_all().build()?,
        };
        let line = Arc::clone(&self.line);
        let serve = move || {
            while let Some(job) = line.next(thread) {
                run(&runtime, job);
            }
        };
        std::thread::Builder::new().name(format!("ostler-thread-{}", self.place)).spawn(serve)?;
        Ok(())
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn count_in(&self) -> Assigned<'_> {
        self.load.fetch_add(1, Ordering::Relaxed);
        Assigned(&self.load)
    }

    pub(super) fn send(&self, job: Job) {
        self.line.lock().jobs.push_back(job);
        self.line.changed.notify_all();
    }

    /// Replaces a thread that a handler blocks; the new thread continues with the queue. The old one exits when
    /// its handler returns.
    pub(super) fn replace(&self) {
        let mut waiting = self.line.lock();
        // If no thread can be started, the queue keeps the old one, late as it is.
        if self.spawn(waiting.serving + 1).is_ok() {
            waiting.serving += 1;
        }
    }
}

impl Drop for ThreadWorker {
    fn drop(&mut self) {
        self.line.lock().closed = true;
        self.line.changed.notify_all();
    }
}

fn run(runtime: &Runtime, job: Job) {
    let Job { work, control, shared, handler, began, caller } = job;
    // The caller gave up while the attempt was queued.
    if began.send(()).is_err() {
        return;
    }
    let local = LocalSet::new();
    let attempt = local.run_until(attempt(work, control, shared, handler));
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(attempt)))
        .unwrap_or_else(|panic| panicked(panic.as_ref()));
    // Everything that the attempt spawned is dropped before the next one starts, whatever its destructors do.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(local)));
    let _ = caller.send(ended);
}

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
