//! The events of a task as a conversation: the newest hundred, older ones by a link, tool calls folded, and an address for each event.
//! `search.rs` finds a text in all of them.

use hyper::StatusCode;
use maud::{Markup, html};
use ostler_core::{EventBody, EventKind, EventKinds, Role, TaskId, ToolStatus, visible_lines};
use ostler_ops::tasks;
use ostler_store::Store;
use ostler_store::events::{Event, EventQuery, TextRef};
use ostler_wire::event::{label, text};

use super::layout::{ANYTHING_CHANGES, PageContext, PageView, segment};
use super::parts::{bytes, line, short, time};
use super::search;
use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;

/// Events on a page.
pub(super) const PAGE: u64 = 100;
/// Bytes of a text; the whole has a link.
const MAX_SHOWN: usize = 4 * 1024;
/// The largest event that is sent as a whole.
const MAX_WHOLE: usize = 16 << 20;
/// Halvings of the search for the newest event.
const MAX_HALVINGS: u32 = 64;

/// Raw lines of agents are left out: other events have what was read from them.
pub(super) const KINDS: EventKinds = EventKinds::ALL.without(EventKind::Raw);

/// Events of a page.
pub(super) struct EventsRead {
    /// All of these events have a higher number, and none between it and the first of them is left out.
    after: u64,
    events: Vec<Event>,
}

/// The events behind this number; `None`: the newest.
pub(super) async fn read(
    store: &dyn Store,
    task: TaskId,
    after: Option<u64>,
) -> Result<EventsRead, RequestError> {
    let after = match after {
        Some(after) => after,
        None => newest_number(store, task).await?.saturating_sub(PAGE),
    };
    let query = EventQuery { kinds: KINDS, after, limit: PAGE as usize, text_bytes: MAX_SHOWN };
    Ok(EventsRead { after, events: store.read_events(task, query).await? })
}

/// The number of the newest event: the store reads forward only, so it is searched by halving.
async fn newest_number(store: &dyn Store, task: TaskId) -> Result<u64, RequestError> {
    let (mut low, mut high) = (0, 64);
    for _ in 0..MAX_HALVINGS {
        let query = EventQuery { kinds: EventKinds::ALL, after: high, limit: 1, text_bytes: 1 };
        match store.read_events(task, query).await?.first() {
            Some(event) => (low, high) = (event.number, event.number.saturating_mul(2)),
            None => break,
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let query = EventQuery { kinds: EventKinds::ALL, after: middle, limit: 1, text_bytes: 1 };
        match store.read_events(task, query).await?.first() {
            Some(event) => low = event.number,
            None => high = middle,
        }
    }
    Ok(low)
}

/// Where a page begins: `?after=N`.
pub(super) fn after(call: &ApiCall) -> Result<Option<u64>, RequestError> {
    let asked = call.one_of_query("after").map(|after| after.parse()).transpose();
    asked.map_err(|_| RequestError::field("after", "after: expected the number of an event"))
}

/// A page of events, or those with a text: `?text=T`.
pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let task = tasks::find(call.store(), &call.task()?).await?.task;
    let id = task.id.to_string();
    let address = format!("tasks/{}/transcript", segment(call.param("id")));
    let page = PageContext::new(&call, PageView::Tasks, &address);
    let after = after(&call)?;
    let text = call.one_of_query("text").unwrap_or_default();
    if !text.trim().is_empty() {
        return search::show(&call, &page, task.id, text.trim(), after.unwrap_or(0)).await;
    }
    let all = read(call.store(), task.id, after).await?;
    let last = all.events.last().map(|event| event.number);
    let main = html! {
        h1 { "Events of " a href=(page.link(&format!("tasks/{id}"))) { (short(&id)) } }
        (search::form(&page, &id, ""))
        (events(&page, &id, &all))
        @if let Some(last) = last.filter(|_| all.events.len() as u64 >= PAGE) { p { a class="button" rel="next" href=(page.link(&format!("tasks/{id}/transcript?after={last}"))) { "Later events" } } }
    };
    Ok(page.page(&format!("Events of {}", short(&id)), ANYTHING_CHANGES, &main))
}

