//! Tasks, for people.

use std::fmt::Write as _;
use std::time::Duration;

use ostler_core::{Cost, Ending, ErrorClass, FailReason, Timestamp, cut};
use ostler_wire::limits::ThrottleView;
use ostler_wire::task::{AttemptView, Detail, ErrorView, Summary};
use ostler_wire::time::TimeView;
use ostler_wire::value;

use super::Looks;
use super::limits::held_back;
use super::table::{Cell, Paint, Table};
use super::visible;
use super::when;
use crate::config::size;

/// The maximum number of bytes of a task's progress.
const MAX_PROGRESS_BYTES: usize = 40;
/// The maximum number of lines of an attempt's standard output, counted from the end.
const MAX_STDOUT_LINES: usize = 20;
/// The maximum number of bytes of a prompt.
const MAX_PROMPT_BYTES: usize = 200;
/// The maximum number of bytes of each line.
const MAX_STDOUT_LINE_BYTES: usize = 1_024;

pub(crate) fn list(tasks: &[Summary], now: Timestamp, looks: Looks) -> String {
    let mut table = Table::new(&["ID", "QUEUE", "KIND", "STATE", "RUNS", "AGE", "ABOUT", "ERROR"]);
    for task in tasks {
        let error = task.error.as_ref().map(|trouble| trouble.message.clone()).unwrap_or_default();
        table.row(vec![
            Cell::id(&task.id, looks),
            task.queue.as_str().into(),
            task.kind.as_str().into(),
            Cell::painted(stands(task, now), paint(task)),
            task.runs.to_string().into(),
            when::long(now.since(task.created_at.timestamp())).into(),
            task.about.as_deref().or(task.key.as_deref()).unwrap_or("-").into(),
            error.into(),
        ]);
    }
    table.render(looks)
}

fn paint(task: &Summary) -> Paint {
    // A state that only a newer node knows is plain.
    value::state(task.state).map_or(Paint::Plain, Paint::of)
}

/// The state, with its reason.
fn stands(task: &Summary, now: Timestamp) -> String {
    let name = task.state;
    match (task.waits_for, task.run_at, task.ended_by) {
        (Some(why), Some(run_at), _) if run_at.timestamp() > now => {
            format!("{name} ({why}, {})", when::from(now, run_at.timestamp()))
        }
        (Some(why), _, _) => format!("{name} ({why})"),
        // With a single attempt there was nothing to exhaust.
        (None, _, Some(reason)) if reason == FailReason::Exhausted.name() && task.runs == 1 => {
            name.to_owned()
        }
        (None, _, Some(reason)) => format!("{name} ({reason})"),
        (None, _, None) => match &task.progress {
            Some(progress) => format!("{name} {}", visible(&cut(&progress.to_string(), MAX_PROGRESS_BYTES))),
            None => name.to_owned(),
        },
    }
}

