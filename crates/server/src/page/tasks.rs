//! The list of tasks: filters, a selection, and actions on the selection or on all that match.

use maud::{Markup, html};
use ostler_core::{ErrorClass, StateName, Task};
use ostler_ops::input::filter;
use ostler_store::views::{Cursor, ListOrder, Page};
use ostler_store::{Error as StoreError, MAX_PAGE};
use ostler_wire::action::{BulkProgress, BulkState};
use ostler_wire::input::FilterInput;
use ostler_wire::task::Summary;

use super::forms::BACK;
use super::layout::{PageContext, PageView, TASKS_CHANGE, with_query};
use super::overview::task_address;
use super::parts::button::{ActionButton, asks, class, command, row};
use super::parts::state::badge;
use super::parts::{counted, line, short, time};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

/// Tasks on a page.
const PAGE: usize = 50;
/// Calls of the store for one page where matches are rare; then the reader goes on by a link.
const MAX_SCANS: usize = 3;

/// The conditions of a list, as they stand in its address.
#[derive(Clone, Debug, Default)]
pub(super) struct ListConditions(pub(super) Vec<(String, String)>);

/// The names of conditions, with what people read.
const CONDITIONS: [(&str, &str, &str); 9] = [
    ("queue", "Queue", "mail"),
    ("kind", "Kind", "send"),
    ("text", "Text", "in payload, key or error"),
    ("where", "Field", "payload.tenant=acme"),
    ("class", "Error class", ""),
    ("failed_since", "Failed since", "2026-11-01T00:00:00Z"),
    ("failed_until", "Failed before", "2026-11-02T00:00:00Z"),
    ("ended_since", "Ended since", "2026-11-01T00:00:00Z"),
    ("ended_until", "Ended before", "2026-11-02T00:00:00Z"),
];

impl ListConditions {
    pub(super) fn of(query: &str) -> Self {
        let known =
            |name: &str| name == "state" || CONDITIONS.iter().any(|(condition, ..)| *condition == name);
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Self(pairs.filter(|(name, value)| known(name) && !value.trim().is_empty()).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }

    pub(super) fn input(&self) -> FilterInput {
        let get = |name: &str| self.get(name).map(str::to_owned);
        FilterInput {
            state: get("state"),
            queue: get("queue"),
            kind: get("kind"),
            text: get("text"),
            field: get("where"),
            class: get("class"),
            failed_since: get("failed_since"),
            failed_until: get("failed_until"),
            ended_since: get("ended_since"),
            ended_until: get("ended_until"),
            items: None,
            stale: None,
        }
    }

    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.trim())).collect()
    }
}

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Tasks, "tasks");
    let conditions = ListConditions::of(&call.query);
    let wanted = match filter(conditions.input(), ListOrder::NewestFirst) {
        Ok(wanted) => wanted,
        Err(wrong) => {
            let main =
                html! { h1 { "Tasks" } (filters(&conditions)) p class="notice refused" { (wrong.sentence) } };
            return Ok(page.page_with(hyper::StatusCode::BAD_REQUEST, "Tasks", TASKS_CHANGE, &main));
        }
    };
    let list = |next, most| call.store().list(wanted.clone(), next, most);
    let (found, next) = gather(list, cursor(&call)?, PAGE).await?;
    let tasks: Vec<Summary> = found.iter().map(Summary::from).collect();
    let cursor = next.map(|next| next.to_string());
    let main = html! {
        h1 { "Tasks" }
        (filters(&conditions))
        (progress(&page, &call.app.bulk.list()))
        (table(&page, &conditions, &tasks, cursor.as_deref()))
        (forms_for_all(&page, &conditions, &["cancel", "retry", "replay", "drop"]))
        p class="quiet" { "The same in a terminal: " (same_by_command("ostler ls", &conditions)) }
    };
    Ok(page.page("Tasks", TASKS_CHANGE, &main))
}

/// Where the page begins: the cursor of its address.
pub(super) fn cursor(call: &ApiCall) -> Result<Option<Cursor>, RequestError> {
    let asked = form_urlencoded::parse(call.query.as_bytes()).find(|(name, _)| name == "cursor");
    let asked = asked.map(|(_, cursor)| cursor.parse()).transpose();
    asked.map_err(|_| RequestError::field("cursor", "cursor: expected the value of the previous page"))
}

