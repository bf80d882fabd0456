//! Tasks, for people.

use std::fmt::Write as _;

use ostler_core::{Attempt, Cost, Ending, FailReason, State, Task, TaskId, Timestamp, cut};
use ostler_store::views::TaskDetail;
use ostler_wire::limits::ThrottleView;
use ostler_wire::task::{Detail, ErrorView};
use ostler_wire::time::TimeView;

use super::Looks;
use super::limits::held_back;
use super::table::{Cell, Paint, Table};
use super::visible;
use super::when;
use crate::config::size;

/// The maximum number of lines of an attempt's standard output, counted from the end.
const MAX_STDOUT_LINES: usize = 20;
/// The maximum number of bytes of a prompt.
const MAX_PROMPT_BYTES: usize = 200;
/// The maximum number of bytes of each line.
const MAX_STDOUT_LINE_BYTES: usize = 1_024;

pub(crate) fn list(tasks: &[Task], now: Timestamp, looks: Looks) -> String {
    let mut table = Table::new(&["ID", "QUEUE", "KIND", "STATE", "RUNS", "AGE", "KEY", "ERROR"]);
    for task in tasks {
        let name = task.state.name();
        let error = ErrorView::of(task).map(|trouble| trouble.message).unwrap_or_default();
        table.row(vec![
            task.id.to_string().into(),
            task.queue.as_str().into(),
            task.kind.as_str().into(),
            Cell::painted(stands(task, now), Paint::of(name)),
            task.runs.to_string().into(),
            when::long(now.since(task.created_at)).into(),
            task.unique_key.as_deref().unwrap_or("-").into(),
            error.into(),
        ]);
    }
    table.render(looks)
}

/// The state, with its reason.
fn stands(task: &Task, now: Timestamp) -> String {
    let name = task.state.name().name();
    match &task.state {
        State::Queued { why, run_at, .. } if *run_at > now => {
            format!("{name} ({}, {})", why.name(), when::from(now, *run_at))
        }
        State::Queued { why, .. } => format!("{name} ({})", why.name()),
        // With a single attempt there was nothing to exhaust.
        State::Failed { reason: FailReason::Exhausted, .. } if task.runs == 1 => name.to_owned(),
        State::Failed { reason, .. } => format!("{name} ({})", reason.name()),
        State::Cancelled { reason, .. } => format!("{name} ({})", reason.name()),
        State::Claimed { .. } | State::Running { .. } | State::Completed { .. } => name.to_owned(),
    }
}

/// A task in detail.
pub(crate) fn show(record: &TaskDetail, view: &Detail, now: Timestamp, looks: Looks) -> String {
    let (task, runs) = (&record.task, &view.attempts);
    let at = |moment: Timestamp| format!("{} ({})", TimeView::from(moment), when::from(now, moment));
    let mut lines: Vec<(&str, Option<String>)> = vec![
        ("id", Some(task.id.to_string())),
        ("queue", Some(task.queue.clone())),
        ("kind", Some(task.kind.clone())),
        ("state", Some(Paint::of(task.state.name()).on(&stands(task, now), looks))),
        ("throttled", view.held.as_ref().map(|held| held_by(held, now))),
        ("priority", Some(task.priority.points().to_string())),
        ("runs", Some(runs_of(task, &record.attempts))),
        ("crashes", (task.crashes > 0).then(|| task.crashes.to_string())),
        ("node deaths", (task.node_deaths > 0).then(|| task.node_deaths.to_string())),
        ("created", Some(at(task.created_at))),
        ("first failure", task.first_failure_at.map(at)),
        ("last failure", task.last_failure_at.map(at)),
    ];
    lines.extend(record.after.iter().map(|other| ("waits for", Some(other.to_string()))));
    lines.extend(moments(&task.state).map(|(what, moment)| (what, Some(at(moment)))));
    lines.extend([
        ("cancelling", task.cancel_requested_at.map(at)),
        ("not after", task.not_after.map(at)),
        ("deadline", task.deadline.map(at)),
        ("key", task.unique_key.clone()),
        ("limit key", task.limit_key.clone()),
        ("cost", (task.cost != 1).then(|| task.cost.to_string())),
        ("spent", spent(&record.attempts)),
        ("session", runs.iter().rev().find_map(|run| run.session_id.clone())),
        ("prompt", runs.iter().rev().find_map(|run| run.prompt.as_deref()).map(prompt_line)),
        ("attempts", task.overrides.attempts.map(|attempts| attempts.to_string())),
        ("timeout", task.overrides.timeout.map(when::long)),
        ("backoff", task.overrides.backoff.map(|backoff| backoff.name().to_owned())),
        ("first delay", task.overrides.base.map(when::long)),
        ("longest delay", task.overrides.max.map(when::long)),
        ("folder", task.folder.clone()),
        ("payload", Some(task.payload.clone())),
        ("output", task.output.clone()),
    ]);
    let mut text = String::new();
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let value = if name == "state" { value } else { visible(&value) };
        let _ = writeln!(text, "{name:<13} {value}");
    }
    if let Some(trouble) = ErrorView::of(task) {
        error(&mut text, &trouble);
    }
    if let Some((run, written)) = runs.iter().rev().find_map(|run| Some((run, run.stdout.as_ref()?))) {
        stdout(&mut text, run.number, written, task.id);
    }
    for step in &record.steps {
        let _ = writeln!(text, "{:<13} {} = {}", "step", visible(&step.name), visible(&step.value));
    }
    for (run, file) in runs.iter().flat_map(|run| run.files.iter().map(move |file| (run, file))) {
        let (path, size) = (visible(&file.path), size::show(file.size));
        let _ = writeln!(text, "{:<13} {path} ({size}, attempt {})", "file", run.number);
    }
    if !record.attempts.is_empty() {
        text.push('\n');
        text.push_str(&attempts(&record.attempts, looks));
    }
    text
}

