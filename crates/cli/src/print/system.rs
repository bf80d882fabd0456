//! Nodes, workers and statistics, for people.

use std::fmt::Write as _;

use ostler_core::Timestamp;
use ostler_wire::limits::PAUSED;
use ostler_wire::system::{GoneWorkerView, NodeView, StatsView, WorkerView};
use ostler_wire::time::TimeView;

use super::Looks;
use super::limits::held_back;
use super::table::{Cell, Paint, Table, short_id};
use super::visible;
use super::when;

pub(crate) fn nodes(views: &[NodeView], now: Timestamp, looks: Looks) -> String {
    if views.is_empty() {
        return "no node is running\n".to_owned();
    }
    let mut table = Table::new(&["NODE", "NAME", "HOST", "PID", "STATE", "UP", "VERSION", "POOLS"]);
    for view in views {
        let paint = if view.state == "alive" { Paint::Good } else { Paint::Bad };
        table.row(vec![
            Cell::id(&view.id, looks),
            view.name.as_str().into(),
            view.host.as_deref().unwrap_or("-").into(),
            view.pid.to_string().into(),
            Cell::painted(view.state, paint),
            when::long(now.since(view.joined_at.timestamp())).into(),
            view.version.as_str().into(),
            pools(view).into(),
        ]);
    }
    table.render(looks)
}

/// The pools of a node, each with its busy workers of all that are up.
pub(super) fn pools(node: &NodeView) -> String {
    let each = node
        .pools
        .iter()
        .map(|pool| format!("{} {}/{}", visible(&pool.name), pool.workers.busy, pool.workers.total));
    each.collect::<Vec<_>>().join(", ")
}

pub(crate) fn workers(views: &[WorkerView], nodes: &[NodeView], now: Timestamp, looks: Looks) -> String {
    if views.is_empty() {
        return "no node has reported a worker\n".to_owned();
    }
    let mut table = Table::new(&[
        "WORKER", "NAME", "NODE", "POOL", "PID", "STATE", "MEMORY", "UP", "DONE", "FAILED", "TASK", "FOR",
    ]);
    let name = |id: &str| {
        let node = nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| id.to_owned(), |node| node.name.clone())
    };
    // Whole seconds are for programs: a worker that has just started has a positive uptime.
    let since = |moment: TimeView| when::long(now.since(moment.timestamp()));
    for view in views {
        table.row(vec![
            Cell::id(&view.id, looks),
            view.name.as_str().into(),
            name(&view.node).into(),
            view.pool.as_str().into(),
            view.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()).into(),
            Cell::painted(view.state, if view.task.is_some() { Paint::Lively } else { Paint::Plain }),
            view.memory_bytes
                .map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes.div_ceil(1 << 20)))
                .into(),
            since(view.started_at).into(),
            view.done.to_string().into(),
            view.failed.to_string().into(),
            match (&view.task, view.tasks) {
                (Some(task), 0 | 1) => short_id(task, looks).to_owned(),
                (Some(_), many) => format!("{many} tasks"),
                (None, _) => "-".to_owned(),
            }
            .into(),
            view.task_started_at.map(since).unwrap_or_default().into(),
        ]);
    }
    table.render(looks)
}

/// Workers that are gone, the newest first.
pub(crate) fn gone_workers(views: &[GoneWorkerView], looks: Looks) -> String {
    if views.is_empty() {
        return "no worker is gone\n".to_owned();
    }
    let mut table =
        Table::new(&["WORKER", "NAME", "NODE", "POOL", "PID", "STARTED", "GONE", "END", "DONE", "FAILED"]);
    for view in views {
        table.row(vec![
            Cell::id(&view.id, looks),
            view.name.as_str().into(),
            view.node_name.as_str().into(),
            view.pool.as_str().into(),
            view.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()).into(),
            when::moment(view.started_at, looks).into(),
            when::moment(view.gone_at, looks).into(),
            Cell::painted(view.end, if view.end == "closed" { Paint::Plain } else { Paint::Bad }),
            view.done.to_string().into(),
            view.failed.to_string().into(),
        ]);
    }
    table.render(looks)
}

/// `paused`: paused queues, with their reasons.
pub(crate) fn stats(stats: &StatsView, paused: &[(String, String)], now: Timestamp, looks: Looks) -> String {
    let tasks = &stats.tasks;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "tasks      {} queued, {} claimed, {} running, {} completed, {} failed, {} cancelled",
        tasks.queued, tasks.claimed, tasks.running, tasks.completed, tasks.failed, tasks.cancelled
    );
    let totals = &stats.totals;
    let _ = writeln!(
        text,
        "totals     {} submitted, {} completed, {} failed, {} cancelled; {} attempts, {} retried, {} replayed",
        totals.submitted,
        totals.completed,
        totals.failed,
        totals.cancelled,
        totals.attempts,
        totals.retried,
        totals.replayed
    );
    let _ = writeln!(text, "waiting    most ever in one queue: {}", stats.queue_high_water);
    let workers = &stats.workers;
    let _ = writeln!(text, "workers    {}: {} idle, {} busy", workers.total, workers.idle, workers.busy);
    for (queue, reason) in paused {
        let _ = writeln!(text, "paused     {}: {}", visible(queue), visible(reason));
    }
    // Pauses are printed above, with their reasons.
    for held in stats.held.iter().filter(|held| held.waits_for != PAUSED) {
        let key = held.key.as_ref().map(|key| format!(", key {}", visible(key))).unwrap_or_default();
        let _ = writeln!(text, "throttled  {}{key}: {}", visible(&held.queue), held_back(held, now, looks));
    }
    if !stats.kinds.is_empty() {
        let mut table = Table::new(&["KIND", "RUNS", "AVG MS", "P50 MS", "P99 MS"]);
        // With a single kind there is nothing to add up.
        let all = (stats.kinds.len() > 1).then_some(("(all)", &stats.all_kinds));
        let each = stats.kinds.iter().map(|(kind, runs)| (kind.as_str(), runs));
        for (kind, runs) in each.chain(all) {
            table.row(vec![
                kind.into(),
                runs.count.to_string().into(),
                format!("{:.1}", runs.avg_ms).into(),
                runs.p50_ms.to_string().into(),
                runs.p99_ms.to_string().into(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render(looks));
    }
    text
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, SessionId, TaskId, Worker, WorkerId, WorkerState};
    use ostler_store::views::{Survey, WorkerRecord};

    use super::*;

    #[test]
    fn a_moment_is_not_no_time_at_all() {
        let at = Timestamp::from_millis;
        let worker = Worker {
            id: WorkerId(Id::from_bits(1)),
            name: "shell-1".to_owned(),
            pool: "shell".to_owned(),
            pid: None,
            state: WorkerState::Busy,
            memory_bytes: None,
            started_at: at(100),
            done: 3,
            failed: 0,
            task: Some((TaskId(Id::from_bits(2)), at(300))),
        };
        let (session, now) = (SessionId(Id::from_bits(3)), at(1_000));
        let workers_seen = vec![WorkerRecord { session, worker, tasks: 1, last_seen: at(300) }];
        let survey = Survey { workers: workers_seen, ..Survey::default() };
        let views = WorkerView::all(&survey, now);
        let shown = workers(&views, &NodeView::all(&survey), now, Looks::Plain);
        let row = shown.lines().nth(1).unwrap_or_default();
        assert!(row.contains(" 900ms ") && row.trim_end().ends_with(" 700ms"), "{shown}");
    }
}
