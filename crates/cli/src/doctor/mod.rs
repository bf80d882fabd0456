//! The doctor: what is wrong with a store and those who work on it, in sentences.
//!
//! `facts.rs` looks, and changes nothing: it makes no store where there is none. `rules` turn what it saw into
//! findings, without I/O and without a clock, so that each fault can be shown to be recognised.

mod facts;
mod rules;
mod site;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ostler_process::supervisor::Contained;
use ostler_store::Clock;

use crate::config::{Config, ConfigError, StoreUrl};

/// What is to be examined.
pub(crate) struct Subject {
    /// The store; `None`: the config that would name it cannot be used.
    pub(crate) store: Option<StoreUrl>,
    /// What became of the config, if one was named.
    pub(crate) config: Option<Result<Config, ConfigError>>,
    /// How children would be contained here, or why they cannot be; `None`: nobody asked.
    pub(crate) containment: Option<Result<Contained, String>>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
}

/// What the doctor found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Examination {
    /// The worst first. Empty: all is well.
    pub(crate) findings: Vec<Finding>,
}

/// One thing that is wrong, or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// For programs: the same for ever.
    pub(crate) code: &'static str,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// What is the matter.
    pub(crate) sentence: String,
    /// What helps.
    pub(crate) advice: String,
}

/// How bad it is. The worst is the least, so that it comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Work does not go on, or may be lost.
    Error,
    /// Somebody should look.
    Warning,
    /// Worth knowing.
    Info,
}

impl Severity {
    /// The word that users see.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Looks, and tells what is wrong. A store that cannot be opened is a finding too.
pub(crate) async fn examine(subject: Subject) -> Examination {
    let facts = facts::gather(subject).await;
    Examination { findings: rules::findings(&facts) }
}
