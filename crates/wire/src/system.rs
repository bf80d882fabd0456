//! Statistics, nodes, workers, events and doctor findings.

use std::collections::BTreeMap;

use ostler_core::{SessionId, Timestamp, Worker};
use serde::Serialize;

use crate::json::Json;
use crate::limits::ThrottleView;
use crate::time::TimeView;

/// Statistics of a store or of one queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StatsView {
    /// Tasks by state. Finished tasks count from the creation of the store, until they are replayed.
    pub tasks: TaskCounts,
    /// All tasks ever enqueued.
    pub submitted: u64,
    /// Counters since the store was created. They only grow.
    pub totals: TotalsView,
    /// The most tasks that ever waited at once in a queue.
    pub queue_high_water: u64,
    /// Workers of all nodes.
    pub workers: WorkerCountsView,
    /// Durations of the last attempts, of all kinds together.
    pub all_kinds: KindStatsView,
    /// Durations of the last attempts of each kind.
    pub kinds: BTreeMap<String, KindStatsView>,
    /// Throttled queues and limit keys.
    pub held: Vec<ThrottleView>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskCounts {
    /// Waiting, for any reason.
    pub queued: u64,
    pub claimed: u64,
    pub running: u64,
    /// Ever completed.
    pub completed: u64,
    /// Ever failed, and not replayed.
    pub failed: u64,
    /// Ever cancelled, and not replayed.
    pub cancelled: u64,
}

/// Counters since the store was created. Replays, drops and pruning do not reduce them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TotalsView {
    /// Tasks enqueued.
    pub submitted: u64,
    /// Times a task completed.
    pub completed: u64,
    /// Times a task failed for good.
    pub failed: u64,
    /// Times a task was cancelled.
    pub cancelled: u64,
    /// Attempts started.
    pub attempts: u64,
    /// Failed attempts after which the task was queued again.
    pub retried: u64,
    /// Times a failed or cancelled task was replayed.
    pub replayed: u64,
}

/// Workers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerCountsView {
    pub total: u64,
    pub idle: u64,
    pub busy: u64,
}

/// Durations of the last attempts of a kind, or of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KindStatsView {
    /// The number of attempts measured.
    pub count: u64,
    /// The mean.
    pub avg_ms: f64,
    /// The median.
    pub p50_ms: u32,
    /// The 99th percentile.
    pub p99_ms: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
    /// Never reused.
    pub id: String,
    pub node: String,
    pub pool: String,
    /// The process id, if the worker is a process of its own.
    pub pid: Option<u32>,
    pub state: &'static str,
    pub memory_bytes: Option<u64>,
    pub uptime_s: u64,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The running task.
    pub task: Option<String>,
    pub task_started_at: Option<TimeView>,
    pub elapsed_s: Option<u64>,
    /// When its node last reported it.
    pub last_seen: TimeView,
}

impl WorkerView {
    /// Builds the view of a worker as its node reported it at `last_seen`.
    #[must_use]
    pub fn new(worker: &Worker, node: SessionId, last_seen: Timestamp, now: Timestamp) -> Self {
        Self {
            id: worker.id.to_string(),
            node: node.to_string(),
            pool: worker.pool.clone(),
            pid: worker.pid,
            state: worker.state.name(),
            memory_bytes: worker.memory_bytes,
            uptime_s: now.since(worker.started_at).as_secs(),
            done: worker.done,
            failed: worker.failed,
            task: worker.task.map(|(task, _)| task.to_string()),
            task_started_at: worker.task.map(|(_, since)| since.into()),
            elapsed_s: worker.task.map(|(_, since)| now.since(since).as_secs()),
            last_seen: last_seen.into(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// The id of this session of the node.
    pub id: String,
    pub name: String,
    pub pid: u32,
    pub version: String,
    /// `alive` or `overdue`.
    pub state: &'static str,
    /// When the session started.
    pub joined_at: TimeView,
    pub pools: Vec<PoolView>,
    /// The node's settings, if it has published them.
    pub settings: Option<Json>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolView {
    pub name: String,
    pub workers: WorkerCountsView,
}

/// The line that `up` prints once the node is ready.
#[derive(Clone, Debug, Serialize)]
pub struct ReadyEvent {
    /// Always `ready`.
    pub event: &'static str,
    pub node: String,
    /// The address the node listens on.
    pub listen: Option<String>,
}

/// A finding of `doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct FindingView {
    /// For programs; never changes.
    pub code: &'static str,
    /// `error`, `warning` or `info`.
    pub severity: &'static str,
    pub sentence: String,
    pub advice: String,
}
