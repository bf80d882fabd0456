//! Moving a store to another place, whole: what `ostler db move` does.
//!
//! - [`Table`]: what is carried, table by table, in which order. [`Record`]: one row of it, as neither store keeps it and both can read it.
//! - [`MoveSource`], [`MoveTarget`]: the two sides. They never see each other.
//! - [`run`]: the move itself: refuse new work, drain, copy, compare, mark. [`abandon`]: give it up.
//!
//! A move that is stopped at any point, also by a kill, is run again and goes on where it was
//! (`docs/decisions/0016-moving-up.md`).

mod record;
mod run;
mod sides;
mod tables;

pub use record::{Checksum, MAX_BITE_BYTES, Record, RecordKey, Value};
pub use run::{MovePlan, MoveProgress, MoveStep, MoveSummary, ROWS, TableMoved, abandon, run};
pub use sides::{Arriving, Departure, MoveId, MoveSide, MoveSource, MoveStage, MoveTarget};
pub use tables::{Column, Kind, Table};
