//! Signals: events that a test waits for instead of sleeping.

use std::time::Duration;

use tokio::sync::watch;

/// How long a test waits for anything before it fails.
pub const MAX_WAIT: Duration = Duration::from_secs(30);

/// A counted event. Clones share the count.
#[derive(Clone, Debug)]
pub struct Signal {
    name: &'static str,
    count: watch::Sender<u64>,
}

impl Signal {
    /// A signal that was not emitted yet. The name appears in the message of a test that times out.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, count: watch::Sender::new(0) }
    }

    /// Counts one more event.
    pub fn emit(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    /// The number of events.
    #[must_use]
    pub fn count(&self) -> u64 {
        *self.count.borrow()
    }

    /// Waits for the first event.
    ///
    /// # Panics
    /// When it does not happen within [`MAX_WAIT`].
    pub async fn wait(&self) {
        self.wait_for(1).await;
    }

    /// Waits until the event has happened `times` times, counted from the beginning.
    ///
    /// # Panics
    /// When it does not happen within [`MAX_WAIT`].
    pub async fn wait_for(&self, times: u64) {
        let mut seen = self.count.subscribe();
        let happened = tokio::time::timeout(MAX_WAIT, seen.wait_for(|count| *count >= times)).await;
        assert!(
            happened.is_ok(),
            "waited {} s for \"{}\": it happened {} of {times} times",
            MAX_WAIT.as_secs(),
            self.name,
            self.count()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_is_let_go_by_an_emit_before_or_after() {
        let signal = Signal::new("started");
        signal.emit();
        signal.wait().await;
        let other = signal.clone();
        let waiter = tokio::spawn(async move { other.wait_for(3).await });
        signal.emit();
        signal.emit();
        waiter.await.expect("the waiter saw three");
        assert_eq!(signal.count(), 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 30 s for \"never\": it happened 1 of 2 times")]
    async fn waiting_in_vain_ends_with_a_sentence() {
        let signal = Signal::new("never");
        signal.emit();
        signal.wait_for(2).await;
    }
}
