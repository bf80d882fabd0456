//! The in-memory reference store as a fixture, for comparison.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{SessionId, Timestamp};

use super::clock::ManualClock;
use super::fixture::{Constructor, Fixture};
use crate::memory::Memory;
use ostler_store::Clock;
use ostler_store::Store;

/// The in-memory reference, with a clock that starts at `start`.
#[must_use]
pub fn reference(start: Timestamp) -> Constructor {
    Arc::new(move |checks| {
        let clock = Arc::new(ManualClock::at(start));
        let memory = Memory::with_checks(Arc::<ManualClock>::clone(&clock), checks);
        Box::pin(async move { Box::new(Reference { clock, memory }) as Box<dyn Fixture> })
    })
}

struct Reference {
    clock: Arc<ManualClock>,
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
