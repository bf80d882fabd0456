//! Dead letters, grouped by queue, kind and error, so that one cause is one line: each group is replayed or dropped as a whole.

use std::collections::BTreeMap;

use maud::html;
use ostler_core::{StateName, Task};
use ostler_ops::input::filter;
use ostler_store::views::{Cursor, ListOrder};

use super::layout::{PageContext, PageView, TASKS_CHANGE, with_query};
use super::overview::task_address;
use super::parts::button::{ActionButton, menu};
use super::parts::{counted, line, short, time};
use super::tasks::{ListConditions, cursor, gather, progress, same_by_command};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

/// Dead letters that are grouped, the newest first.
const MAX_GROUPED: usize = 2_000;
/// Examples of a group.
const EXAMPLES: usize = 3;
/// Bytes of a message that tell a group; longer ones differ at their end by an id or an address.
const MESSAGE_BYTES: usize = 160;

struct LetterGroup<'t> {
    tasks: Vec<&'t Task>,
    message: String,
}

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Dead, "dead");
    let conditions = ListConditions::of(&call.query);
    let mut input = conditions.input();
    input.state = Some(StateName::Failed.name().to_owned());
    let wanted = filter(input, ListOrder::NewestFirst)?;
    let from = cursor(&call)?;
    let (letters, next) =
        gather(|next, most| call.store().list(wanted.clone(), next, most), from, MAX_GROUPED).await?;
    let mut groups: BTreeMap<(String, String, &str, String), LetterGroup<'_>> = BTreeMap::new();
    for task in &letters {
        let (class, message) = task
            .last_failure
            .as_ref()
            .map_or(("none", String::new()), |failure| (failure.class.name(), failure.message.clone()));
        let key = (task.queue.clone(), task.kind.clone(), class, fingerprint(&message));
        groups.entry(key).or_insert_with(|| LetterGroup { tasks: Vec::new(), message }).tasks.push(task);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.tasks.len()));
    let main = html! {
        h1 { "Dead letters" }
        p {
            (summary(letters.len(), groups.len(), next)) @if from.is_some() { " Newer ones are left out." }
            @if from.is_some() || !conditions.0.is_empty() { " " a href="dead" { "Show all" } }
        }
        (progress(&page, &call.app.bulk.list()))
        @if groups.is_empty() && next.is_none() { p class="fine" { "✓ There is none." } }
        @for ((queue, kind, class, _), group) in &groups {
            @let newest = group.tasks.first();
            @let words = common_words(&group.message);
            section class="group" data-key=(format!("{queue}\u{1f}{kind}\u{1f}{class}\u{1f}{}", fingerprint(&group.message))) {
                h2 { span class="count" { (group.tasks.len()) } " " (line(queue)) " · " (line(kind)) " · " span class="bad" { (class) } }
                pre class="error" { (line(ostler_core::beginning(&group.message, 400))) }
                p class="quiet" { "Newest: "
                    @for task in group.tasks.iter().take(EXAMPLES) { @let id = task.id.to_string(); a class="id" href=(page.link(&task_address(&id))) { (short(&id)) } " " }
                    @if let Some(at) = newest.and_then(|task| task.last_failure_at) { (time::at(at.into())) }
                    " · " a href=(page.link(&with_query("tasks", &[("state", "failed"), ("queue", queue), ("kind", kind), ("class", class), ("text", &words)]))) { "list them" }
                }
                (menu(&page, &format!("{queue}-{kind}-{words}"), &[
                    group_action("replay", "Replay the group", queue, kind, class, &words),
                    group_action("drop", "Drop the group", queue, kind, class, &words),
                ]))
            }
        }
        @if let Some(next) = next.map(|next| next.to_string()) {
            @let pairs = [conditions.pairs(), vec![("cursor", &*next)]].concat();
            p { a class="button" rel="next" href=(with_query("dead", &pairs)) { @if letters.is_empty() { "Go on" } @else { "Older dead letters" } } }
        }
        p class="quiet" { "The same in a terminal: " (same_by_command("ostler dead ls", &conditions)) }
    };
    Ok(page.page("Dead letters", TASKS_CHANGE, &main))
}

/// How many there are, as far as was looked.
fn summary(letters: usize, causes: usize, next: Option<Cursor>) -> String {
    let by = counted(causes, "cause");
    match (letters, next) {
        (0, Some(_)) => "Looked at the newest of them and found none yet.".to_owned(),
        (_, Some(_)) => format!("{letters} or more tasks have failed for good, by {by}."),
        (1, None) => format!("1 task has failed for good, by {by}."),
        (_, None) => format!("{letters} tasks have failed for good, by {by}."),
    }
}

fn group_action(
    action: &str,
    label: &str,
    queue: &str,
    kind: &str,
    class: &str,
    words: &str,
) -> ActionButton {
    let mut fields = vec![("s:action", action), ("f:queue", queue), ("f:kind", kind)];
    if class != "none" {
        fields.push(("f:class", class));
    }
    if !words.is_empty() {
        fields.push(("f:text", words));
    }
    ActionButton::new("tasks.act", label, &fields)
}

/// What tells one cause from another: the message without its numbers.
fn fingerprint(message: &str) -> String {
    let text: String = ostler_core::beginning(message, MESSAGE_BYTES)
        .chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .collect();
    let mut short = String::new();
    for c in text.chars() {
        if c != '#' || !short.ends_with('#') {
            short.push(c);
        }
    }
    short
}

/// The longest part of a message that all of its group have: between its numbers.
fn common_words(message: &str) -> String {
    let message = ostler_core::beginning(message, MESSAGE_BYTES);
    let parts = message.split(|c: char| c.is_ascii_digit() || c.is_control());
    parts.map(str::trim).max_by_key(|part| part.len()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_are_one_cause() {
        assert_eq!(fingerprint("port 80: refused"), fingerprint("port 8443: refused"));
        assert_ne!(fingerprint("port 80: refused"), fingerprint("port 80: timeout"));
        assert_eq!(common_words("job 17: connection refused by 10.0.0.1"), ": connection refused by");
    }
}
