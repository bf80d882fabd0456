//! The doctor: finds problems with a machine, a config and a store.
//!
//! `facts.rs` gathers facts, and changes nothing: it never creates a store. `rules` turn facts into findings, without I/O and
//! without a clock, so that each rule can be tested.

mod facts;
mod rules;
mod site;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ostler_process::supervisor::Contained;
use ostler_store::Clock;

use crate::config::{Config, ConfigError, StoreUrl};

pub(crate) struct Subject {
    /// The store; `None` if the config that would name it is invalid.
    pub(crate) store: Option<StoreUrl>,
    /// The result of reading the config, if there is one.
    pub(crate) config: Option<Result<Config, ConfigError>>,
    /// How children would be contained here, or why they cannot be; `None` if it was not checked.
    pub(crate) containment: Option<Result<Contained, String>>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Examination {
    /// The worst first. Empty if there is no problem.
    pub(crate) findings: Vec<Finding>,
}

/// A problem, or something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// For programs; never changes.
    pub(crate) code: &'static str,
    pub(crate) severity: Severity,
    pub(crate) sentence: String,
    pub(crate) advice: String,
}

/// The worst has the lowest order, so that it is listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Work has stopped, or may be lost.
    Error,
    /// Needs attention.
    Warning,
    Info,
}

impl Severity {
    /// The name that users see.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Examines everything and returns the findings. A store that cannot be opened is a finding too.
pub(crate) async fn examine(subject: Subject) -> Examination {
    let facts = facts::gather(subject).await;
    Examination { findings: rules::findings(&facts) }
}
