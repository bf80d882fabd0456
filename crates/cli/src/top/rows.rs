//! The tables of `top` as text: for a frame, and for `--once`. Every text of a task or a user is escaped here.

use std::time::Duration;

use ostler_core::{Timestamp, visible};
use ostler_wire::overview::OverviewView;
use ostler_wire::system::FindingView;
use ostler_wire::time::TimeView;

use super::model::Section;
use crate::print::{ago, how_long};

/// A table: its heading and its rows.
pub(crate) struct Rows {
    pub(crate) heading: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
}

/// The rows of a section.
pub(crate) fn rows(section: Section, seen: &OverviewView, findings: &[FindingView]) -> Rows {
    match section {
        Section::Queues => queues(seen),
        Section::Tasks => tasks(seen),
        Section::Workers => workers(seen),
        Section::Accounts => accounts(seen),
        Section::Problems => problems(findings),
    }
}

fn queues(seen: &OverviewView) -> Rows {
    let rows = seen.queues.iter().map(|queue| {
        let tasks = &queue.tasks;
        let state = match (&queue.paused, &queue.held) {
            (Some(reason), _) => format!("paused: {reason}"),
            (None, Some(held)) => {
                let left =
                    |until: TimeView| seconds(until.timestamp().since(seen.as_of.timestamp()).as_secs());
                let until = held.until.map(|until| format!(", {} left", left(until))).unwrap_or_default();
                format!("held: {}{until}", held.waits_for.replace('_', " "))
            }
            (None, None) => String::new(),
        };
        let running = tasks.claimed + tasks.running;
        let counts = [tasks.queued, running, tasks.completed, tasks.failed].map(|count| count.to_string());
        [visible(&queue.queue)].into_iter().chain(counts).chain([visible(&state)]).collect()
    });
    Rows { heading: &["QUEUE", "QUEUED", "RUNNING", "DONE", "FAILED", "STATE"], rows: rows.collect() }
}

fn tasks(seen: &OverviewView) -> Rows {
    let rows = seen.running.iter().map(|task| {
        let worker = seen.workers.iter().find(|worker| worker.task.as_deref() == Some(task.id.as_str()));
        let elapsed = worker.and_then(|worker| worker.elapsed_s).map(seconds).unwrap_or_default();
        let name = worker.map(|worker| visible(&worker.name)).unwrap_or_default();
        vec![
            visible(&task.id),
            visible(&task.queue),
            visible(&task.kind),
            task.runs.to_string(),
            elapsed,
            name,
        ]
    });
    Rows { heading: &["TASK", "QUEUE", "KIND", "RUN", "FOR", "WORKER"], rows: rows.collect() }
}

fn workers(seen: &OverviewView) -> Rows {
    let rows = seen.workers.iter().map(|worker| {
        let pid = worker.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let memory = worker.memory_bytes.map(mebibytes).unwrap_or_default();
        let (done, failed) = (worker.done.to_string(), worker.failed.to_string());
        let task = worker.task.as_deref().map(visible).unwrap_or_default();
        let [name, pool] = [&worker.name, &worker.pool].map(|text| visible(text));
        vec![name, pool, pid, worker.state.to_owned(), memory, done, failed, task]
    });
    let heading = &["WORKER", "POOL", "PID", "STATE", "MEMORY", "DONE", "FAILED", "TASK"];
    Rows { heading, rows: rows.collect() }
}

fn accounts(seen: &OverviewView) -> Rows {
    let rows = seen.accounts.iter().map(|account| {
        let most = account.most.map_or_else(|| "-".to_owned(), |most| most.to_string());
        let used =
            account.usage.as_ref().map(|usage| format!("{:.0} %", usage.used * 100.0)).unwrap_or_default();
        let held = account.held.as_ref().map(|held| format!("held: {}", held.reason)).unwrap_or_default();
        vec![visible(&account.account), account.running.to_string(), most, used, visible(&held)]
    });
    Rows { heading: &["ACCOUNT", "RUNNING", "MOST", "USED", "STATE"], rows: rows.collect() }
}

fn problems(findings: &[FindingView]) -> Rows {
    let mut rows = Vec::new();
    for finding in findings {
        rows.push(vec![finding.severity.name().to_owned(), visible(&finding.sentence)]);
        if !finding.advice.is_empty() {
            rows.push(vec![String::new(), visible(&finding.advice)]);
        }
    }
    Rows { heading: &["LEVEL", "PROBLEM"], rows }
}

fn seconds(seconds: u64) -> String {
    how_long(Duration::from_secs(seconds))
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The time of day, in UTC.
pub(crate) fn clock(at: Timestamp) -> String {
    let second = at.millis().div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60)
}

/// The counts of the first line.
pub(crate) fn counts(seen: &OverviewView) -> String {
    let tasks = &seen.stats.tasks;
    let workers = &seen.stats.workers;
    format!(
        "queued {}  running {}  failed {}  workers {}/{} busy  nodes {}",
        tasks.queued,
        tasks.claimed + tasks.running,
        tasks.failed,
        workers.busy,
        workers.total,
        seen.nodes.len()
    )
}

/// One screen as text, for `--once`: all tables that have rows.
pub(crate) fn text(store: &str, seen: &OverviewView) -> String {
    let mut lines = vec![
        format!("ostler top  {}  as of {}", visible(store), clock(seen.as_of.timestamp())),
        counts(seen),
    ];
    for node in &seen.nodes {
        let joined = ago(seen.as_of.timestamp(), node.joined_at.timestamp());
        lines.push(format!(
            "node {} (process {}) {}, started {joined}",
            visible(&node.name),
            node.pid,
            node.state
        ));
    }
    for section in Section::ALL {
        let Rows { heading, rows } = rows(section, seen, &seen.findings);
        if rows.is_empty() {
            continue;
        }
        lines.push(String::new());
        let widths = widths(heading, &rows);
        let heading: Vec<String> = heading.iter().map(|word| (*word).to_owned()).collect();
        for row in std::iter::once(&heading).chain(&rows) {
            lines.push(padded(row, &widths).trim_end().to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// The width of each column.
pub(crate) fn widths(heading: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    (0..heading.len()).map(width).collect()
}

fn padded(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
    cells.collect()
}
