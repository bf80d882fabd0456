//! Backpressure: the limit on running and queued work, and the drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Why no permit was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermitRefused {
    /// The limit is reached.
    #[error("the threads have as much to do as they may have")]
    QueueFull,
    /// The pool is draining.
    #[error("the threads are draining and take no new work")]
    Draining,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// All permits have been returned.
    Drained,
    /// The drain was taken back before that.
    TakenBack,
}

/// Counts running and queued work.
#[derive(Debug)]
pub struct Backpressure {
    most: usize,
    taken: AtomicUsize,
    draining: AtomicBool,
    /// Notified when a permit is returned, and when a drain is taken back.
    changed: Notify,
}

/// The right to run or wait. Dropping it returns it and notifies a drain.
#[derive(Debug)]
pub struct Permit(Arc<Backpressure>);

impl Backpressure {
    /// At most this many permits at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), draining: AtomicBool::new(false), changed: Notify::new() }
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// When none is left, or the pool is draining.
    pub fn take(self: &Arc<Self>) -> Result<Permit, PermitRefused> {
        if self.is_draining() {
            return Err(PermitRefused::Draining);
        }
        let room = |taken: usize| (taken < self.most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room);
        taken.map_err(|_| PermitRefused::QueueFull)?;
        let permit = Permit(Arc::clone(self));
        // A drain that started in between must not miss this permit, and this permit must not miss the drain.
        if self.is_draining() { Err(PermitRefused::Draining) } else { Ok(permit) }
    }

    /// The number of permits that are taken: running and queued work.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Whether no new permits are given out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Gives out no new permits, and waits until all have been returned or the drain is taken back. It goes on draining after that, and
    /// also if this future is dropped.
    pub async fn drain(&self) -> DrainEnd {
        self.draining.store(true, Ordering::SeqCst);
        loop {
            let changed = self.changed.notified();
            if !self.is_draining() {
                return DrainEnd::TakenBack;
            }
            if self.taken() == 0 {
                return DrainEnd::Drained;
            }
            changed.await;
        }
    }

    /// Takes the drain back, whether it is over or not: gives out permits again.
    pub fn resume(&self) {
        self.draining.store(false, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_bound_nothing_is_taken_until_a_permit_comes_back() {
        let permits = Arc::new(Backpressure::new(2));
        let first = permits.take().unwrap();
        let _second = permits.take().unwrap();
        assert_eq!(permits.take().unwrap_err(), PermitRefused::QueueFull);
        drop(first);
        assert!(permits.take().is_ok());
        assert_eq!(permits.taken(), 1);
    }

    #[tokio::test]
    async fn a_drain_takes_nothing_new_and_waits_for_the_last_permit() {
        let permits = Arc::new(Backpressure::new(2));
        let last = permits.take().unwrap();
        let mut drain = std::pin::pin!(permits.drain());
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(drain.as_mut().poll(cx))).await.is_pending()
        );
        assert_eq!(permits.take().unwrap_err(), PermitRefused::Draining);
        drop(last);
        assert_eq!(drain.await, DrainEnd::Drained);
        assert_eq!(permits.take().unwrap_err(), PermitRefused::Draining, "it stays drained");
        permits.resume();
        assert!(permits.take().is_ok());
    }

    #[tokio::test]
    async fn a_drain_that_is_taken_back_ends_while_a_permit_is_out() {
        let permits = Arc::new(Backpressure::new(2));
        let _running = permits.take().unwrap();
        let mut drain = std::pin::pin!(permits.drain());
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(drain.as_mut().poll(cx))).await.is_pending()
        );
        permits.resume();
        assert_eq!(drain.await, DrainEnd::TakenBack);
        assert!(permits.take().is_ok());
    }
}
