//! History checker: compares what a store acknowledged with what it contains afterwards.
//!
//! A workload logs each call before it is made and each answer once it arrives ([`Log`], [`Scribe`]). It may be killed
//! at any time. Afterwards [`Stored`] is read from the store, and [`check`] compares: acknowledged changes are
//! stored, nothing is stored that was not requested, no task completes twice, tokens only rise, and the counts add up. A call
//! without an answer may or may not have been carried out; both are correct.

mod check;
mod log;
mod report;
mod scribe;
mod stored;
mod told;

pub use check::check;
pub use log::{Answer, Asked, Call, Line, Log, read, read_text};
pub use report::{Report, Violation};
pub use scribe::Scribe;
pub use stored::{Stored, StoredTask};