/// The number of attempts and of failures. A replay restarts the count; earlier failures are mentioned.
fn runs_of(task: &Task, attempts: &[Attempt]) -> String {
    let is_failure = |attempt: &&Attempt| match attempt.end.as_ref().map(|end| end.ending) {
        Some(Ending::Failed(class)) => class.is_failure(),
        Some(Ending::Success | Ending::NodeDied | Ending::HandedBack | Ending::Cancelled) | None => false,
    };
    let recorded = attempts.iter().filter(is_failure).count();
    let failed = u32::try_from(recorded).unwrap_or(u32::MAX).max(task.failures);
    if failed == task.failures {
        return format!("{}, of which {failed} failed", task.runs);
    }
    format!("{}, of which {failed} failed, {} since it was last replayed", task.runs, task.failures)
}

/// What its attempts cost, as far as it is known.
fn spent(attempts: &[Attempt]) -> Option<String> {
    let costs: Vec<Cost> = attempts.iter().filter_map(|attempt| attempt.conversation.cost()).collect();
    let estimated = attempts.iter().any(Attempt::has_estimated_cost);
    let total: Cost = costs.iter().copied().sum();
    (!costs.is_empty()).then(|| format!("{total}{}", if estimated { ", estimated" } else { "" }))
}

/// The first line of a prompt.
fn prompt_line(prompt: &str) -> String {
    let prompt = prompt.trim();
    let line = prompt.lines().next().unwrap_or_default();
    let shown = cut(line, MAX_PROMPT_BYTES);
    if line.len() < prompt.len() { format!("{shown} …") } else { shown }
}

/// What throttles a task: its key or its queue.
fn held_by(held: &ThrottleView, now: Timestamp) -> String {
    let whose = if held.key.is_some() { "its limit key" } else { "its queue" };
    format!("{whose}: {}", held_back(held, now))
}

/// The time that belongs to a state.
fn moments(state: &State) -> impl Iterator<Item = (&'static str, Timestamp)> {
    let moment = match state {
        State::Queued { run_at, .. } => Some(("not before", *run_at)),
        State::Running { started_at, .. } => Some(("started", *started_at)),
        State::Completed { finished_at }
        | State::Failed { finished_at, .. }
        | State::Cancelled { finished_at, .. } => Some(("finished", *finished_at)),
        State::Claimed { .. } => None,
    };
    moment.into_iter()
}

fn error(text: &mut String, trouble: &ErrorView) {
    let _ = writeln!(text, "{:<13} {}: {}", "error", trouble.class, visible(&trouble.message));
    for (name, value) in [("step", &trouble.step), ("hint", &trouble.hint)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{:<13} {}", format!("  {name}"), visible(value));
        }
    }
    for line in trouble.details.iter().flat_map(|details| details.lines()) {
        let _ = writeln!(text, "  | {}", visible(line));
    }
}

/// The end of the standard output of an attempt that did not succeed.
fn stdout(text: &mut String, number: u32, written: &str, id: TaskId) {
    let lines: Vec<&str> = written.lines().collect();
    let shown = &lines[lines.len().saturating_sub(MAX_STDOUT_LINES)..];
    let before = match lines.len() - shown.len() {
        0 => String::new(),
        more => format!("; {more} lines before these: ostler logs {id}"),
    };
    let _ = writeln!(text, "{:<13} of attempt {number}{before}", "stdout");
    for line in shown {
        let _ = writeln!(text, "  | {}", visible(&cut(line, MAX_STDOUT_LINE_BYTES)));
    }
}

fn attempts(attempts: &[Attempt], looks: Looks) -> String {
    let mut table = Table::new(&["ATTEMPT", "STARTED", "TOOK", "OUTCOME", "NODE", "ERROR"]);
    for attempt in attempts {
        let end = attempt.end.as_ref();
        let message = end.and_then(|end| end.failure.as_ref()).map(|failure| failure.message.clone());
        table.row(vec![
            attempt.number.to_string().into(),
            TimeView::from(attempt.started_at).to_string().into(),
            attempt.took().map_or_else(|| "-".to_owned(), when::long).into(),
            end.map_or("running", |end| end.ending.name()).into(),
            attempt.session.to_string().into(),
            message.unwrap_or_default().into(),
        ]);
    }
    table.render(looks)
}
