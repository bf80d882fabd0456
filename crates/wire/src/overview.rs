//! The whole system in one view, for `ostler top`.

use serde::Serialize;

use crate::account::AccountView;
use crate::limits::QueueView;
use crate::system::{FindingView, NodeView, StatsView, WorkerView};
use crate::task::Summary;
use crate::time::TimeView;

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
