//! One worker of a pool, from its opening to its close: it takes tasks from its crew, one at a time.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{Executor, WorkerFate, WorkerOpening};
use tokio::sync::Notify;

use crate::attempt::{self, PoolContext};
use crate::workers::{NextTask, WorkerSet};

/// How long a worker may take to come up. Executors have bounds of their own; this one is for those that keep none.
const MAX_OPENING: Duration = Duration::from_secs(15 * 60);
/// How long it may take to go.
const MAX_CLOSING: Duration = Duration::from_secs(30);

/// Serves until the crew tells it to go.
pub(crate) async fn serve(bench: Arc<PoolContext>, crew: WorkerSet, id: WorkerId, bell: Arc<Notify>) {
    let executor = &bench.pool.executor;
    let _place = WorkerSeat { crew: &crew, executor: executor.as_ref(), id };
    let opened = tokio::select! {
        opened = tokio::time::timeout(MAX_OPENING, executor.open(id)) => opened.unwrap_or_else(|_| {
            let message = format!("a worker did not come up within {MAX_OPENING:?}");
            WorkerOpening::Failed(Failure::new(ErrorClass::Timeout, message))
        }),
        // Nobody wants it any more: it is closed, however far it came.
        () = bell.notified() => WorkerOpening::Ready,
    };
    match opened {
        WorkerOpening::Ready => crew.ready(id),
        WorkerOpening::Failed(failure) => return crew.failed(failure),
        WorkerOpening::Short(what) => return crew.short(what),
    }
    let mut done = None;
    loop {
        match crew.turn(id, done.take(), bench.clock.now()) {
            NextTask::Run(waiting) => {
                // Given up: others have its place.
                let Some(ended) = attempt::run(&bench, *waiting, id).await else { break };
                match ended.slot {
                    WorkerFate::Reusable => done = Some(ended),
                    // There is nothing left of it; another worker takes its place.
                    WorkerFate::Spent | WorkerFate::Dead => {
                        crew.last(id, &ended);
                        break;
                    }
                    // Its work still holds it; another worker takes its place. It is in the book until that has ended, and a
                    // pool that ends does not wait for it.
                    WorkerFate::Unresponsive => {
                        crew.mark_unresponsive(id, &ended);
                        return executor.close(id).await;
                    }
                }
            }
            NextTask::Wait => tokio::select! {
                () = bell.notified() => {}
                failure = executor.ended(id) => {
                    crew.died(id, failure);
                    break;
                }
            },
            NextTask::Go => break,
        }
    }
    // An executor that cannot end its worker in time is not waited for.
    let _ = tokio::time::timeout(MAX_CLOSING, executor.close(id)).await;
}

/// Leaves the crew, however the worker ends, and leaves nothing of it behind.
struct WorkerSeat<'a> {
    crew: &'a WorkerSet,
    executor: &'a dyn Executor,
    id: WorkerId,
}

impl Drop for WorkerSeat<'_> {
    fn drop(&mut self) {
        self.executor.abandon(self.id);
        self.crew.gone(self.id);
    }
}
