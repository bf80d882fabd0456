//! The loop of one worker, from open to close: takes tasks from its worker set, one at a time.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{Executor, WorkerFate, WorkerOpening};
use tokio::sync::Notify;

use crate::attempt::{self, PoolContext};
use crate::workers::{NextTask, WorkerSet};

/// How long a worker may take to start: a bound for executors that have none of their own.
const MAX_OPENING: Duration = Duration::from_secs(15 * 60);
/// How long a worker may take to close.
const MAX_CLOSING: Duration = Duration::from_secs(30);

/// Serves until the worker set dismisses the worker.
pub(crate) async fn serve(context: Arc<PoolContext>, workers: WorkerSet, id: WorkerId, bell: Arc<Notify>) {
    let executor = &context.pool.executor;
    let _place = WorkerSeat { workers: &workers, executor: executor.as_ref(), id };
    let opened = tokio::select! {
        opened = tokio::time::timeout(MAX_OPENING, executor.open(id)) => opened.unwrap_or_else(|_| {
            let message = format!("a worker did not start within {MAX_OPENING:?}");
            WorkerOpening::Failed(Failure::new(ErrorClass::Timeout, message))
        }),
        // No longer needed: close it, however far it got.
        () = bell.notified() => WorkerOpening::Ready,
    };
    match opened {
        WorkerOpening::Ready => workers.ready(id),
        WorkerOpening::Failed(failure) => return workers.failed(failure),
        WorkerOpening::Short(what) => return workers.short(what),
    }
    let mut done = None;
    loop {
        match workers.turn(id, done.take(), context.clock.now()) {
            NextTask::Run(waiting) => {
                // Given up and already replaced.
                let Some(ended) = attempt::run(&context, *waiting, id).await else { break };
                match ended.slot {
                    WorkerFate::Reusable => done = Some(ended),
                    // The worker cannot be used again; another one replaces it.
                    WorkerFate::Spent | WorkerFate::Dead => {
                        workers.last(id, &ended);
                        break;
                    }
                    // Its work still blocks it; another worker replaces it. It stays in the set until the work has ended,
                    // and a pool that ends does not wait for it.
                    WorkerFate::Unresponsive => {
                        workers.mark_unresponsive(id, &ended);
                        return executor.close(id).await;
                    }
                }
            }
            NextTask::Wait => tokio::select! {
                () = bell.notified() => {}
                failure = executor.ended(id) => {
                    workers.died(id, failure);
                    break;
                }
            },
            NextTask::Go => break,
        }
    }
    // An executor that cannot close its worker in time is not waited for.
    let _ = tokio::time::timeout(MAX_CLOSING, executor.close(id)).await;
}

/// Removes the worker from its set, however the loop ends, and abandons its resources.
struct WorkerSeat<'a> {
    workers: &'a WorkerSet,
    executor: &'a dyn Executor,
    id: WorkerId,
}

impl Drop for WorkerSeat<'_> {
    fn drop(&mut self) {
        self.executor.abandon(self.id);
        self.workers.gone(self.id);
    }
}
