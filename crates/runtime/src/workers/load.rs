//! The load of a worker set, in workers and in slots: a worker has as many as attempts that it runs at once.

use tokio::time::Instant;

use crate::prefetch::PrefetchEstimate;

/// The load of a worker set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetLoad {
    /// Workers that are not exiting: starting, idle and busy.
    pub(crate) total: usize,
    /// Workers that run nothing.
    pub(crate) idle: usize,
    pub(crate) starting: usize,
    /// Free slots of workers that have started.
    pub(crate) open: usize,
    /// Slots that a worker is expected to have.
    pub(crate) per_worker: usize,
    /// Claimed tasks that wait for a worker.
    pub(crate) backlog: usize,
    /// Claimed or running tasks that may take their node down.
    pub(crate) suspects: usize,
    pub(crate) oldest_idle: Option<Instant>,
    pub(crate) oldest_waiting: Option<Instant>,
    /// No worker is opened before this time.
    pub(crate) open_again: Option<Instant>,
    /// No more workers are opened: they die at their start, or too many of them do not stop.
    pub(crate) gave_up: bool,
    pub(crate) prefetch: PrefetchEstimate,
}

impl SetLoad {
    /// Free slots without a waiting task.
    pub(crate) fn free(&self) -> usize {
        self.open.saturating_sub(self.backlog)
    }

    /// Idle workers that no waiting task needs.
    pub(crate) fn spare(&self) -> usize {
        self.idle.saturating_sub(self.backlog.div_ceil(self.per_worker.max(1)))
    }

    /// Waiting tasks without a free slot.
    pub(crate) fn unserved(&self) -> usize {
        self.backlog.saturating_sub(self.open)
    }

    /// Whether nothing is running or about to run.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.backlog == 0 && self.total == self.idle + self.starting
    }

    /// Slots of workers that are starting.
    pub(crate) fn coming(&self) -> usize {
        self.starting * self.per_worker
    }

    /// Waiting tasks without a free slot, now or soon.
    pub(crate) fn excess(&self) -> usize {
        self.unserved().saturating_sub(self.coming())
    }
}
