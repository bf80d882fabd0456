//! Thread pool: closures that are not durable, on OS threads of their own.

use std::sync::Arc;

use super::permit::{DrainEnd, PermitRefused};
use super::policy::ThreadPolicy;
use super::set::{ThreadSet, ThreadStartError};
use super::worker::ThreadEnded;
use crate::inline::panic_message;

/// A sequential pool of OS threads for closures whose futures are not `Send`. **Not durable**: nothing is stored, nothing is retried,
/// and what has not ended is lost with the program. Durable work is submitted to a pool with handlers, as a payload.
///
/// Each thread has a tokio runtime of its own and runs one closure at a time, in a fresh `LocalSet`: what the closure spawned with
/// `spawn_local` is dropped with it, so nothing that it created on the thread is left when the next one starts. A closure that blocks its
/// thread for good keeps it.
///
/// Clones share the same threads, which exit when the last clone is dropped.
#[derive(Clone)]
pub struct ThreadPool {
    threads: Arc<ThreadSet>,
}

/// Why a closure has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreadPoolError {
    /// As many closures run and wait as may; this one was not queued.
    #[error("the pool of threads is full: {0} closures run or wait")]
    QueueFull(usize),
    /// The pool is draining; the closure was not queued.
    #[error("the pool of threads is draining and takes no new closures")]
    Draining,
    /// The closure or its future panicked, with this message. Its thread goes on with the next one.
    #[error("the closure panicked: {0}")]
    Panicked(String),
    /// Its thread has ended.
    #[error("the thread of the closure has ended")]
    ThreadGone,
}

impl ThreadPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the policy cannot be used, or the system cannot start more threads.
    pub fn start(policy: ThreadPolicy) -> Result<Self, ThreadStartError> {
        Ok(Self { threads: Arc::new(ThreadSet::start(policy)?) })
    }

    /// Runs a closure on one of the threads and waits for its result. It is queued at the first poll.
    ///
    /// The closure moves to the thread, its future stays there. Dropping the future that this returns cancels a closure that has not
    /// begun; one that has begun runs to its end, and holds its permit until then. A closure that waits for another one of the same
    /// pool can deadlock: its thread runs one closure at a time.
    ///
    /// # Errors
    /// At once when the pool is full or draining, and when the closure panics.
    pub async fn run<T, F, R>(&self, closure: F) -> Result<T, ThreadPoolError>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let permit = self.threads.permits().take().map_err(|refused| match refused {
            PermitRefused::QueueFull => ThreadPoolError::QueueFull(self.threads.policy().most),
            PermitRefused::Draining => ThreadPoolError::Draining,
        })?;
        let worker = self.threads.choose();
        // A permit and a place on the thread are kept until the closure has ended, even if no caller waits for it.
        let held = (permit, worker.count_in());
        let mut ticket = worker.submit(closure, held);
        match ticket.ended().await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(panic)) => Err(ThreadPoolError::Panicked(panic_message(panic.as_ref()))),
            Err(ThreadEnded) => Err(ThreadPoolError::ThreadGone),
        }
    }

    /// The layout of the pool.
    #[must_use]
    pub fn policy(&self) -> ThreadPolicy {
        self.threads.policy()
    }

    /// How many closures run or wait.
    #[must_use]
    pub fn occupied(&self) -> usize {
        self.threads.permits().taken()
    }

    /// Drains the pool: takes no new closures, and waits until all that it has taken have ended, or [`resume`](Self::resume) takes the
    /// drain back. A pool that has drained takes no closures until it is resumed.
    pub async fn drain(&self) -> DrainEnd {
        self.threads.permits().drain().await
    }

    /// Whether the pool is draining or has drained.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.threads.permits().is_draining()
    }

    /// Takes the drain back, during it or after: the pool takes closures again.
    pub fn resume(&self) {
        self.threads.permits().resume();
    }
}
