//! The running system: counts, nodes, workers, events.

use std::collections::BTreeMap;

use ostler_core::{SessionId, Timestamp, Worker};
use serde::Serialize;

use crate::json::Json;
use crate::limits::ThrottleView;
use crate::time::TimeView;

/// How everything stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StatsView {
    /// Tasks by state; what has ended is counted over the whole life of the store, until it is replayed.
    pub tasks: TaskCounts,
    /// All tasks that were ever enqueued.
    pub submitted: u64,
    /// What has happened since the store was made. These numbers only rise.
    pub totals: TotalsView,
    /// The most that ever waited at once in the queue; of several queues, in any one of them.
    pub queue_high_water: u64,
    /// Workers of all nodes.
    pub workers: WorkerCountsView,
    /// How long the last runs took, of all kinds together.
    pub all_kinds: KindStatsView,
    /// How long the last runs of each kind took.
    pub kinds: BTreeMap<String, KindStatsView>,
    /// What holds tasks back.
    pub held: Vec<ThrottleView>,
}

/// Tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskCounts {
    /// Waiting, for whatever reason.
    pub queued: u64,
    /// Claimed.
    pub claimed: u64,
    /// Running.
    pub running: u64,
    /// Completed, ever.
    pub completed: u64,
    /// Failed, ever, and not replayed.
    pub failed: u64,
    /// Cancelled, ever, and not replayed.
    pub cancelled: u64,
}

/// What has happened since the store was made: neither a replay, nor a drop, nor pruning takes anything away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TotalsView {
    /// Tasks that were enqueued.
    pub submitted: u64,
    /// Times that a task was completed.
    pub completed: u64,
    /// Times that a task ended in `failed`.
    pub failed: u64,
    /// Times that a task was cancelled.
    pub cancelled: u64,
    /// Attempts that have begun.
    pub attempts: u64,
    /// Failed attempts after which the task was queued again.
    pub retried: u64,
    /// Times that a failed or cancelled task was replayed.
    pub replayed: u64,
}

/// Workers by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerCountsView {
    /// All.
    pub total: u64,
    /// Those that wait for a task.
    pub idle: u64,
    /// Those that run one.
    pub busy: u64,
}

/// The last runs of a kind, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KindStatsView {
    /// How many runs this is about.
    pub count: u64,
    /// What they took on average.
    pub avg_ms: f64,
    /// Half of them took no longer.
    pub p50_ms: u32,
    /// All but one in a hundred took no longer.
    pub p99_ms: u32,
}

/// A worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
    /// Its name, never used again.
    pub id: String,
    /// Its node.
    pub node: String,
    /// Its pool.
    pub pool: String,
    /// Its process, where it has one of its own.
    pub pid: Option<u32>,
    /// What it is doing.
    pub state: &'static str,
    /// How much memory it has.
    pub memory_bytes: Option<u64>,
    /// How long it is up.
    pub uptime_s: u64,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// What it runs.
    pub task: Option<String>,
    /// Since when.
    pub task_started_at: Option<TimeView>,
    /// For how long.
    pub elapsed_s: Option<u64>,
    /// When its node last reported it.
    pub last_seen: TimeView,
}

impl WorkerView {
    /// The worker, as its node reported it at `last_seen`, looked at now.
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

/// A node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its name for this run of it.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// `alive` or `overdue`.
    pub state: &'static str,
    /// When it came up.
    pub joined_at: TimeView,
    /// Its pools.
    pub pools: Vec<PoolView>,
    /// Its settings, as far as it told them.
    pub settings: Option<Json>,
}

/// A pool of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its workers.
    pub workers: WorkerCountsView,
}

/// An event of a task.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    /// Counted from one, for each task.
    pub number: u64,
    /// When it was written.
    pub at: TimeView,
    /// The lease it was written under.
    pub token: u64,
    /// What sort of fact: `log`, `message`, `tool_call`, `progress`, `warning`, `file`, or
    /// `stdout` for what a command that did not succeed wrote there.
    pub kind: &'static str,
    /// How much a log line matters: `debug`, `info`, `warn` or `error`; null for everything else.
    pub level: Option<&'static str>,
    /// The fact.
    pub data: String,
}

/// A node takes work from now on: what `up` says, in a line of its own.
#[derive(Clone, Debug, Serialize)]
pub struct ReadyEvent {
    /// Always `ready`.
    pub event: &'static str,
    /// The node.
    pub node: String,
    /// Where it can be reached.
    pub listen: Option<String>,
}

/// Something that is wrong, or worth knowing, as `doctor` tells it.
#[derive(Clone, Debug, Serialize)]
pub struct FindingView {
    /// For programs: the same for ever.
    pub code: &'static str,
    /// `error`, `warning` or `info`.
    pub severity: &'static str,
    /// What is the matter.
    pub sentence: String,
    /// What helps.
    pub advice: String,
}