/// Up to so many tasks from a cursor on, and where they go on. Fewer where matches are rare: each call of the list looks at a bounded part.
pub(super) async fn gather<F>(
    list: impl Fn(Option<Cursor>, usize) -> F,
    from: Option<Cursor>,
    most: usize,
) -> Result<(Vec<Task>, Option<Cursor>), StoreError>
where
    F: Future<Output = Result<Page, StoreError>>,
{
    let (mut found, mut next) = (Vec::new(), from);
    for _ in 0..MAX_SCANS {
        let part = list(next, (most - found.len()).min(MAX_PAGE)).await?;
        found.extend(part.tasks);
        next = part.next;
        if next.is_none() || found.len() >= most {
            break;
        }
    }
    Ok((found, next))
}

fn filters(conditions: &ListConditions) -> Markup {
    let rare = CONDITIONS[4..].iter().any(|(name, ..)| conditions.get(name).is_some());
    html! {
        form class="filters" method="get" action="tasks" role="search" {
            label { span { "State" } select name="state" {
                option value="" { "any" }
                @for state in StateName::ALL { option value=(state.name()) selected[conditions.get("state") == Some(state.name())] { (state.name()) } }
            } }
            @for (name, label, example) in &CONDITIONS[..4] {
                label { span { (label) } input name=(name) value=(conditions.get(name).unwrap_or_default()) placeholder=(example) spellcheck="false" autocomplete="off" data-search[*name == "text"]; }
            }
            details data-key="more-filters" open[rare] {
                summary { "More" }
                label { span { "Error class" } select name="class" {
                    option value="" { "any" }
                    @for known in ErrorClass::ALL { option value=(known.name()) selected[conditions.get("class") == Some(known.name())] { (known.name()) } }
                } }
                @for (name, label, example) in &CONDITIONS[5..] {
                    label { span { (label) } input name=(name) value=(conditions.get(name).unwrap_or_default()) placeholder=(example) spellcheck="false" autocomplete="off"; }
                }
            }
            button class="button" { "Show" }
            " " a class="button plain" href="tasks" { "Clear" }
        }
    }
}

/// Actions on many tasks.
pub(super) fn progress(page: &PageContext, all: &[BulkProgress]) -> Markup {
    const SHOWN: usize = 3;
    html! {
        div id="bulk" {
            @for action in all.iter().take(SHOWN) {
                @let state = match action.state { BulkState::Running => "running", BulkState::Done => "done", BulkState::Stopped => "stopped", BulkState::Failed => "failed" };
                div class="bulk" data-key=(action.id) {
                    (badge(state)) " " strong { (action.action) } ": " (counted(action.done, "task"))
                    @for (result, count) in &action.results { span class="quiet" { " · " (count) " " (serde_json::to_value(result).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()) } }
                    @if let Some(error) = &action.error { p class="bad" { (error) } }
                    @if action.state == BulkState::Running { (ActionButton::new("tasks.action.stop", "Stop", &[("p:action", &action.id)]).show(page)) }
                }
            }
        }
    }
}

fn table(page: &PageContext, conditions: &ListConditions, tasks: &[Summary], cursor: Option<&str>) -> Markup {
    let rows = html! {
        p id="fresh" hidden { button type="button" class="button" { "Show new tasks" } }
        table class="cards tasks" {
            thead { tr {
                @if page.may_change() { th { span class="hidden" { "Select" } } }
                th { "State" } th { "Task" } th { "Queue" } th { "Kind" } th { "Why" } th class="n" { "Runs" } th { "Enqueued" }
            } }
            tbody id="rows" data-list="" {
                @for task in tasks { (task_row(page, task)) }
            }
        }
    };
    html! {
        @if page.may_change() {
            form id="list" method="post" action=(page.link("do/tasks.cancel")) {
                input type="hidden" name=(BACK) value=(page.address);
                (toolbar(page, conditions))
                (rows)
            }
        } @else { (rows) }
        @if tasks.is_empty() {
            @match cursor {
                Some(_) => p { "Looked at the newest of them and found none yet." },
                None => p class="quiet" { "No task matches." },
            }
        }
        @if let Some(cursor) = cursor {
            @let mut pairs = conditions.pairs();
            @let () = pairs.push(("cursor", cursor));
            p { a class="button" rel="next" href=(with_query("tasks", &pairs)) { @if tasks.is_empty() { "Go on" } @else { "Older tasks" } } }
        }
    }
}

