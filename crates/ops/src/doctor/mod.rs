//! The doctor: finds problems with a store, a config and a machine.
//!
//! [`facts`] is what it looks at: what it reads from an open store, and what the caller knows of the machine and the config.
//! [`findings`] applies the rules: pure functions of the facts, without I/O and without a clock.

pub mod facts;
mod rules;

pub use rules::findings;
pub(crate) use rules::{names, word};
