//! Staggered starts: two agents of a pool never start at the same moment.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(super) struct Stagger {
    gap: Duration,
    /// When the next one may start.
    next: Mutex<Option<Instant>>,
}

impl Stagger {
    pub(super) const fn new(gap: Duration) -> Self {
        Self { gap, next: Mutex::new(None) }
    }

    /// Waits for a start of its own.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + self.gap);
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starts_are_apart_and_a_first_one_does_not_wait() {
        let (stagger, began) = (Stagger::new(Duration::from_millis(200)), Instant::now());
        stagger.turn().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        tokio::join!(stagger.turn(), stagger.turn());
        assert_eq!(began.elapsed(), Duration::from_millis(400));
    }
}
