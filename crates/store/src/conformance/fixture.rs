//! What a store brings to be tested.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{SessionId, Timestamp};

use crate::checks::Checks;
use crate::contract::Store;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One store under test, with the handles that the suite needs on the world around it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// Another connection to the same data (for memory: a clone; for SQLite: the file opened again).
    async fn second(&self) -> Arc<dyn Store>;

    /// Time passes, for the wall clock and for leases.
    fn advance(&self, by: Duration);

    /// The moment that the store's clock shows.
    fn now(&self) -> Timestamp;

    /// Makes the death of a node known at once, where the store can know it (a freed lock, a lost connection).
    async fn kill(&self, session: SessionId);

    /// A random sequence is half over: a fixture may carry all it has to another store now, and answer with that one from here on.
    async fn halfway(&self) -> Halfway {
        Halfway::Stays
    }
}

/// What became of a store in the middle of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halfway {
    /// It is the same one.
    Stays,
    /// Another one has taken its place. All sessions have ended, and what they held was handed back.
    Moved,
}

/// Makes an empty store that makes only these checks. The clock of every store it makes starts at the same
/// moment.
pub type Constructor = Arc<dyn Fn(Checks) -> BoxFuture<'static, Box<dyn Fixture>> + Send + Sync>;