fn toolbar(page: &PageContext, conditions: &ListConditions) -> Markup {
    let selected = [
        ("tasks.cancel", "Cancel"),
        ("tasks.retry", "Retry"),
        ("dead.replay", "Replay"),
        ("dead.drop", "Drop"),
    ];
    html! {
        div class="toolbar" role="toolbar" aria-label="Actions on the selection" {
            span class="quiet" { "With the selected:" }
            @for (id, label) in selected {
                @let operation = row(id);
                button class=(class(operation)) formaction=(page.link(&format!("do/{id}"))) data-danger=[asks(operation)] data-about=(operation.summary) data-cmd=(operation.command) { (label) }
            }
            @if !conditions.0.is_empty() {
                span class="quiet" { "With all that match:" }
                @for action in ["cancel", "retry", "replay", "drop"] {
                    button class=(if action == "drop" { "button bad" } else { "button" }) form=(format!("all-{action}")) { (action) " all" }
                }
            }
        }
    }
}

/// The forms of the buttons for all that match. They stand outside the form of the list.
pub(super) fn forms_for_all(page: &PageContext, conditions: &ListConditions, actions: &[&str]) -> Markup {
    html! {
        @if page.may_change() && !conditions.0.is_empty() {
            @for action in actions {
                form id=(format!("all-{action}")) method="post" action=(page.link("do/tasks.act")) {
                    input type="hidden" name="s:action" value=(action);
                    @for (name, value) in conditions.pairs() { input type="hidden" name=(format!("f:{name}")) value=(value); }
                    input type="hidden" name=(BACK) value=(page.address);
                }
            }
        }
    }
}

fn task_row(page: &PageContext, task: &Summary) -> Markup {
    html! {
        tr data-key=(task.id) {
            @if page.may_change() { td class="pick" { input type="checkbox" name="p:id" value=(task.id) aria-label=(format!("Select {}", short(&task.id))); } }
            td data-label="State" { (badge(task.state)) }
            td data-label="Task" { a class="id" href=(page.link(&task_address(&task.id))) title=(task.id) { (short(&task.id)) } @if let Some(key) = &task.key { " " span class="quiet" { (line(key)) } } }
            td data-label="Queue" { (line(&task.queue)) }
            td data-label="Kind" { (line(&task.kind)) }
            td data-label="Why" class="why" { (reason(task)) }
            td class="n" data-label="Runs" { (task.runs) @if task.failures > 0 { span class="bad" { " (" (task.failures) " failed)" } } }
            td data-label="Enqueued" { (time::at(task.created_at)) }
        }
    }
}

fn reason(task: &Summary) -> Markup {
    html! {
        @if let Some(waits) = task.waits_for.filter(|waits| *waits != "new") { span { "waits: " (waits.replace('_', " ")) } @if let Some(at) = task.run_at.filter(|_| matches!(waits, "scheduled" | "retry" | "rate_limited")) { " until " (time::at(at)) } " " }
        @if let Some(error) = &task.error { span class="error" { strong { (error.class) } " " (line(ostler_core::beginning(&error.message, 200))) } }
    }
}

/// A command line that shows the same list.
pub(super) fn same_by_command(start: &str, conditions: &ListConditions) -> Markup {
    // Dead letters are all failed.
    let said = |name: &str| name == "state" && start == "ostler dead ls";
    let pairs = conditions.pairs();
    let options =
        pairs.iter().filter(|(name, _)| !said(name)).fold(start.to_owned(), |line, (name, value)| {
            format!("{line} --{} {}", name.replace('_', "-"), super::command::word(value))
        });
    command(&options)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_search_without_a_match_ends_after_a_few_calls_and_says_where_it_goes_on() {
        let calls = AtomicI64::new(0);
        let list = |_, most: usize| {
            assert!(most <= MAX_PAGE);
            let row = calls.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(Page { tasks: Vec::new(), next: Some(Cursor { ended_at: None, row }) }))
        };
        let (found, next) = gather(list, None, 2_000).await.expect("it is listed");
        assert!(found.is_empty() && next == Some(Cursor { ended_at: None, row: MAX_SCANS as i64 - 1 }));
        assert_eq!(calls.into_inner(), MAX_SCANS as i64);
    }
}
