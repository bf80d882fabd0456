//! What this node holds: each attempt with the string that stops it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::TaskId;
use ostler_store::LeaseRef;
use tokio_util::sync::CancellationToken;

/// Why an attempt is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Somebody asked for it.
    Cancelled,
    /// The node gives its work back.
    HandBack,
    /// The lease is lost: nothing may be said for it any more.
    Lost,
}

struct Holding {
    lease: LeaseRef,
    stop: Option<Stop>,
    cancel: CancellationToken,
}

/// The attempts that this node holds. Clones are the same book.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<HashMap<TaskId, Holding>>>);

impl Held {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt is held from now on. The token is cancelled when it is to stop.
    pub(crate) fn take(&self, lease: LeaseRef) -> CancellationToken {
        let cancel = CancellationToken::new();
        self.lock().insert(lease.task, Holding { lease, stop: None, cancel: cancel.clone() });
        cancel
    }

    /// An attempt is over. Answers why it was stopped, if it was.
    pub(crate) fn let_go(&self, lease: LeaseRef) -> Option<Stop> {
        let mut held = self.lock();
        match held.get(&lease.task) {
            Some(holding) if holding.lease == lease => {
                held.remove(&lease.task).and_then(|holding| holding.stop)
            }
            Some(_) | None => None,
        }
    }

    /// All leases, for a renewal.
    pub(crate) fn leases(&self) -> Vec<LeaseRef> {
        self.lock().values().map(|holding| holding.lease).collect()
    }

    /// Tells these to stop. The first reason stays, except that a loss overrules the others.
    pub(crate) fn stop(&self, tasks: &[TaskId], why: Stop) {
        let mut held = self.lock();
        for task in tasks {
            if let Some(holding) = held.get_mut(task) {
                holding.stop = match (holding.stop, why) {
                    (Some(_), Stop::Lost) | (None, _) => Some(why),
                    (Some(first), Stop::Cancelled | Stop::HandBack) => Some(first),
                };
                holding.cancel.cancel();
            }
        }
    }

    /// Tells everything to stop.
    pub(crate) fn stop_all(&self, why: Stop) {
        let tasks: Vec<TaskId> = self.lock().keys().copied().collect();
        self.stop(&tasks, why);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}
