//! Search in the transcript of a task: each event that has a text, with the words around it and a link to its place. One request looks at a
//! bounded part of a long conversation; a link goes on from there.

use maud::{Markup, html};
use ostler_core::{TaskId, visible_lines};
use ostler_store::events::{Event, EventQuery};
use ostler_wire::event::{label, text};

use super::layout::{PageContext, TASKS_CHANGE, with_query};
use super::parts::{counted, line, short, time};
use super::transcript::{KINDS, PAGE, class};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

/// Events that one request looks at.
const MAX_EVENTS: usize = 20_000;
/// Bytes of them.
const MAX_BYTES: usize = 32 << 20;
/// Bytes of one event that are looked at.
const MAX_TEXT: usize = 64 * 1024;
/// Events that are read at once.
const PART: usize = 200;
/// Bytes that are shown around the text that was found.
const SHOWN_BEFORE: usize = 120;
const SHOWN_AFTER: usize = 400;
/// Events before the one that a link leads to.
const BEFORE: u64 = 10;

/// An event with the text, and where in its own text.
struct TextMatch {
    event: Event,
    text: String,
    at: usize,
}

/// What was found, and how far it was looked.
struct FoundTexts {
    matches: Vec<TextMatch>,
    /// The number to go on from; `None`: that was all.
    next: Option<u64>,
}

/// The field to search in.
pub(super) fn form(page: &PageContext, id: &str, wanted: &str) -> Markup {
    html! {
        form class="filters" role="search" method="get" action=(page.link(&format!("tasks/{id}/transcript"))) {
            label { span { "Text in the events" } input name="text" value=(wanted) spellcheck="false" autocomplete="off" data-search; }
            button class="button" { "Search" }
        }
    }
}

/// The page of what was found.
pub(super) async fn show(
    call: &ApiCall,
    page: &PageContext,
    task: TaskId,
    wanted: &str,
    after: u64,
) -> Result<Answer, RequestError> {
    let id = task.to_string();
    let address = format!("tasks/{id}/transcript");
    let FoundTexts { matches, next } = search(call, task, wanted, after).await?;
    let main = html! {
        h1 { "Events of " a href=(page.link(&format!("tasks/{id}"))) { (short(&id)) } }
        (form(page, &id, wanted))
        p class="quiet" {
            (counted(matches.len(), "event")) @if matches.len() == 1 { " has" } @else { " have" } " this text"
            @if after > 0 { " behind event " (after) }
            @if let Some(next) = next { ", up to event " (next) } "." " "
            a href=(page.link(&address)) { "Show all events" }
        }
        ol id="found" class="events" { @for found in &matches { (one(page, &address, wanted, found)) } }
        @if let Some(next) = next.map(|next| next.to_string()) {
            p { a class="button" rel="next" href=(page.link(&with_query(&address, &[("text", wanted), ("after", &next)]))) { "Go on" } }
        }
    };
    Ok(page.page(&format!("Events of {}", short(&id)), TASKS_CHANGE, &main))
}

async fn search(call: &ApiCall, task: TaskId, wanted: &str, after: u64) -> Result<FoundTexts, RequestError> {
    let (mut matches, mut position, mut events, mut bytes) = (Vec::new(), after, 0, 0);
    while events < MAX_EVENTS && bytes < MAX_BYTES {
        let query = EventQuery { kinds: KINDS, after: position, limit: PART, text_bytes: MAX_TEXT };
        let part = call.store().read_events(task, query).await?;
        if part.is_empty() {
            return Ok(FoundTexts { matches, next: None });
        }
        for event in part {
            (position, events) = (event.number, events + 1);
            let text = text(&event.body);
            bytes += text.len();
            if let Some(at) = find(&text, wanted) {
                matches.push(TextMatch { event, text, at });
                if matches.len() as u64 >= PAGE {
                    return Ok(FoundTexts { matches, next: Some(position) });
                }
            }
        }
    }
    Ok(FoundTexts { matches, next: Some(position) })
}

/// Where a text begins in another one. ASCII letters are found in both cases.
fn find(text: &str, wanted: &str) -> Option<usize> {
    text.as_bytes().windows(wanted.len().max(1)).position(|part| part.eq_ignore_ascii_case(wanted.as_bytes()))
}

fn one(page: &PageContext, address: &str, wanted: &str, found: &TextMatch) -> Markup {
    let TextMatch { event, text, at } = found;
    let (before, rest) = text.split_at(*at);
    let (hit, rest) = rest.split_at(wanted.len());
    let from = (before.len().saturating_sub(SHOWN_BEFORE)..).find(|from| before.is_char_boundary(*from));
    let (before, shown) = (&before[from.unwrap_or(0)..], ostler_core::beginning(rest, SHOWN_AFTER));
    let after = event.number.saturating_sub(BEFORE + 1).to_string();
    let place = format!("{}#e{}", with_query(address, &[("after", &after)]), event.number);
    html! {
        li class={ "event " (class(&event.body)) } data-key=(event.number) {
            div class="meta" { a href=(page.link(&place)) { (event.number) } " " span { (line(&label(&event.body))) } " " (time::at(event.at.into())) }
            pre { @if from > Some(0) { "… " } (visible_lines(before)) mark { (visible_lines(hit)) } (visible_lines(shown)) @if shown.len() < rest.len() { " …" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_both_cases_at_its_place() {
        assert_eq!(find("é, Parser", "parser"), Some("é, ".len()));
        assert_eq!(find("é, Parser", "é"), Some(0));
        assert_eq!(find("short", "longer than it"), None);
    }
}
