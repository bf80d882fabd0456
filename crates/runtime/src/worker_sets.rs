//! The worker sets of a session's pools, which come and go while the node runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::workers::WorkerSet;

/// Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct WorkerSets(Arc<Mutex<Vec<WorkerSet>>>);

impl WorkerSets {
    fn lock(&self) -> MutexGuard<'_, Vec<WorkerSet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, workers: WorkerSet) {
        self.lock().push(workers);
    }

    pub(crate) fn remove(&self, pool: &str) {
        self.lock().retain(|workers| workers.pool() != pool);
    }

    pub(crate) fn all(&self) -> Vec<WorkerSet> {
        self.lock().clone()
    }
}
