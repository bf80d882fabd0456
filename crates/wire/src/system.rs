//! Statistics, nodes, workers and doctor findings.

use std::collections::BTreeMap;

use ostler_core::{SessionId, Timestamp, WorkerState};
use ostler_store::views::{Counts, GoneWorker, Liveness, NodeRecord, Survey, WorkerRecord};
use ostler_store::{KindStats, Stats, Totals, WorkerCounts};
use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::limits::ThrottleView;
use crate::time::TimeView;
use crate::word::{self, Word};

/// Statistics of a store or of one queue.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl StatsView {
    /// Builds the statistics of the store, or of one queue.
    #[must_use]
    pub fn new(survey: &Survey, queue: Option<&str>) -> Self {
        let stats = Stats::of(survey, queue);
        Self {
            tasks: stats.tasks.into(),
            submitted: stats.submitted(),
            totals: stats.totals.into(),
            queue_high_water: stats.queue_high_water,
            workers: stats.workers.into(),
            all_kinds: stats.all_kinds.into(),
            kinds: stats.kinds.into_iter().map(|(kind, runs)| (kind, runs.into())).collect(),
            held: ThrottleView::all(survey, queue),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl From<Counts> for TaskCounts {
    fn from(counts: Counts) -> Self {
        let Counts { queued, claimed, running, completed, failed, cancelled } = counts;
        Self { queued, claimed, running, completed, failed, cancelled }
    }
}

/// Counters since the store was created. Replays, drops and pruning do not reduce them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl From<Totals> for TotalsView {
    fn from(totals: Totals) -> Self {
        let Totals { submitted, completed, failed, cancelled, attempts, retried, replayed } = totals;
        Self { submitted, completed, failed, cancelled, attempts, retried, replayed }
    }
}

/// Workers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerCountsView {
    pub total: u64,
    pub idle: u64,
    pub busy: u64,
}

impl From<WorkerCounts> for WorkerCountsView {
    fn from(workers: WorkerCounts) -> Self {
        let WorkerCounts { total, idle, busy } = workers;
        Self { total, idle, busy }
    }
}

/// Durations of the last attempts of a kind, or of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl From<KindStats> for KindStatsView {
    fn from(runs: KindStats) -> Self {
        // A tenth of a millisecond is precise enough for an average.
        let avg_ms = (runs.avg_ms * 10.0).round() / 10.0;
        Self { count: runs.count, avg_ms, p50_ms: runs.p50_ms, p99_ms: runs.p99_ms }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerView {
    /// Never reused.
    pub id: String,
    /// Unique in its node.
    pub name: String,
    pub node: String,
    pub pool: String,
    /// The process id, if the worker is a process of its own.
    pub pid: Option<u32>,
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    pub memory_bytes: Option<u64>,
    pub uptime_s: u64,
    /// When it was started.
    pub started_at: TimeView,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// How many tasks it runs.
    pub tasks: u64,
    /// The running task; of several, the oldest.
    pub task: Option<String>,
    pub task_started_at: Option<TimeView>,
    pub elapsed_s: Option<u64>,
    /// When its node last reported it.
    pub last_seen: TimeView,
}

impl WorkerView {
    /// Builds the views of the workers of all nodes.
    #[must_use]
    pub fn all(survey: &Survey, now: Timestamp) -> Vec<Self> {
        survey.workers.iter().map(|record| Self::new(record, now)).collect()
    }

    #[must_use]
    pub fn new(record: &WorkerRecord, now: Timestamp) -> Self {
        let worker = &record.worker;
        Self {
            id: worker.id.to_string(),
            name: worker.name.clone(),
            node: record.session.to_string(),
            pool: worker.pool.clone(),
            pid: worker.pid,
            state: worker.state.name(),
            memory_bytes: worker.memory_bytes,
            uptime_s: now.since(worker.started_at).as_secs(),
            started_at: worker.started_at.into(),
            done: worker.done,
            failed: worker.failed,
            // The start of a short attempt may not be written.
            tasks: worker.task.map_or(0, |_| record.tasks.max(1)),
            task: worker.task.map(|(task, _)| task.to_string()),
            task_started_at: worker.task.map(|(_, since)| since.into()),
            elapsed_s: worker.task.map(|(_, since)| now.since(since).as_secs()),
            last_seen: record.last_seen.into(),
        }
    }
}

/// The last record of a worker that is gone.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GoneWorkerView {
    /// Never reused.
    pub id: String,
    /// The name that it had in its node.
    pub name: String,
    pub node: String,
    /// The name of its node.
    pub node_name: String,
    pub pool: String,
    /// The process id that it had, if it was a process of its own.
    pub pid: Option<u32>,
    /// Its last state.
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    pub started_at: TimeView,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// `closed`, or `node_died`: its numbers are those of the last report.
    #[serde(deserialize_with = "word::read")]
    pub end: Word,
    pub gone_at: TimeView,
}

