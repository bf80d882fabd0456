//! Thread set: the workers of one pool of threads, the choice of the next one, and their permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::permit::Backpressure;
use super::policy::{BadThreadPolicy, Choice, ThreadPolicy};
use super::worker::ThreadWorker;

/// Why threads were not started.
#[derive(Debug, thiserror::Error)]
pub enum ThreadStartError {
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] BadThreadPolicy),
    /// The system could not start a thread or its runtime.
    #[error("cannot start a thread: {0}")]
    System(#[from] std::io::Error),
}

/// The threads of a pool. They exit when it is dropped, each after its current job.
pub(super) struct ThreadSet {
    policy: ThreadPolicy,
    workers: Vec<ThreadWorker>,
    permits: Arc<Backpressure>,
    next: AtomicUsize,
}

impl ThreadSet {
    pub(super) fn start(policy: ThreadPolicy) -> Result<Self, ThreadStartError> {
        policy.check()?;
        let workers = (0..policy.threads)
            .map(|place| ThreadWorker::start(place, policy.runtimes))
            .collect::<Result<_, _>>()?;
        let permits = Arc::new(Backpressure::new(policy.most));
        Ok(Self { policy, workers, permits, next: AtomicUsize::new(0) })
    }

    pub(super) fn policy(&self) -> ThreadPolicy {
        self.policy
    }

    pub(super) fn permits(&self) -> &Arc<Backpressure> {
        &self.permits
    }

    /// The thread for the next job.
    pub(super) fn choose(&self) -> &ThreadWorker {
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
