//! Random operation sequences on the store and on the reference, which must give the same answers.
//!
//! `draw` makes a sequence from a seed, `pair` runs it on both stores and compares them, `shrink` shortens a
//! sequence that shows a difference.

mod draw;
mod op;
mod pair;
mod run;
mod say;
mod shrink;

pub use run::{SequenceReport, run};