/// A task in detail.
pub(crate) fn show(view: &Detail, now: Timestamp, looks: Looks) -> String {
    let (task, runs) = (&view.summary, &view.attempts);
    let at = |moment: TimeView| {
        format!("{} ({})", when::moment(moment, looks), when::from(now, moment.timestamp()))
    };
    let span = |ms: i64| when::long(Duration::from_millis(ms.unsigned_abs()));
    let mut lines: Vec<(&str, Option<String>)> = vec![
        ("id", Some(task.id.clone())),
        ("queue", Some(task.queue.clone())),
        ("kind", Some(task.kind.clone())),
        ("state", Some(paint(task).on(&stands(task, now), looks))),
        ("throttled", view.held.as_ref().map(|held| held_by(held, now, looks))),
    ];
    // What throttles it is printed above.
    let held = view.held.as_ref().map(|held| held.waits_for);
    let obstacles = view.obstacles.iter().filter(|obstacle| Some(obstacle.code) != held);
    lines.extend(obstacles.map(|obstacle| ("not started", Some(obstacle.sentence.clone()))));
    lines.extend(view.frees.iter().map(|frees| ("to free it", Some(frees.command.clone()))));
    lines.extend([
        ("priority", Some(task.priority.to_string())),
        ("runs", Some(runs_of(task, runs))),
        ("crashes", (view.crashes > 0).then(|| view.crashes.to_string())),
        ("node deaths", (view.node_deaths > 0).then(|| view.node_deaths.to_string())),
        ("created", Some(at(task.created_at))),
        ("first failure", view.first_failure.map(at)),
        ("last failure", view.last_failure.map(at)),
    ]);
    lines.extend(view.after.iter().map(|other| ("waits for", Some(other.clone()))));
    let running = runs.last().filter(|run| task.state == "running" && run.finished_at.is_none());
    lines.extend([
        ("not before", task.run_at.map(at)),
        ("started", running.map(|run| at(run.started_at))),
        ("finished", task.finished_at.map(at)),
        ("cancelling", view.cancel_requested_at.map(at)),
        ("not after", view.not_after.map(at)),
        ("deadline", view.deadline.map(at)),
        ("key", task.key.clone()),
        ("limit key", view.limit_key.clone()),
        ("cost", (view.cost != 1).then(|| view.cost.to_string())),
        ("spent", spent(runs)),
        ("session", runs.iter().rev().find_map(|run| run.session_id.clone())),
        ("prompt", runs.iter().rev().find_map(|run| run.prompt.as_deref()).map(prompt_line)),
        ("attempts", view.rules.attempts.map(|attempts| attempts.to_string())),
        ("timeout", view.rules.timeout_ms.map(span)),
        ("backoff", view.rules.backoff.map(str::to_owned)),
        ("first delay", view.rules.base_ms.map(span)),
        ("longest delay", view.rules.max_ms.map(span)),
        ("folder", view.folder.clone()),
        ("payload", Some(view.payload.as_str().to_owned())),
        ("output", view.output.as_ref().map(|output| output.as_str().to_owned())),
    ]);
    let mut text = String::new();
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let value = if name == "state" { value } else { visible(&value) };
        let _ = writeln!(text, "{name:<13} {value}");
    }
    if let Some(trouble) = &task.error {
        error(&mut text, trouble);
    }
    if let Some((run, written)) = runs.iter().rev().find_map(|run| Some((run, run.stdout.as_ref()?))) {
        stdout(&mut text, run.number, written, &task.id);
    }
    for (name, step) in &view.steps {
        let _ = writeln!(text, "{:<13} {} = {}", "step", visible(name), visible(step.as_str()));
    }
    for (run, file) in runs.iter().flat_map(|run| run.files.iter().map(move |file| (run, file))) {
        let (path, size) = (visible(&file.path), size::show(file.size));
        let _ = writeln!(text, "{:<13} {path} ({size}, attempt {})", "file", run.number);
    }
    if !runs.is_empty() {
        text.push('\n');
        text.push_str(&attempts(runs, looks));
    }
    text
}

/// The number of attempts and of failures. A replay restarts the count; earlier failures are mentioned.
fn runs_of(task: &Summary, attempts: &[AttemptView]) -> String {
    let is_failure = |run: &&AttemptView| {
        let class =
            run.error.as_ref().filter(|_| run.state == "failed").map(|error| value::class(error.class));
        class.is_some_and(|class| class.is_ok_and(ErrorClass::is_failure))
    };
    let recorded = attempts.iter().filter(is_failure).count();
    let failed = u32::try_from(recorded).unwrap_or(u32::MAX).max(task.failures);
    if failed == task.failures {
        return format!("{}, of which {failed} failed", task.runs);
    }
    format!("{}, of which {failed} failed, {} since it was last replayed", task.runs, task.failures)
}

/// What its attempts cost, as far as it is known.
fn spent(attempts: &[AttemptView]) -> Option<String> {
    let costs: Vec<Cost> = attempts.iter().filter_map(|run| run.cost_usd.and_then(Cost::from_usd)).collect();
    let estimated = attempts.iter().any(|run| run.cost_estimated);
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
fn held_by(held: &ThrottleView, now: Timestamp, looks: Looks) -> String {
    let whose = if held.key.is_some() { "its limit key" } else { "its queue" };
    format!("{whose}: {}", held_back(held, now, looks))
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
fn stdout(text: &mut String, number: u32, written: &str, id: &str) {
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

fn attempts(attempts: &[AttemptView], looks: Looks) -> String {
    let mut table = Table::new(&["ATTEMPT", "STARTED", "TOOK", "OUTCOME", "NODE", "ERROR"]);
    for run in attempts {
        let took = run.duration_ms.map(|ms| when::long(Duration::from_millis(ms.unsigned_abs())));
        let outcome = match (run.state, &run.error) {
            ("completed", _) => Ending::Success.name(),
            ("failed", Some(error)) => error.class,
            (state, _) => state,
        };
        let message = run.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
        table.row(vec![
            run.number.to_string().into(),
            when::moment(run.started_at, looks).into(),
            took.unwrap_or_else(|| "-".to_owned()).into(),
            outcome.into(),
            Cell::id(&run.node, looks),
            message.into(),
        ]);
    }
    table.render(looks)
}
