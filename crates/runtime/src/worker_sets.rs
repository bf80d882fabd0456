//! The worker sets of a session's pools, which come and go while the node runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::Worker;
use ostler_store::MAX_GONE_WORKERS;

use crate::workers::WorkerSet;

/// Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct WorkerSets(Arc<Mutex<Sets>>);

#[derive(Default)]
struct Sets {
    all: Vec<WorkerSet>,
    /// The last records of workers whose pool was removed, until they are reported; the oldest first.
    closed: VecDeque<Worker>,
}

impl WorkerSets {
    fn lock(&self) -> MutexGuard<'_, Sets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, workers: WorkerSet) {
        self.lock().all.push(workers);
    }

    pub(crate) fn remove(&self, pool: &str) {
        let mut sets = self.lock();
        let Sets { all, closed } = &mut *sets;
        for workers in all.extract_if(.., |workers| workers.pool() == pool) {
            closed.extend(workers.take_closed());
        }
        keep_newest(closed);
    }

    pub(crate) fn all(&self) -> Vec<WorkerSet> {
        self.lock().all.clone()
    }

    /// The worker set of the pool of this queue.
    pub(crate) fn of(&self, pool: &str) -> Option<WorkerSet> {
        self.lock().all.iter().find(|workers| workers.pool() == pool).cloned()
    }

    /// The last records of workers that were closed since this was asked.
    pub(crate) fn take_closed(&self) -> VecDeque<Worker> {
        let mut sets = self.lock();
        let mut closed = std::mem::take(&mut sets.closed);
        closed.extend(sets.all.iter().flat_map(WorkerSet::take_closed));
        keep_newest(&mut closed);
        closed
    }
}

fn keep_newest(closed: &mut VecDeque<Worker>) {
    let excess = closed.len().saturating_sub(MAX_GONE_WORKERS);
    closed.drain(..excess);
}
