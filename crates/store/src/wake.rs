//! Wakeups: hints that there may be work, or a control signal for a node. They may be lost or spurious; only a query is authoritative.

use tokio::sync::watch;

/// Wakes all listeners.
#[derive(Debug)]
pub struct Bell(watch::Sender<u64>);

impl Default for Bell {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Bell {
    /// Rings. Several rings before a listener wakes count as one.
    pub fn ring(&self) {
        self.0.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Listens, from now on.
    #[must_use]
    pub fn listen(&self) -> Wakeups {
        Wakeups(self.0.subscribe())
    }
}

/// The bells of a store: callers that wait for tasks are not woken by control signals, and vice versa.
#[derive(Debug, Default)]
pub struct Bells {
    /// Tasks became ready, or the outbox has new entries.
    pub ready: Bell,
    /// A node should renew now, or read the schedules.
    pub control: Bell,
    /// A task ended, or an event was written.
    pub changed: Bell,
}

/// The bells that a write rings once it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Tasks became ready, or the outbox has new entries.
    pub ready: bool,
    /// A node should renew now, or read the schedules.
    pub control: bool,
    /// A task ended, or an event was written.
    pub changed: bool,
}

impl Bells {
    /// Rings these.
    pub fn ring(&self, rings: Rings) {
        if rings.ready {
            self.ready.ring();
        }
        if rings.control {
            self.control.ring();
        }
        if rings.changed {
            self.changed.ring();
        }
    }
}

/// Listens to a bell. Arm it first, then query, then wait: what happens in between is not missed.
#[derive(Clone, Debug)]
pub struct Wakeups(watch::Receiver<u64>);

impl Wakeups {
    /// Counts rings from now on.
    pub fn arm(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for a ring since the last `arm`. Returns at once if there was one; never if the store
    /// is gone.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
