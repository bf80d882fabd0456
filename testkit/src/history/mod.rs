//! What a store acknowledged, against what it holds afterwards.
//!
//! A workload writes down each call before it is made and each answer once it is there ([`Log`], [`Scribe`]). It may be killed
//! at any moment. Afterwards [`Stored`] is read from the store, and [`check`] compares: what was acknowledged is
//! there, what nobody asked for is not, no task completes twice, tokens only rise, and the counts add up. A call
//! without an answer may have been carried out or not; both are right.

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
