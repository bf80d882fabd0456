//! The reference as a fixture, for comparing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{SessionId, Timestamp, millis};

use super::fixture::{Constructor, Fixture};
use crate::clock::Clock;
use crate::contract::Store;
use crate::memory::Memory;

/// Any moment but the first: nothing may depend on an uptime near zero.
const UPTIME_MS: u64 = 86_400_000;

/// Makes the in-memory reference, with a clock that starts at `start`.
#[must_use]
pub fn reference(start: Timestamp) -> Constructor {
    Arc::new(move |checks| {
        let clock = Arc::new(HandClock::new(start));
        let memory = Memory::with_checks(Arc::<HandClock>::clone(&clock), checks);
        Box::pin(async move { Box::new(Reference { clock, memory }) as Box<dyn Fixture> })
    })
}

struct Reference {
    clock: Arc<HandClock>,
    memory: Memory,
}

#[async_trait]
impl Fixture for Reference {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.memory.clone())
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.store()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn kill(&self, session: SessionId) {
        self.memory.kill(session);
    }
}

/// A clock that stands still until it is moved. (The testkit has one for tests outside this crate; it depends
/// on this crate.)
struct HandClock {
    now_ms: AtomicI64,
    uptime_ms: AtomicU64,
}

impl HandClock {
    fn new(start: Timestamp) -> Self {
        Self { now_ms: AtomicI64::new(start.millis()), uptime_ms: AtomicU64::new(UPTIME_MS) }
    }

    fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(millis(by), Ordering::SeqCst);
        self.uptime_ms.fetch_add(u64::try_from(millis(by)).unwrap_or(0), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.uptime_ms.load(Ordering::SeqCst))
    }
}
