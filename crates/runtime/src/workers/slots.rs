//! Slots: how many workers of a pool are free, and reservations of one for a task that is about to be enqueued.

use ostler_core::TaskId;

use super::{SetState, WorkerSet};

/// A reserved worker. It is free again when this is dropped, or when the pool has claimed the task.
pub struct Reservation {
    workers: WorkerSet,
    task: TaskId,
}

impl Reservation {
    /// Whether the pool has not claimed the task yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.workers.lock().promised.contains(&self.task)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.workers.lock().promised.remove(&self.task);
    }
}

impl WorkerSet {
    /// Reserves a worker for a task; `None` if none is free.
    pub(crate) fn reserve(&self, task: TaskId) -> Option<Reservation> {
        let mut book = self.lock();
        if book.occupied() >= book.max || book.closing {
            return None;
        }
        book.promised.insert(task);
        drop(book);
        Some(Reservation { workers: self.clone(), task })
    }

    /// How many workers are free, counting those that would be opened for a task.
    pub(crate) fn free(&self) -> usize {
        let book = self.lock();
        book.max.saturating_sub(book.occupied())
    }

    /// How many tasks it runs, has claimed, or has reserved a worker for.
    pub(crate) fn occupied(&self) -> usize {
        self.lock().occupied()
    }
}

impl SetState {
    fn occupied(&self) -> usize {
        self.running() + self.backlog.len() + self.promised.len()
    }
}
