//! The loop of one worker, from open to close: takes tasks from its worker set, one at a time or as many as it runs at once.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{Executor, WorkerFate, WorkerOpening};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::attempt::{self, AttemptEnding, PoolContext};
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
    let (telemetry, queue) = (&context.telemetry, &context.pool.queue);
    match opened {
        WorkerOpening::Ready => {
            context.options.apply(&context, &workers).await;
            workers.ready(id);
            telemetry.worker_started(queue, id);
        }
        WorkerOpening::Failed(failure) => {
            telemetry.worker_not_started(queue, id, &failure.message);
            return workers.failed(failure);
        }
        WorkerOpening::Short(what) => {
            telemetry.worker_not_started(queue, id, &what);
            return workers.short(what);
        }
    }
    let ended = if executor.slots(id) > 1 {
        side_by_side(&context, &workers, id, &bell).await
    } else {
        one_by_one(&context, &workers, id, &bell).await
    };
    match ended {
        // An executor that cannot close its worker in time is not waited for.
        LoopEnd::Free => drop(tokio::time::timeout(MAX_CLOSING, executor.close(id)).await),
        LoopEnd::Unresponsive => executor.close(id).await,
    }
}

/// How the loop of a worker ended.
enum LoopEnd {
    /// It runs nothing, or is gone.
    Free,
    /// Its work still blocks it; another worker replaces it. It stays in the set until the work has ended, and a pool that ends does not
    /// wait for it.
    Unresponsive,
}

async fn one_by_one(context: &PoolContext, workers: &WorkerSet, id: WorkerId, bell: &Notify) -> LoopEnd {
    let mut done = None;
    loop {
        match workers.turn(id, done.take(), context.clock.now()) {
            NextTask::Run(waiting) => {
                // Given up and already replaced.
                let Some(ended) = attempt::run(context, *waiting, id).await else { return LoopEnd::Free };
                context.telemetry.worker_ran(&context.pool.queue, id, ended.ending, ended.slot);
                match ended.slot {
                    WorkerFate::Reusable => done = Some(ended),
                    // The worker cannot be used again; another one replaces it.
                    WorkerFate::Spent | WorkerFate::Dead => {
                        workers.last(id, &ended);
                        return LoopEnd::Free;
                    }
                    WorkerFate::Unresponsive => {
                        workers.mark_unresponsive(id, &ended);
                        return LoopEnd::Unresponsive;
                    }
                }
            }
            NextTask::Wait => tokio::select! {
                () = bell.notified() => {}
                failure = context.pool.executor.ended(id) => {
                    context.telemetry.worker_died(&context.pool.queue, id, &failure);
                    workers.died(id, failure);
                    return LoopEnd::Free;
                }
            },
            NextTask::Go => return LoopEnd::Free,
        }
    }
}

/// Runs as many attempts at once as the worker takes.
async fn side_by_side(
    context: &Arc<PoolContext>,
    workers: &WorkerSet,
    id: WorkerId,
    bell: &Notify,
) -> LoopEnd {
    let mut running: JoinSet<Option<AttemptEnding>> = JoinSet::new();
    let (mut done, mut end) = (None, None);
    loop {
        let next = match end {
            None => workers.turn(id, done.take(), context.clock.now()),
            Some(_) => NextTask::Go,
        };
        match next {
            NextTask::Run(waiting) => {
                let context = Arc::clone(context);
                running.spawn(async move { attempt::run(&context, *waiting, id).await });
                continue;
            }
            NextTask::Wait => {}
            NextTask::Go if running.is_empty() => return end.unwrap_or(LoopEnd::Free),
            NextTask::Go => {}
        }
        let ended = tokio::select! {
            Some(ended) = running.join_next() => ended,
            failure = context.pool.executor.ended(id), if running.is_empty() => {
                context.telemetry.worker_died(&context.pool.queue, id, &failure);
                workers.died(id, failure);
                return LoopEnd::Free;
            }
            () = bell.notified() => continue,
        };
        // Given up and already replaced.
        let Some(ended) = ended.ok().flatten() else {
            end = Some(LoopEnd::Free);
            continue;
        };
        // A worker that dies ends everything that it runs, and is reported once.
        if end.is_none() {
            context.telemetry.worker_ran(&context.pool.queue, id, ended.ending, ended.slot);
        }
        match ended.slot {
            WorkerFate::Reusable if end.is_none() => done = Some(ended),
            // The worker takes no more; another one replaces it when what it runs has ended.
            WorkerFate::Reusable | WorkerFate::Spent | WorkerFate::Dead => {
                workers.last(id, &ended);
                end = end.or(Some(LoopEnd::Free));
            }
            WorkerFate::Unresponsive => {
                workers.mark_unresponsive(id, &ended);
                end = Some(LoopEnd::Unresponsive);
            }
        }
    }
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
