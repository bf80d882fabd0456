//! One screen of what is in use and how it does, for people.

use std::fmt::Write as _;

use ostler_core::{Timestamp, visible};
use ostler_wire::limits::QueueView;
use ostler_wire::overview::StatusView;
use ostler_wire::system::{NodeView, Severity};

use super::findings::paint;
use super::table::Paint;
use super::{Looks, limits, system, task, when};

/// Rows of a table.
const MAX_ROWS: usize = 10;

pub(crate) fn status(view: &StatusView, now: Timestamp, looks: Looks) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    line("ostler", &visible(view.version));
    line("store", &format!("{} ({})", visible(&view.store), origin(view)));
    line("config", &view.config.as_deref().map_or_else(|| "none".to_owned(), visible));
    if view.nodes.is_empty() {
        line("nodes", "none is up");
    }
    for (node, name) in view.nodes.iter().zip(std::iter::once("nodes").chain(std::iter::repeat(""))) {
        line(name, &one_node(node, now));
    }
    let queues: Vec<QueueView> = view.queues.iter().take(MAX_ROWS).cloned().collect();
    if queues.is_empty() {
        line("queues", "none yet");
    } else {
        let _ = write!(text, "\n{}", limits::queues(&queues, now, looks));
        let more = view.queues.len() - queues.len();
        if more > 0 {
            let _ = writeln!(text, "and {more} more: ostler queue ls");
        }
    }
    if !view.running.is_empty() {
        let _ = write!(text, "\n{}", task::list(&view.running, now, looks));
    }
    if view.problems.is_empty() {
        let _ = writeln!(text, "\n{}", Paint::Good.on("no problems found", looks));
        return text;
    }
    text.push('\n');
    let (errors, others): (Vec<_>, Vec<_>) =
        view.problems.iter().partition(|finding| finding.severity == Severity::Error);
    for finding in &errors {
        let word = paint(finding.severity).on("error", looks);
        let _ = writeln!(text, "{word}  {}", visible(&finding.sentence));
    }
    let warnings = match others.len() {
        0 => return text + "how to mend it: ostler doctor\n",
        1 => "1 warning".to_owned(),
        many => format!("{many} warnings"),
    };
    let _ = writeln!(text, "{}; what they are: ostler doctor", paint(Severity::Warning).on(&warnings, looks));
    text
}

/// What named the store, in words.
fn origin(view: &StatusView) -> &'static str {
    match view.store_from {
        "option" => "by --store",
        "environment" => "by OSTLER_STORE",
        "config" => "by the config",
        "server" => "a node",
        _ => "the default",
    }
}

fn one_node(node: &NodeView, now: Timestamp) -> String {
    let host = node.host.as_ref().map(|host| format!(" on {}", visible(host))).unwrap_or_default();
    let up = when::long(now.since(node.joined_at.timestamp()));
    let state = if node.state == "alive" { String::new() } else { format!(" ({})", visible(node.state)) };
    let pools = system::pools(node);
    format!("{}{state}, process {}{host}, up {up}, pools: {pools}", visible(&node.name), node.pid)
}
