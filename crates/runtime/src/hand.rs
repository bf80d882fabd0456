//! One worker of a pool, from its opening to its close: it takes tasks from its crew, one at a time.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{Opened, Slot};
use tokio::sync::Notify;

use crate::attempt::{self, Bench};
use crate::crew::{Crew, Turn};

/// How long a worker may take to come up.
const MAX_OPENING: Duration = Duration::from_secs(60);
/// How long it may take to go.
const MAX_CLOSING: Duration = Duration::from_secs(30);

/// Serves until the crew tells it to go.
pub(crate) async fn serve(bench: Arc<Bench>, crew: Crew, id: WorkerId, bell: Arc<Notify>) {
    let _place = Place { crew: &crew, id };
    let opened = tokio::select! {
        opened = tokio::time::timeout(MAX_OPENING, bench.pool.executor.open(id)) => opened.unwrap_or_else(|_| {
            let message = format!("a worker did not come up within {MAX_OPENING:?}");
            Opened::Failed(Failure::new(ErrorClass::Timeout, message))
        }),
        // Nobody wants it any more: it is closed, however far it came.
        () = bell.notified() => Opened::Ready,
    };
    match opened {
        Opened::Ready => crew.ready(id),
        Opened::Failed(failure) => return crew.failed(failure),
    }
    let mut done = None;
    loop {
        match crew.turn(id, done.take(), bench.clock.now()) {
            Turn::Run(waiting) => {
                let ended = attempt::run(&bench, *waiting, id).await;
                if ended.slot == Slot::Deaf {
                    // Its work still holds it; another worker takes its place.
                    crew.last(id, &ended);
                    break;
                }
                done = Some(ended);
            }
            Turn::Wait => bell.notified().await,
            Turn::Go => break,
        }
    }
    // An executor that cannot end its worker in time is not waited for.
    let _ = tokio::time::timeout(MAX_CLOSING, bench.pool.executor.close(id)).await;
}

/// Leaves the crew, however the worker ends.
struct Place<'a> {
    crew: &'a Crew,
    id: WorkerId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.crew.gone(self.id);
    }
}
