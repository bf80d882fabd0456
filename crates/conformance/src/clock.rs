//! A manual clock: time stands still until a test advances it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::{Timestamp, millis};
use ostler_store::Clock;

/// 2026-01-01, so that printed timestamps look plausible.
const START_MS: i64 = 1_767_225_600_000;
/// One day of uptime: no test depends on an uptime near zero.
const UP_MS: u64 = 86_400_000;

/// A clock set by a test. Clones share their time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now_ms: Arc<AtomicI64>,
    uptime_ms: Arc<AtomicU64>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp::from_millis(START_MS))
    }
}

impl ManualClock {
    /// A clock at the start of 2026.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now_ms: Arc::new(AtomicI64::new(now.millis())), uptime_ms: Arc::new(AtomicU64::new(UP_MS)) }
    }

    /// Advances the wall clock and the uptime.
    pub fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(millis(by), Ordering::SeqCst);
        self.uptime_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Sets the wall clock, as an administrator or a time service does. Uptime is unaffected.
    pub fn step_wall(&self, to: Timestamp) {
        self.now_ms.store(to.millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.uptime_ms.load(Ordering::SeqCst))
    }
}
