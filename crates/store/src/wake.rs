//! Hints that there may be work, or news for a node. They may be lost or come for nothing; looking is the truth.

use tokio::sync::watch;

/// Tells everyone who listens that there is something to look at.
#[derive(Debug)]
pub struct Bell(watch::Sender<u64>);

impl Default for Bell {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Bell {
    /// Rings. Many rings before anybody looks are one.
    pub fn ring(&self) {
        self.0.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Listens, from now on.
    #[must_use]
    pub fn listen(&self) -> Wakeups {
        Wakeups(self.0.subscribe())
    }
}

/// The two bells of a store: whoever waits for tasks is not woken by what only nodes need to know, and the other way round.
#[derive(Debug, Default)]
pub struct Bells {
    /// Tasks became ready.
    pub ready: Bell,
    /// A node should renew now.
    pub control: Bell,
}

/// Which bells a write rings, once it is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Tasks became ready.
    pub ready: bool,
    /// A node should renew now.
    pub control: bool,
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
    }
}

/// Hears a bell. Arm it first, then look, then wait: what happened in between is not missed.
#[derive(Clone, Debug)]
pub struct Wakeups(watch::Receiver<u64>);

impl Wakeups {
    /// From now on, rings count.
    pub fn arm(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for a ring since the last `arm`. Returns at once if there was one; for ever quiet if the store
    /// is gone.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
