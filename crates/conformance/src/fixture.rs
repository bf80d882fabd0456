//! Test fixture: the store under test, with control over its clock and its nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{SessionId, Timestamp};

use ostler_store::Checks;
use ostler_store::Store;

/// A boxed `Send` future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One store under test, with control over its clock and its nodes.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn store(&self) -> Arc<dyn Store>;

    /// Another connection to the same data (for memory: a clone; for SQLite: the file opened again).
    async fn second(&self) -> Arc<dyn Store>;

    /// Advances the wall clock and the clock of leases.
    fn advance(&self, by: Duration);

    /// The current time of the store's clock.
    fn now(&self) -> Timestamp;

    /// Makes the death of a node visible at once, where the store can detect it (a freed lock, a lost connection).
    async fn kill(&self, session: SessionId);

    /// Called halfway through a random sequence: a fixture may move all its data to another store and answer from that store afterwards.
    async fn halfway(&self) -> Halfway {
        Halfway::Stays
    }
}

/// Answer of [`Fixture::halfway`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halfway {
    /// The store is the same.
    Stays,
    /// The data is in another store now. All sessions have ended, and the tasks they held were handed back.
    Moved,
}

/// Creates an empty store that performs only these checks. The clocks of all created stores start at the same time.
pub type Constructor = Arc<dyn Fn(Checks) -> BoxFuture<'static, Box<dyn Fixture>> + Send + Sync>;
