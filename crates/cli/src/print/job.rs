//! Jobs, for people.

use std::fmt::Write as _;
use std::time::Duration;

use ostler_core::Cost;
use ostler_ops::jobs::FailedItem;
use ostler_wire::job::{JobState, JobView};

use super::Looks;
use super::table::{Cell, Paint, Table};
use super::{how_long, visible, when};

const fn paint(state: JobState) -> Paint {
    match state {
        JobState::Running => Paint::Lively,
        JobState::Unfinished | JobState::Paused => Paint::Plain,
        JobState::Completed => Paint::Good,
        JobState::Failed => Paint::Bad,
        JobState::Cancelled => Paint::Faint,
    }
}

pub(crate) fn jobs(views: &[JobView], looks: Looks) -> String {
    if views.is_empty() {
        return "no jobs yet; \"ostler map\" creates one\n".to_owned();
    }
    let mut table = Table::new(&["JOB", "NAME", "STATE", "ITEMS", "DONE", "FAILED", "CREATED", "COMMAND"]);
    for view in views {
        table.row(vec![
            Cell::id(&view.id, looks),
            view.name.as_str().into(),
            Cell::painted(view.state.name(), paint(view.state)),
            view.items.to_string().into(),
            view.tasks.completed.to_string().into(),
            view.tasks.failed.to_string().into(),
            when::moment(view.created_at, looks).into(),
            view.command.join(" ").into(),
        ]);
    }
    table.render(looks)
}

/// One job, and some of its failed items with their errors.
pub(crate) fn job(view: &JobView, failed: &[FailedItem], looks: Looks) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10}{}", visible(value));
    };
    line("job", &view.id);
    line("name", &view.name);
    line("state", view.state.name());
    if let Some(why) = &view.paused {
        line("paused", why);
    }
    line("created", &when::moment(view.created_at, looks));
    line("command", &view.command.join(" "));
    line("folder", view.folder.as_deref().unwrap_or("-"));
    line("queue", &view.queue);
    let tasks = &view.tasks;
    let open = tasks.queued + tasks.claimed + tasks.running;
    line(
        "items",
        &format!(
            "{}: {} completed, {} failed, {} cancelled, {open} open",
            view.items, tasks.completed, tasks.failed, tasks.cancelled
        ),
    );
    if let Some(took) = view.duration_ms {
        line("took", &how_long(Duration::from_millis(took)));
    }
    if let Some(cost) = view.cost_usd.and_then(Cost::from_usd) {
        line("cost", &cost.to_string());
    }
    if let Some(budget) = &view.budget {
        let shown = |usd: f64| Cost::from_usd(usd).unwrap_or_default().to_string();
        let total = budget.total_usd.map_or_else(|| "-".to_owned(), shown);
        let over =
            if budget.over_usd > 0.0 { format!(", {} over", shown(budget.over_usd)) } else { String::new() };
        line("budget", &format!("{total}: {} spent{over}", shown(budget.spent_usd)));
    }
    if !failed.is_empty() {
        let mut table = Table::new(&["FAILED ITEM", "ERROR"]);
        for FailedItem { item, error } in failed {
            table.row(vec![item.as_str().into(), Cell::painted(error, Paint::Bad)]);
        }
        let _ = write!(text, "\n{}", table.render(looks));
    }
    text
}
