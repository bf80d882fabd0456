//! Random operations on the store and on the reference, which must answer alike.
//!
//! `draw` makes a sequence from a seed, `pair` says it to both stores and compares, `shrink` makes a
//! sequence that shows a difference as short as it can.

mod draw;
mod op;
mod pair;
mod run;
mod say;
mod shrink;

pub use run::{SequenceReport, run};
