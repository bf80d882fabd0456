//! Moving a whole store to another place: the implementation of `ostler db move`.
//!
//! - [`Table`]: the tables to copy, in order. [`Record`]: one row, in a form that is neutral between the two stores.
//! - [`MoveSource`], [`MoveTarget`]: the two sides. They never see each other.
//! - [`run`]: the move itself: refuse new work, drain, copy, compare, mark. [`abandon`]: give it up.
//!
//! A move that is interrupted at any point, even by a kill, is run again and resumes where it was
//! (`docs/decisions/0016-moving-up.md`).

mod record;
mod run;
mod sides;
mod tables;

pub use record::{Checksum, MAX_BATCH_BYTES, Record, RecordKey, Value};
pub use run::{MovePlan, MoveProgress, MoveStep, MoveSummary, ROWS, TableMoved, abandon, run};
pub use sides::{Arriving, Departure, MoveId, MoveSide, MoveSource, MoveStage, MoveTarget};
pub use tables::{Column, Kind, Table};
