//! The transcript of a task as one HTML page: its attempts with what they cost, and all of their events.
//!
//! The page needs nothing else: it loads no script, font or picture, and its policy forbids it to. It is written in pieces, in their order,
//! so that a long transcript need not be in memory: [`head`], for each attempt [`attempt_heading`], each [`event`], [`FOOT`].

use maud::{DOCTYPE, Markup, PreEscaped, html};
use ostler_core::{Attempt, Cost, EventBody, EventKind, Task, ToolStatus};
use ostler_store::events::Event;
use ostler_store::views::TaskDetail;

use crate::event::{label, text};
use crate::task::{ErrorView, ending};
use crate::time::TimeView;

/// The end of the page.
pub const FOOT: &str = "</main></body></html>\n";

/// Texts of a conversation that have more lines or bytes than this are folded.
const LONG_LINES: usize = 12;
const LONG_BYTES: usize = 2_000;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --quiet: #777; --bad: #c22; --good: #282; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
pre { font: 13px/1.45 ui-monospace, monospace; margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
h1 { font-size: 1.3rem; } h2 { border-top: 1px solid var(--line); font-size: 1.05rem; margin-top: 2rem; padding-top: 1rem; }
table { border-collapse: collapse; } th { font-weight: normal; color: var(--quiet); padding-right: 1rem; text-align: left; }
article { border-left: 3px solid var(--line); margin: .6rem 0; padding: .1rem .8rem; }
article > header, .quiet { color: var(--quiet); font-size: .8rem; }
.prompt, .user { border-color: #58c; background: var(--soft); } .assistant, .result { border-color: #5a5; }
.tool_call, .tool_result { border-color: #b83; } .error, .warning, .bad { border-color: var(--bad); color: var(--bad); }
.good { color: var(--good); } summary { cursor: pointer; color: var(--quiet); font-size: .8rem; }
";

/// The beginning of the page: the task, its input and its attempts.
#[must_use]
pub fn head(found: &TaskDetail) -> String {
    let TaskDetail { task, attempts, .. } = found;
    let title = format!("{} {}", task.kind, task.id);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    (facts(task, attempts))
                    details { summary { "input" } pre { (task.payload) } }
                    @if let Some(output) = &task.output {
                        details { summary { "output" } pre { (output) } }
                    }
                    @if let Some(error) = ErrorView::of(task) {
                        p class="bad" { (error.class) ": " (error.message) }
                    }
                }
            }
        }
    };
    let page = page.into_string();
    // What follows is written later.
    page.strip_suffix("</main></body></html>").unwrap_or(&page).to_owned()
}

fn facts(task: &Task, attempts: &[Attempt]) -> Markup {
    let cost = total(attempts);
    html! {
        table {
            tr { th { "state" } td { (task.state.name().name()) } }
            tr { th { "queue" } td { (task.queue) } }
            tr { th { "created" } td { (TimeView::from(task.created_at)) } }
            tr { th { "attempts" } td { (attempts.len()) } }
            @if let Some(cost) = cost { tr { th { "cost" } td { (cost) } } }
        }
    }
}

fn total(attempts: &[Attempt]) -> Option<Cost> {
    let mut known = attempts.iter().filter_map(|attempt| attempt.conversation.cost()).peekable();
    known.peek().is_some().then(|| known.sum())
}

/// The heading of the events of an attempt.
#[must_use]
pub fn attempt_heading(attempt: &Attempt) -> String {
    let end = attempt.end.as_ref();
    let failure = end.and_then(|end| end.failure.as_ref());
    let took = attempt.took().map(|took| format!(", {:.1} s", took.as_secs_f64())).unwrap_or_default();
    let cost = attempt.conversation.cost().map(|cost| format!(", {cost}")).unwrap_or_default();
    let session = &attempt.conversation.session;
    html! {
        h2 { "Attempt " (attempt.number) ": " (end.map_or("running", |end| ending(end.ending))) (took) (cost) }
        p class="quiet" {
            (TimeView::from(attempt.started_at))
            @if let Some(session) = session { ", session " (session) }
        }
        @if let Some(failure) = failure { p class="bad" { (failure.class.name()) ": " (failure.message) } }
    }
    .into_string()
}

/// One event.
#[must_use]
pub fn event(event: &Event) -> String {
    let text = text(&event.body);
    let is_quiet =
        matches!(event.body.kind(), EventKind::Thinking | EventKind::Raw | EventKind::FormerPayload)
            || matches!(event.body, EventBody::Continued { role: None, .. });
    let is_long = text.len() > LONG_BYTES || text.lines().count() > LONG_LINES;
    let folds = is_quiet || (is_long && event.body.kind() != EventKind::Result);
    let size = event.cut.map(|whole| format!(" (the beginning of {whole} bytes)")).unwrap_or_default();
    html! {
        article class=(class(&event.body)) {
            header { (label(&event.body)) (size) " · " (TimeView::from(event.at)) }
            @if folds {
                details { summary { (summary(&text)) } pre { (text) } }
            } @else {
                pre { (text) }
            }
        }
    }
    .into_string()
}

/// What a folded text shows of itself.
fn summary(text: &str) -> String {
    const SHOWN_CHARS: usize = 100;
    let first = text.lines().next().unwrap_or_default();
    let shown: String = first.chars().take(SHOWN_CHARS).collect();
    format!("{shown} … ({} lines)", text.lines().count())
}

/// The class in the style sheet.
fn class(body: &EventBody) -> &'static str {
    if let EventBody::Message { role, .. } = body {
        role.name()
    } else if matches!(body, EventBody::ToolResult { status: ToolStatus::Error, .. }) {
        "error"
    } else {
        body.kind().name()
    }
}
