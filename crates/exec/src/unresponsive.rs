//! Work that did not stop when it was told to, and cannot be ended from outside: who still holds a thread, and until when.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use ostler_core::WorkerId;

type WorkEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The ends of deaf work, by the worker that it holds. A worker that is deaf gets no other attempt: there is one for each.
#[derive(Default)]
pub(crate) struct Unresponsive(Mutex<HashMap<WorkerId, WorkEnd>>);

impl Unresponsive {
    /// This worker is held until then.
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
