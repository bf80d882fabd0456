//! Events of pools, their workers and the breakers of their queues, target `ostler::pool`.

use std::sync::atomic::Ordering;

use ostler_core::{Ending, ErrorClass, Failure, WorkerId};
use ostler_exec::WorkerFate;
use tracing::{Level, event};

use super::counters::count;
use super::{POOL, Telemetry, is_enabled};
use crate::config::PoolSize;
use crate::node::Drained;

impl Telemetry {
    /// A claim has returned tasks of this queue.
    pub(crate) fn claimed(&self, queue: &str, tasks: usize) {
        self.counters.pool(queue).claimed.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    pub(crate) fn pool_started(&self, queue: &str, size: PoolSize) {
        let PoolSize { min, max, .. } = size;
        self.emit(Level::INFO, || {
            event!(
                name: "pool.started", target: POOL, Level::INFO,
                { queue, min_workers = min, max_workers = max, node = &*self.node },
                "pool \"{queue}\" started with {min} to {max} workers"
            );
        });
    }

    pub(crate) fn pool_stopped(&self, queue: &str, drained: Drained) {
        let Drained { finished, handed_back } = drained;
        self.emit(Level::INFO, || {
            event!(
                name: "pool.stopped", target: POOL, Level::INFO,
                { queue, finished, handed_back, node = &*self.node },
                "pool \"{queue}\" stopped"
            );
        });
    }

    /// Workers of a pool cannot be started, or do not stop.
    pub(crate) fn pool_trouble(&self, queue: &str, error: &str) {
        self.emit(Level::WARN, || {
            event!(
                name: "pool.trouble", target: POOL, Level::WARN,
                { queue, error, node = &*self.node },
                "pool \"{queue}\" has trouble with its workers"
            );
        });
    }

    pub(crate) fn worker_started(&self, queue: &str, worker: WorkerId) {
        count(&self.counters.pool(queue).started);
        self.emit(Level::DEBUG, || {
            event!(
                name: "worker.started", target: POOL, Level::DEBUG,
                { queue, worker = %worker, node = &*self.node },
                "worker started"
            );
        });
    }

    /// A worker did not start. If that goes on, the pool has trouble.
    pub(crate) fn worker_not_started(&self, queue: &str, worker: WorkerId, error: &str) {
        count(&self.counters.pool(queue).failed_starts);
        self.emit(Level::DEBUG, || {
            event!(
                name: "worker.not_started", target: POOL, Level::DEBUG,
                { queue, worker = %worker, error, node = &*self.node },
                "worker did not start"
            );
        });
    }

    /// A worker is replaced: it has done its share of work, or was asked to go.
    pub(crate) fn worker_recycled(&self, queue: &str, worker: WorkerId) {
        count(&self.counters.pool(queue).recycled);
        self.emit(Level::INFO, || {
            event!(
                name: "worker.recycled", target: POOL, Level::INFO,
                { queue, worker = %worker, node = &*self.node },
                "worker recycled"
            );
        });
    }

    /// A worker died while it had nothing to do.
    pub(crate) fn worker_died(&self, queue: &str, worker: WorkerId, failure: &Failure) {
        self.worker_crashed(queue, worker, &failure.message);
    }

    fn worker_crashed(&self, queue: &str, worker: WorkerId, error: &str) {
        count(&self.counters.pool(queue).crashed);
        self.emit(Level::WARN, || {
            event!(
                name: "worker.crashed", target: POOL, Level::WARN,
                { queue, worker = %worker, error, node = &*self.node },
                "worker crashed; another one takes its place"
            );
        });
    }

    /// A worker was killed because it was alive and did nothing.
    fn worker_stuck(&self, queue: &str, worker: WorkerId) {
        count(&self.counters.pool(queue).stuck);
        self.emit(Level::WARN, || {
            event!(
                name: "worker.stuck", target: POOL, Level::WARN,
                { queue, worker = %worker, node = &*self.node },
                "worker did nothing and was killed; another one takes its place"
            );
        });
    }

    /// A worker does not stop although it was asked to.
    fn worker_stalled(&self, queue: &str, worker: WorkerId) {
        count(&self.counters.pool(queue).stalled);
        self.emit(Level::WARN, || {
            event!(
                name: "worker.stalled", target: POOL, Level::WARN,
                { queue, worker = %worker, node = &*self.node },
                "worker does not stop; another one takes its place"
            );
        });
    }

    /// A worker has run an attempt, after which it can be used again or not.
    pub(crate) fn worker_ran(&self, queue: &str, worker: WorkerId, ending: Ending, fate: WorkerFate) {
        match (fate, ending) {
            (WorkerFate::Reusable, _) => {}
            (WorkerFate::Spent, _) => self.worker_recycled(queue, worker),
            (WorkerFate::Unresponsive, _) => self.worker_stalled(queue, worker),
            (WorkerFate::Dead, Ending::Failed(ErrorClass::Stuck)) => self.worker_stuck(queue, worker),
            (WorkerFate::Dead, Ending::Failed(ErrorClass::Crash)) => {
                self.worker_crashed(queue, worker, "it died while it ran a task");
            }
            // For the tasks that it ran at once, the death of their worker is that of a node: none of them is blamed.
            (WorkerFate::Dead, Ending::NodeDied) => {
                self.worker_crashed(queue, worker, "it died while it ran several tasks, which are run again");
            }
            // It was killed to end its attempt, which has an event of its own.
            (
                WorkerFate::Dead,
                Ending::Success
                | Ending::HandedBack
                | Ending::Cancelled
                | Ending::Failed(
                    ErrorClass::Transient
                    | ErrorClass::Partial
                    | ErrorClass::Timeout
                    | ErrorClass::Permanent
                    | ErrorClass::RateLimited
                    | ErrorClass::UsageLimit
                    | ErrorClass::QueueStop
                    | ErrorClass::Budget,
                ),
            ) => {}
        }
    }

    /// Whether any subscriber may want to know about breakers.
    pub(crate) fn reports_breakers() -> bool {
        is_enabled(Level::WARN)
    }

    /// The breaker of a queue, or of one of its limit keys, has opened.
    pub(crate) fn breaker_opened(&self, queue: &str, key: Option<&str>) {
        self.emit(Level::WARN, || {
            event!(
                name: "breaker.opened", target: POOL, Level::WARN,
                { queue, key, node = &*self.node },
                "the breaker of queue \"{queue}\" opened; its tasks wait"
            );
        });
    }

    pub(crate) fn breaker_closed(&self, queue: &str, key: Option<&str>) {
        self.emit(Level::INFO, || {
            event!(
                name: "breaker.closed", target: POOL, Level::INFO,
                { queue, key, node = &*self.node },
                "the breaker of queue \"{queue}\" closed"
            );
        });
    }
}
