//! The whole system in one view, for `ostler top`, and the short one of `ostler status`.

use serde::Serialize;

use crate::account::AccountView;
use crate::limits::QueueView;
use crate::system::{FindingView, NodeView, Severity, StatsView, WorkerView};
use crate::task::Summary;
use crate::time::TimeView;
use crate::word::Word;

/// The system at one moment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverviewView {
    /// When the store was read.
    pub as_of: TimeView,
    pub stats: StatsView,
    pub nodes: Vec<NodeView>,
    /// Without those of jobs.
    pub queues: Vec<QueueView>,
    pub workers: Vec<WorkerView>,
    /// Running tasks, the newest first; a bounded number of them.
    pub running: Vec<Summary>,
    pub accounts: Vec<AccountView>,
    /// What the doctor finds, the worst first.
    pub findings: Vec<FindingView>,
}

/// What `ostler status` prints: what is in use, and how it does.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusView {
    /// Of the program that was asked.
    pub version: Word,
    /// The path or the address of the store, without a password; of a node, its URL.
    pub store: String,
    /// What named the store: `option`, `environment`, `config` or `default`; `server`: a node was asked.
    pub store_from: Word,
    /// The path of the config in use; `null`: there is none.
    pub config: Option<String>,
    pub nodes: Vec<NodeView>,
    /// Without those of jobs.
    pub queues: Vec<QueueView>,
    /// Running tasks, the newest first; a bounded number of them.
    pub running: Vec<Summary>,
    /// What the doctor finds, the worst first, without what is only worth knowing.
    pub problems: Vec<FindingView>,
}

impl StatusView {
    /// What is in use, and what was found; nothing was read of the store yet.
    #[must_use]
    pub fn new(
        version: Word,
        (store, store_from): (String, Word),
        config: Option<String>,
        mut findings: Vec<FindingView>,
    ) -> Self {
        findings.retain(|finding| match finding.severity {
            Severity::Error | Severity::Warning => true,
            Severity::Info => false,
        });
        let (nodes, queues, running) = (Vec::new(), Vec::new(), Vec::new());
        Self { version, store, store_from, config, nodes, queues, running, problems: findings }
    }
}
