//! Running children: the process that each worker of an executor has now, for reports.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::WorkerId;
use ostler_exec::Vitals;

use crate::memory::family_bytes;

/// How often the memory of a child is measured, first when it is this old: most children are gone by then.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The running children of an executor that starts one for each attempt.
#[derive(Debug, Default)]
pub struct RunningChildren(Mutex<HashMap<WorkerId, RunningChild>>);

#[derive(Debug)]
struct RunningChild {
    pid: i32,
    /// When the memory was measured, or the child started.
    measured: Instant,
    memory_bytes: Option<u64>,
}

/// A child is listed until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct ListedChild<'a> {
    children: &'a RunningChildren,
    worker: WorkerId,
}

impl RunningChildren {
    /// Lists a child that was just started for a worker.
    pub fn list(&self, worker: WorkerId, pid: i32) -> ListedChild<'_> {
        let child = RunningChild { pid, measured: Instant::now(), memory_bytes: None };
        self.lock().insert(worker, child);
        ListedChild { children: self, worker }
    }

    /// The process of a worker.
    #[must_use]
    pub fn vitals(&self, worker: WorkerId) -> Vitals {
        let mut all = self.lock();
        let Some(child) = all.get_mut(&worker) else { return Vitals::default() };
        let now = Instant::now();
        if now - child.measured >= MEASURE_EVERY {
            (child.measured, child.memory_bytes) = (now, family_bytes(child.pid));
        }
        Vitals { pid: u32::try_from(child.pid).ok(), memory_bytes: child.memory_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, RunningChild>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ListedChild<'_> {
    fn drop(&mut self) {
        self.children.lock().remove(&self.worker);
    }
}
