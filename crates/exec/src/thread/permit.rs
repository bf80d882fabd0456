//! Backpressure: the limit on running and waiting attempts, and the drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// No permit is available: the limit is reached, or the pool is draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the threads have as much to do as they may have")]
pub struct QueueFull;

/// Counts running and waiting attempts.
#[derive(Debug)]
pub struct Backpressure {
    most: usize,
    taken: AtomicUsize,
    draining: AtomicBool,
    /// Notified when a permit is returned.
    returned: Notify,
}

/// The right to run or wait. Dropping it returns it and notifies a drain.
#[derive(Debug)]
pub struct Permit(Arc<Backpressure>);

impl Backpressure {
    /// At most this many permits at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), draining: AtomicBool::new(false), returned: Notify::new() }
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// When none is left, or the pool is draining.
    pub fn take(self: &Arc<Self>) -> Result<Permit, QueueFull> {
        if self.is_draining() {
            return Err(QueueFull);
        }
        let room = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).map_err(|_| QueueFull)?;
        let permit = Permit(Arc::clone(self));
        // A drain that started in between must not miss this permit, and this permit must not miss the drain.
        if self.is_draining() { Err(QueueFull) } else { Ok(permit) }
    }

    /// The number of running and waiting attempts.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Whether no new permits are given out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Gives out no new permits, and waits until all have been returned.
    pub async fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        loop {
            let returned = self.returned.notified();
            if self.taken() == 0 {
                return;
            }
            returned.await;
        }
    }

    /// Ends the drain: gives out permits again.
    pub fn resume(&self) {
        self.draining.store(false, Ordering::SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
        self.0.returned.notify_waiters();
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
        assert_eq!(permits.take().unwrap_err(), QueueFull);
        drop(first);
        assert!(permits.take().is_ok());
        assert_eq!(permits.taken(), 1);
    }

    #[tokio::test]
    async fn a_drain_takes_nothing_new_and_waits_for_the_last_permit() {
        let permits = Arc::new(Backpressure::new(2));
        let last = permits.take().unwrap();
        let drain = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { permits.drain().await }
        });
        while !permits.is_draining() {
            tokio::task::yield_now().await;
        }
        assert_eq!(permits.take().unwrap_err(), QueueFull);
        assert!(!drain.is_finished());
        drop(last);
        drain.await.unwrap();
        permits.resume();
        assert!(permits.take().is_ok());
    }
}
