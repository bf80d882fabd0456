//! Thread worker: one thread with its own runtime, one job at a time, a fresh `LocalSet` for each.
//!
//! A job is a closure that makes a future on the thread; attempts of the executor and closures of the pool are both jobs. The closure
//! moves between threads, the future does not.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::policy::Runtimes;

/// What a job's future returned, or what its panic carried.
pub(super) type JobEnd<T> = Result<T, Box<dyn Any + Send>>;

/// The thread has ended, and the job with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadEnded;

/// A thread, or its replacement, and the jobs queued for it.
pub(super) struct ThreadWorker {
    place: usize,
    runtimes: Runtimes,
    queue: Arc<ThreadQueue>,
    load: Arc<AtomicUsize>,
}

/// The jobs queued for a thread. Their number is bounded by the permits of the pool: a job whose caller has given up is removed.
#[derive(Default)]
struct ThreadQueue {
    queued: Mutex<QueuedJobs>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedJobs {
    /// In the order of their numbers.
    jobs: VecDeque<ThreadJob>,
    next_number: u64,
    /// The number of the thread that serves the queue: a replaced thread finds another number here, and exits.
    serving: u64,
    closed: bool,
}

struct ThreadJob {
    number: u64,
    run: Box<dyn FnOnce(&Runtime) + Send>,
}

impl ThreadQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedJobs> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job for this thread; `None` when it should exit.
    fn next(&self, thread: u64) -> Option<ThreadJob> {
        let idle =
            |queued: &mut QueuedJobs| queued.jobs.is_empty() && queued.serving == thread && !queued.closed;
        let mut queued = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if queued.serving != thread || queued.closed {
            return None;
        }
        queued.jobs.pop_front()
    }

    /// Queues a job and returns its number.
    fn push(&self, run: Box<dyn FnOnce(&Runtime) + Send>) -> u64 {
        let mut queued = self.lock();
        let number = queued.next_number;
        queued.next_number += 1;
        if !queued.closed {
            queued.jobs.push_back(ThreadJob { number, run });
            self.changed.notify_all();
        }
        number
    }

    /// Takes a job out that has not begun.
    fn remove(&self, number: u64) -> Option<ThreadJob> {
        let mut queued = self.lock();
        let place = queued.jobs.binary_search_by_key(&number, |job| job.number).ok()?;
        queued.jobs.remove(place)
    }

    /// No thread serves this queue any more.
    fn close(&self) {
        let mut queued = self.lock();
        queued.closed = true;
        let unserved = std::mem::take(&mut queued.jobs);
        drop(queued);
        self.changed.notify_all();
        drop(unserved);
    }
}

/// Counts one job that a thread runs or has queued.
pub(super) struct Assigned(Arc<AtomicUsize>);

impl Drop for Assigned {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A job that was handed to a thread. Dropping it removes the job from the queue, if it has not begun.
pub(super) struct Ticket<T> {
    number: u64,
    queue: Arc<ThreadQueue>,
    ending: oneshot::Receiver<JobEnd<T>>,
    is_over: bool,
}

impl<T> Ticket<T> {
    /// Waits for the end of the job, and of all that it spawned. Cancel safe.
    pub(super) async fn ended(&mut self) -> Result<JobEnd<T>, ThreadEnded> {
        let ended = (&mut self.ending).await;
        self.is_over = true;
        ended.map_err(|_| ThreadEnded)
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if !self.is_over {
            drop(self.queue.remove(self.number));
        }
    }
}

impl ThreadWorker {
    pub(super) fn start(place: usize, runtimes: Runtimes) -> std::io::Result<Self> {
        let worker = Self { place, runtimes, queue: Arc::default(), load: Arc::default() };
        worker.spawn(0)?;
        Ok(worker)
    }

    fn spawn(&self, thread: u64) -> std::io::Result<()> {
        let runtime = match self.runtimes {
            Runtimes::TwoWorkers => Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
            Runtimes::CurrentThread => Builder::new_current_thread().enable_all().build()?,
        };
        let queue = Arc::clone(&self.queue);
        let serve = move || {
            let served = ServedQueue(queue);
            while let Some(job) = served.0.next(thread) {
                // What a caller left behind may panic when it is dropped, and must not take the thread with it.
                let _ = catch_unwind(AssertUnwindSafe(|| (job.run)(&runtime)));
            }
        };
        std::thread::Builder::new().name(format!("ostler-thread-{}", self.place)).spawn(serve)?;
        Ok(())
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn count_in(&self) -> Assigned {
        self.load.fetch_add(1, Ordering::Relaxed);
        Assigned(Arc::clone(&self.load))
    }

    /// Queues a job. `held` is dropped when the job has ended with all that it spawned, before its result can be received; or with the
    /// job, if that does not begin.
    pub(super) fn submit<T, F, R, H>(&self, make: F, held: H) -> Ticket<T>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = T> + 'static,
        T: Send + 'static,
        H: Send + 'static,
    {
        let (caller, ending) = oneshot::channel();
        let run = move |runtime: &Runtime| {
            let ended = run_job(runtime, make);
            drop(held);
            let _ = caller.send(ended);
        };
        let number = self.queue.push(Box::new(run));
        Ticket { number, queue: Arc::clone(&self.queue), ending, is_over: false }
    }

    /// Replaces a thread that a job blocks; the new thread continues with the queue. The old one exits when its job returns.
    pub(super) fn replace(&self) {
        let mut queued = self.queue.lock();
        // If no thread can be started, the queue keeps the old one, late as it is.
        if self.spawn(queued.serving + 1).is_ok() {
            queued.serving += 1;
        }
    }
}

impl Drop for ThreadWorker {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The queue that a thread serves. If the thread dies, which only a panic of a panic's own destructor can cause, callers are not left
/// waiting.
struct ServedQueue(Arc<ThreadQueue>);

impl Drop for ServedQueue {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

/// Runs one job. What it spawned in its `LocalSet` is dropped before this returns, whatever the destructors do.
fn run_job<T, R: Future<Output = T>>(runtime: &Runtime, make: impl FnOnce() -> R) -> JobEnd<T> {
    let local = LocalSet::new();
    let ended =
        catch_unwind(AssertUnwindSafe(|| runtime.block_on(local.run_until(async move { make().await }))));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(local)));
    ended
}
