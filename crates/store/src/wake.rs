//! Hints that there may be work. They may be lost or come for nothing; looking is the truth.

use tokio::sync::watch;

/// Tells everyone who listens that tasks became ready.
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

/// Hears the bell. Arm it first, then look for work, then wait: what became ready in between is not missed.
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
