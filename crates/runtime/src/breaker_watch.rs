//! Breaker watch: notices when the breakers of the node's queues open and close, whatever node caused it, and reports it. The store
//! keeps the breakers and tells no one; so it is asked after a failure and after a claim that a gate held back, and while a breaker
//! is open.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::BreakerState;
use ostler_store::{Error, Store};
use tokio::sync::Notify;

use crate::telemetry::Telemetry;
use crate::worker_sets::WorkerSets;
use crate::workers::WorkerSet;

/// The shortest time between two looks, and the time between them while a breaker is open.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum open breakers of limit keys that are remembered. Further ones are not reported.
const MAX_OPEN: usize = 1_000;

/// Asks for a look. Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct BreakerHint(Arc<Notify>);

impl BreakerHint {
    /// A breaker may have changed. Cheap: a look follows at most every [`LOOK`].
    pub(crate) fn look(&self) {
        self.0.notify_one();
    }
}

/// A queue, and the limit key if each has a breaker.
type BreakerName = (String, Option<String>);

pub(crate) struct BreakerWatch {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) worker_sets: WorkerSets,
    pub(crate) telemetry: Telemetry,
}

impl BreakerWatch {
    /// Runs until it is aborted.
    pub(crate) async fn serve(self) {
        let mut open = BTreeSet::new();
        loop {
            // If the store does not answer, the next look may.
            if let Ok(found) = self.open_breakers().await {
                found
                    .difference(&open)
                    .for_each(|(queue, key)| self.telemetry.breaker_opened(queue, key.as_deref()));
                open.difference(&found)
                    .for_each(|(queue, key)| self.telemetry.breaker_closed(queue, key.as_deref()));
                open = found;
            }
            tokio::time::sleep(LOOK).await;
            if open.is_empty() {
                self.telemetry.breakers.0.notified().await;
            }
        }
    }

    /// The open breakers of the node's queues. A survey is made only if one of them has a breaker.
    async fn open_breakers(&self) -> Result<BTreeSet<BreakerName>, Error> {
        let mut queues = BTreeSet::new();
        if Telemetry::reports_breakers() {
            for queue in self.worker_sets.all().iter().map(WorkerSet::pool) {
                if self.store.queue_settings(queue).await?.breaker.is_some() {
                    queues.insert(queue.to_owned());
                }
            }
        }
        if queues.is_empty() {
            return Ok(BTreeSet::new());
        }
        let survey = self.store.survey().await?;
        let of_queues = survey.queues.into_iter().map(|queue| (queue.name, None, queue.breaker));
        let of_keys = survey.keys.into_iter().map(|key| (key.queue, Some(key.key), key.breaker));
        let open =
            of_queues.chain(of_keys).filter(|(queue, _, state)| queues.contains(queue) && is_open(*state));
        Ok(open.map(|(queue, key, _)| (queue, key)).take(MAX_OPEN).collect())
    }
}

fn is_open(state: Option<BreakerState>) -> bool {
    match state {
        Some(BreakerState::Open { .. } | BreakerState::HalfOpen { .. }) => true,
        Some(BreakerState::Closed) | None => false,
    }
}