impl From<&GoneWorker> for GoneWorkerView {
    fn from(gone: &GoneWorker) -> Self {
        let worker = &gone.worker;
        Self {
            id: worker.id.to_string(),
            name: worker.name.clone(),
            node: gone.session.to_string(),
            node_name: gone.node.clone(),
            pool: worker.pool.clone(),
            pid: worker.pid,
            state: worker.state.name(),
            started_at: worker.started_at.into(),
            done: worker.done,
            failed: worker.failed,
            end: gone.end.name(),
            gone_at: gone.gone_at.into(),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeView {
    /// The id of this session of the node.
    pub id: String,
    pub name: String,
    /// The host name of its machine; `null` if its version does not report it.
    pub host: Option<String>,
    pub pid: u32,
    pub version: String,
    /// `alive` or `overdue`.
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    /// When the session started.
    pub joined_at: TimeView,
    pub pools: Vec<PoolView>,
    /// The node's settings, if it has published them.
    pub settings: Option<Json>,
}

impl NodeView {
    /// Builds the views of all nodes.
    #[must_use]
    pub fn all(survey: &Survey) -> Vec<Self> {
        survey.nodes.iter().map(|node| Self::new(node, survey)).collect()
    }

    fn new(node: &NodeRecord, survey: &Survey) -> Self {
        let mut pools: BTreeMap<&str, WorkerCountsView> = BTreeMap::new();
        for record in survey.workers.iter().filter(|record| record.session == node.session) {
            let counts = pools.entry(&record.worker.pool).or_default();
            counts.total += 1;
            match record.worker.state {
                WorkerState::Idle => counts.idle += 1,
                WorkerState::Busy | WorkerState::Draining => counts.busy += 1,
                WorkerState::Starting | WorkerState::Killed | WorkerState::Unresponsive => {}
            }
        }
        let pool = |(name, workers): (&str, WorkerCountsView)| PoolView { name: name.to_owned(), workers };
        Self {
            id: node.session.to_string(),
            name: node.name.clone(),
            host: node.host.clone(),
            pid: node.pid,
            version: node.version.clone(),
            state: match node.liveness {
                Liveness::Alive => "alive",
                Liveness::Overdue => "overdue",
            },
            joined_at: node.joined_at.into(),
            pools: pools.into_iter().map(pool).collect(),
            settings: (!node.settings.is_empty()).then(|| Json::from_text(&node.settings)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolView {
    pub name: String,
    pub workers: WorkerCountsView,
}

/// The line that `up` prints once the node is ready.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadyEvent {
    /// Always `ready`.
    #[serde(deserialize_with = "word::read")]
    pub event: Word,
    pub node: String,
    /// The address that the HTTP API listens on; `null`: there is none.
    pub listen: Option<String>,
}

impl ReadyEvent {
    #[must_use]
    pub fn new(node: SessionId, listen: Option<String>) -> Self {
        Self { event: "ready", node: node.to_string(), listen }
    }
}

/// A finding of `doctor`: a problem, or something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingView {
    /// For programs; never changes.
    #[serde(deserialize_with = "word::read")]
    pub code: Word,
    pub severity: Severity,
    pub sentence: String,
    pub advice: String,
}

/// How bad a finding is. The worst has the lowest order, so that it is listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Work has stopped, or may be lost.
    Error,
    /// Needs attention.
    Warning,
    Info,
}

impl Severity {
    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl FindingView {
    #[must_use]
    pub fn error(code: &'static str, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, sentence: sentence.into(), advice: advice.into() }
    }

    #[must_use]
    pub fn warning(code: &'static str, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { code, severity: Severity::Warning, sentence: sentence.into(), advice: advice.into() }
    }

    #[must_use]
    pub fn info(code: &'static str, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { code, severity: Severity::Info, sentence: sentence.into(), advice: advice.into() }
    }
}
