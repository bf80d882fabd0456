//! The two sides of a move: what they show, and what they mark.

use async_trait::async_trait;
use ostler_core::Id;

use super::record::{Record, RecordKey};
use super::tables::Table;
use crate::error::Error;

/// Which move it is. Both sides keep it, so that a move that was stopped is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveId {
    /// The source's, from its first move on.
    pub id: Id,
    /// How often it set out: one more after each move that was given up.
    pub round: u32,
}

/// How far a source has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStage {
    /// The last move was given up: it works as ever.
    Staying,
    /// It takes nothing new; what runs may end.
    Leaving,
    /// Nothing changes any more.
    Frozen,
    /// It was carried over, and is not used any more.
    Gone,
}

impl MoveStage {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Staying, Self::Leaving, Self::Frozen, Self::Gone];
}

/// What a source keeps about its move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which move it is.
    pub id: MoveId,
    /// How far it has gone.
    pub stage: MoveStage,
    /// Where it goes, without a password.
    pub target: String,
}

/// What a target is to a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// It has nothing of ours in it.
    Empty,
    /// It holds a part of this move.
    Half,
    /// It holds a part of an earlier round, which was given up.
    Stale,
    /// This move has ended here: it is in use.
    Open,
}

/// What both sides can do.
#[async_trait]
pub trait MoveSide: Send + Sync {
    /// Rows of a table above `after`, in the order of their keys: at most so many, and fewer where they are large. None: it has no more.
    async fn read(&self, table: Table, after: Option<&RecordKey>, limit: usize)
    -> Result<Vec<Record>, Error>;
}

/// A store that is left.
#[async_trait]
pub trait MoveSource: MoveSide {
    /// What it keeps about its move; `None`: it never set out.
    async fn departure(&self) -> Result<Option<Departure>, Error>;

    /// Refuses new work from now on, and says where it goes. What is leased may end.
    async fn leave(&self, id: MoveId, target: &str) -> Result<(), Error>;

    /// How many tasks are leased.
    async fn leased(&self) -> Result<u64, Error>;

    /// Ends the sessions of all nodes, hands back what they hold, and lets nothing change any more. Answers how many were handed back.
    async fn freeze(&self) -> Result<u64, Error>;

    /// The highest number that a telling ever had: none comes twice.
    async fn last_telling(&self) -> Result<i64, Error>;

    /// Marks that it was carried over. From now on nobody opens it.
    async fn go(&self) -> Result<(), Error>;

    /// The move is given up: it works as before.
    async fn stay(&self) -> Result<(), Error>;
}

/// A store that is filled.
#[async_trait]
pub trait MoveTarget: MoveSide {
    /// What it is to this move. Nothing is written.
    ///
    /// # Errors
    /// When it holds something else.
    async fn look(&self, id: MoveId) -> Result<Arriving, Error>;

    /// Keeps everybody else out, from now until it is opened, and throws away what an earlier round has left.
    async fn begin(&self, id: MoveId, from: &str) -> Result<(), Error>;

    /// The last row of a table that it holds.
    async fn reached(&self, table: Table) -> Result<Option<RecordKey>, Error>;

    /// Takes rows in, all or none.
    async fn put(&self, table: Table, records: &[Record]) -> Result<(), Error>;

    /// All is here: lets everybody in.
    async fn open(&self, last_telling: i64) -> Result<(), Error>;

    /// Empties it again, as if nothing had come.
    async fn forget(&self) -> Result<(), Error>;
}
