//! Move source and move target: what the two sides of a move read and mark.

use async_trait::async_trait;
use ostler_core::Id;

use super::record::{Record, RecordKey};
use super::tables::Table;
use crate::error::Error;

/// The identity of a move. Both sides store it, so that an interrupted move is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveId {
    /// The id of the source, from its first move on.
    pub id: Id,
    /// The number of the move: one more after each abandoned one.
    pub round: u32,
}

/// The stage of a move at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStage {
    /// The last move was abandoned: the store works normally.
    Staying,
    /// The store accepts no new work; running attempts may finish.
    Leaving,
    /// Nothing changes any more.
    Frozen,
    /// The store was moved, and is no longer used.
    Gone,
}

impl MoveStage {
    /// All stages, in order.
    pub const ALL: [Self; 4] = [Self::Staying, Self::Leaving, Self::Frozen, Self::Gone];
}

/// What a source records about its move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub id: MoveId,
    pub stage: MoveStage,
    /// The target, without a password.
    pub target: String,
}

/// The state of a target with regard to a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// It holds no Ostler data.
    Empty,
    /// It holds a part of this move.
    Half,
    /// It holds a part of an earlier move, which was abandoned.
    Stale,
    /// This move is complete: the target is in use.
    Open,
}

/// What both sides can do.
#[async_trait]
pub trait MoveSide: Send + Sync {
    /// Reads rows of a table above `after`, in key order: at most `limit`, and fewer where they are large. Empty: there are no more.
    async fn read(&self, table: Table, after: Option<&RecordKey>, limit: usize)
    -> Result<Vec<Record>, Error>;
}

/// The store that is moved.
#[async_trait]
pub trait MoveSource: MoveSide {
    /// What it records about its move; `None`: it never started one.
    async fn departure(&self) -> Result<Option<Departure>, Error>;

    /// Refuses new work from now on, and records the target. Leased tasks may finish.
    async fn leave(&self, id: MoveId, target: &str) -> Result<(), Error>;

    /// The number of leased tasks.
    async fn leased(&self) -> Result<u64, Error>;

    /// Ends the sessions of all nodes, hands back their tasks, and allows no further change. Returns how many were handed back.
    async fn freeze(&self) -> Result<u64, Error>;

    /// The highest number that an outbox entry ever had: numbers are never reused.
    async fn last_telling(&self) -> Result<i64, Error>;

    /// Marks the store as moved. From now on it cannot be opened.
    async fn go(&self) -> Result<(), Error>;

    /// Abandons the move: the store works as before.
    async fn stay(&self) -> Result<(), Error>;
}

/// The store that receives the data.
#[async_trait]
pub trait MoveTarget: MoveSide {
    /// Its state with regard to this move. Writes nothing.
    ///
    /// # Errors
    /// When it holds other data.
    async fn look(&self, id: MoveId) -> Result<Arriving, Error>;

    /// Locks all other users out until it is opened, and removes the rows of an earlier, abandoned move.
    async fn begin(&self, id: MoveId, from: &str) -> Result<(), Error>;

    /// The last row of a table that it holds.
    async fn reached(&self, table: Table) -> Result<Option<RecordKey>, Error>;

    /// Writes rows, all or none.
    async fn put(&self, table: Table, records: &[Record]) -> Result<(), Error>;

    /// Completes the move: the store is open to all.
    async fn open(&self, last_telling: i64) -> Result<(), Error>;

    /// Empties it again, as if the move had never started.
    async fn forget(&self) -> Result<(), Error>;
}
