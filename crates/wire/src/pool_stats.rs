//! Statistics in the shapes of other worker pools, so that their monitors can read Ostler: `PoolStats` of a pool in Go, `get_pool_stats`
//! of one in Python, and the `worker_heartbeat` of a pool of processes.

use std::collections::BTreeMap;

use ostler_core::{Timestamp, WorkerState};
use ostler_store::Stats;
use ostler_store::views::{NodeRecord, Survey, WorkerRecord};
use serde::Serialize;

use crate::time::TimeView;

/// `PoolStats`: its fields have the names that a Go struct without tags has in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PoolStats {
    pub workers_count: u64,
    /// Workers that run a task.
    pub active_workers: u64,
    pub queued_tasks: u64,
    pub completed_tasks: u64,
    pub failed_tasks: u64,
    /// The mean duration of the last attempts, in milliseconds.
    pub average_exec_time: f64,
}

impl PoolStats {
    #[must_use]
    pub fn new(survey: &Survey, pool: &str) -> Self {
        let (stats, counts) = (Stats::of(survey, Some(pool)), WorkerSums::of(survey, pool));
        Self {
            workers_count: counts.total,
            active_workers: counts.busy,
            queued_tasks: stats.tasks.queued,
            completed_tasks: stats.tasks.completed,
            failed_tasks: stats.tasks.failed,
            average_exec_time: (stats.all_kinds.avg_ms * 10.0).round() / 10.0,
        }
    }
}

/// `get_pool_stats`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerPoolStats {
    pub total_workers: u64,
    pub idle_workers: u64,
    pub processing_workers: u64,
    /// Tasks, since the store was created.
    pub total_completed: u64,
    pub total_failed: u64,
    /// By id.
    pub workers: BTreeMap<String, WorkerStatsView>,
}

/// One worker of `get_pool_stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerStatsView {
    /// `idle`, `processing`, or another state of a worker.
    pub status: &'static str,
    /// The task that it runs.
    pub current_run: Option<String>,
    pub completed: u64,
    pub failed: u64,
}

impl WorkerPoolStats {
    #[must_use]
    pub fn new(survey: &Survey, pool: &str) -> Self {
        let (stats, counts) = (Stats::of(survey, Some(pool)), WorkerSums::of(survey, pool));
        let view = |record: &WorkerRecord| {
            let worker = &record.worker;
            let view = WorkerStatsView {
                status: match worker.state {
                    WorkerState::Busy => "processing",
                    state @ (WorkerState::Starting
                    | WorkerState::Idle
                    | WorkerState::Draining
                    | WorkerState::Killed
                    | WorkerState::Unresponsive) => state.name(),
                },
                current_run: worker.task.map(|(task, _)| task.to_string()),
                completed: worker.done,
                failed: worker.failed,
            };
            (worker.id.to_string(), view)
        };
        Self {
            total_workers: counts.total,
            idle_workers: counts.idle,
            processing_workers: counts.busy,
            total_completed: stats.tasks.completed,
            total_failed: stats.tasks.failed,
            workers: workers_of(survey, pool).map(view).collect(),
        }
    }
}

/// `worker_heartbeat`: the processes of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeHeartbeat {
    /// Always `worker_heartbeat`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The node's session.
    pub worker_id: String,
    pub timestamp: TimeView,
    pub processes: Vec<ProcessView>,
    pub pool_size: u64,
    pub idle_count: u64,
    pub busy_count: u64,
}

/// One worker of a heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessView {
    pub pid: Option<u32>,
    pub process_id: String,
    /// `idle`, `busy`, or another state of a worker.
    pub state: &'static str,
    pub memory_mb: Option<f64>,
    pub uptime_seconds: f64,
    pub executions_completed: u64,
    /// What it runs; `null` if it runs nothing.
    pub execution: Option<ExecutionView>,
}

/// The task of a worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionView {
    pub execution_id: String,
    pub started_at: TimeView,
    pub elapsed_seconds: f64,
}

impl NodeHeartbeat {
    #[must_use]
    pub fn new(survey: &Survey, node: &NodeRecord, now: Timestamp) -> Self {
        let records: Vec<&WorkerRecord> =
            survey.workers.iter().filter(|record| record.session == node.session).collect();
        let counts = WorkerSums::sum(records.iter().copied());
        Self {
            kind: "worker_heartbeat",
            worker_id: node.session.to_string(),
            timestamp: now.into(),
            processes: records.iter().map(|record| ProcessView::new(record, now)).collect(),
            pool_size: counts.total,
            idle_count: counts.idle,
            busy_count: counts.busy,
        }
    }
}

impl ProcessView {
    fn new(record: &WorkerRecord, now: Timestamp) -> Self {
        let worker = &record.worker;
        Self {
            pid: worker.pid,
            process_id: worker.id.to_string(),
            state: worker.state.name(),
            memory_mb: worker.memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)),
            uptime_seconds: now.since(worker.started_at).as_secs_f64(),
            executions_completed: worker.done,
            execution: worker.task.map(|(task, since)| ExecutionView {
                execution_id: task.to_string(),
                started_at: since.into(),
                elapsed_seconds: now.since(since).as_secs_f64(),
            }),
        }
    }
}

/// Workers by state.
#[derive(Clone, Copy, Default)]
struct WorkerSums {
    total: u64,
    idle: u64,
    busy: u64,
}

impl WorkerSums {
    fn of(survey: &Survey, pool: &str) -> Self {
        Self::sum(workers_of(survey, pool))
    }

    fn sum<'a>(records: impl Iterator<Item = &'a WorkerRecord>) -> Self {
        let mut counts = Self::default();
        for record in records {
            counts.total += 1;
            match record.worker.state {
                WorkerState::Idle => counts.idle += 1,
                WorkerState::Busy | WorkerState::Draining => counts.busy += 1,
                WorkerState::Starting | WorkerState::Killed | WorkerState::Unresponsive => {}
            }
        }
        counts
    }
}

fn workers_of<'a>(survey: &'a Survey, pool: &'a str) -> impl Iterator<Item = &'a WorkerRecord> {
    survey.workers.iter().filter(move |record| record.worker.pool == pool)
}
