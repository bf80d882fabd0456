//! Unresponsive work: it did not stop on the stop signal, cannot be killed from outside, and still holds a thread.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use ostler_core::WorkerId;

type WorkEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Futures that complete when unresponsive work ends, by the worker that it holds. An unresponsive worker gets no other attempt, so
/// there is one for each.
#[derive(Default)]
pub(crate) struct Unresponsive(Mutex<HashMap<WorkerId, WorkEnd>>);

impl Unresponsive {
    /// Records that this worker is held until `end` completes.
    pub(crate) fn keep(&self, worker: WorkerId, end: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(worker, Box::pin(end));
    }

    /// Waits until nothing holds the worker any more.
    pub(crate) async fn ended(&self, worker: WorkerId) {
        let end = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
        if let Some(end) = end {
            end.await;
        }
    }
}