/// The whole text of one event, as plain text.
pub(crate) async fn event(call: ApiCall) -> Result<Answer, RequestError> {
    let task = tasks::find(call.store(), &call.task()?).await?.task.id;
    let number: u64 =
        call.param("number").parse().map_err(|_| RequestError::not_found("there is no such event"))?;
    let query = EventQuery { after: number.saturating_sub(1), limit: 1, ..EventQuery::default() };
    let found = call.store().read_events(task, query).await?.into_iter().find(|event| event.number == number);
    let found = found.ok_or_else(|| RequestError::not_found("there is no such event"))?;
    let whole = if found.cut.is_some() {
        let part = call.store().read_text(task, TextRef::Event(number), 0, MAX_WHOLE).await?;
        part.map(|part| String::from_utf8_lossy(&part.bytes).into_owned()).unwrap_or_default()
    } else {
        text(&found.body)
    };
    Ok(plain(StatusCode::OK, "text/plain; charset=utf-8", whole))
}

/// Events as a list. The script fetches what came between two of them: `data-after` says what the list does not have.
pub(super) fn events(page: &PageContext, id: &str, read: &EventsRead) -> Markup {
    let EventsRead { after, events: all } = read;
    let first = all.first().map_or(0, |event| event.number);
    html! {
        @if first > 1 {
            p { a class="button" rel="prev" href=(page.link(&format!("tasks/{id}/transcript?after={}", first.saturating_sub(PAGE + 1)))) { "Earlier events" } }
        }
        @if all.is_empty() { p class="quiet" { "None yet." } }
        ol id="events" class="events" data-after=(after) data-transcript=(page.link(&format!("tasks/{id}/transcript"))) { @for event in all { (one(page, id, event)) } }
    }
}

fn one(page: &PageContext, id: &str, event: &Event) -> Markup {
    let whole = text(&event.body);
    let shown = visible_lines(ostler_core::beginning(&whole, MAX_SHOWN));
    let size = event.cut.unwrap_or(whole.len() as u64);
    let cut = size > MAX_SHOWN as u64;
    html! {
        li id=(format!("e{}", event.number)) class={ "event " (class(&event.body)) } {
            div class="meta" { a href=(format!("#e{}", event.number)) { (event.number) } " " span { (line(&label(&event.body))) } " " (time::at(event.at.into())) }
            @if folds(&event.body) {
                details data-key=(format!("d{}", event.number)) { summary { (summary(&shown)) } pre { (shown) } }
            } @else { pre { (shown) } }
            @if cut { p { a href=(page.link(&format!("tasks/{id}/transcript/{}", event.number))) { "All " (bytes(size)) } } }
        }
    }
}

fn folds(body: &EventBody) -> bool {
    matches!(
        body.kind(),
        EventKind::ToolCall | EventKind::ToolResult | EventKind::Thinking | EventKind::Prompt
    )
}

/// What a folded text shows of itself.
fn summary(text: &str) -> String {
    const SHOWN_CHARS: usize = 100;
    let first: String = text.lines().next().unwrap_or_default().chars().take(SHOWN_CHARS).collect();
    let lines = text.lines().count();
    if lines > 1 { format!("{first} … ({lines} lines)") } else { first }
}

/// What follows a part of a message stands right below it.
pub(super) fn class(body: &EventBody) -> &'static str {
    if let EventBody::Message { role, .. } = body {
        role.name()
    } else if let EventBody::Continued { role, .. } = body {
        match role {
            Some(Role::Assistant) => "assistant more",
            Some(Role::User) => "user more",
            Some(Role::System) => "system more",
            None => "thinking more",
        }
    } else if matches!(body, EventBody::ToolResult { status: ToolStatus::Error, .. }) {
        "error"
    } else {
        body.kind().name()
    }
}
