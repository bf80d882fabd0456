//! `ostler doctor` on this machine: gathers the facts, for the rules of `ostler-ops`.
//!
//! `facts.rs`, `site.rs` and `presence.rs` gather facts, and change nothing: they never create a store.

mod facts;
mod presence;
mod site;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ostler_exec::{BadThreadPolicy, ThreadEnvironment};
use ostler_ops::doctor::findings;
use ostler_process::supervisor::Contained;
use ostler_store::Clock;
use ostler_wire::system::FindingView;

use crate::config::{Config, ConfigError, StoreUrl};
pub(crate) use facts::{examined, is_program};

pub(crate) struct Subject {
    /// The store; `None` if the config that would name it is invalid.
    pub(crate) store: Option<StoreUrl>,
    /// The result of reading the config, if there is one.
    pub(crate) config: Option<Result<Config, ConfigError>>,
    /// How children would be contained here, or why they cannot be; `None` if it was not checked.
    pub(crate) containment: Option<Result<Contained, String>>,
    /// The threads that the environment asks for, or why it cannot be followed; `None` if it was not read.
    pub(crate) threads: Option<Result<ThreadEnvironment, BadThreadPolicy>>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Examines everything and returns the findings, the worst first. A store that cannot be opened is a finding too.
pub(crate) async fn examine(subject: Subject) -> Vec<FindingView> {
    findings(&facts::gather(subject).await)
}
