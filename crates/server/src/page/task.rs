//! One task: why it waits or failed, its payload to edit and replay, attempts side by side, process, files, steps, and its conversation.

use std::sync::Arc;

use maud::{Markup, html};
use ostler_core::{TreeProcess, visible_lines};
use ostler_ops::overview::Overview;
use ostler_ops::{tasks, waiting};
use ostler_store::views::{Liveness, Survey};
use ostler_wire::system::WorkerView;
use ostler_wire::task::{AttemptView, Detail, LeaseView, ShownTask};

use super::forms::BACK;
use super::layout::{ANYTHING_CHANGES, PageContext, PageView, segment};
use super::parts::button::{ActionButton, asks, command, field, fold};
use super::parts::state::badge;
use super::parts::{bytes, line, millis, seconds, short, time, usd};
use super::{search, transcript, why};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;
use crate::server::MAX_PROCESSES;

/// The largest text that a page shows whole.
const MAX_SHOWN: usize = 64 * 1024;
/// Attempts side by side.
const MAX_ATTEMPTS: usize = 6;

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let found = tasks::show(call.store(), &call.task()?).await?;
    let task = &found.record.task;
    let id = task.id.to_string();
    let page = PageContext::new(&call, PageView::Tasks, &format!("tasks/{}", segment(call.param("id"))));
    let seen = Overview::take(call.store()).await?;
    let (view, detail) = (&found.view, &found.view.detail);
    let workers = seen.workers(page.now);
    let process = workers.iter().find(|worker| worker.task.as_deref() == Some(id.as_str()));
    let others = waiting::others(call.store(), &found.record.after).await?;
    let events = transcript::read(call.store(), task.id, transcript::after(&call)?).await?;
    let processes = match process.cloned() {
        Some(worker) => {
            let lister = Arc::clone(&call.app.processes);
            tokio::task::spawn_blocking(move || lister.processes(&worker)).await.unwrap_or_default()
        }
        None => Vec::new(),
    };
    let main = html! {
        h1 { (badge(detail.summary.state)) " " (line(&task.kind)) " " span class="id" { (id) } }
        section id="why" class="answer" { (why::sentence(&page, task, detail, &seen.survey, &others)) @if let Some(error) = &detail.summary.error { (failure(error)) } }
        (actions(&page, &id, detail))
        (facts(&page, view, &seen.survey, process.zip(Some(processes.as_slice())), page.now.since(task.created_at).as_secs()))
        (payload(&page, &id, detail.summary.state, &task.payload))
        @if let Some(output) = &task.output { (text_section("output", "Output", output)) }
        (attempts(&page, &id, &detail.attempts))
        @if !detail.steps.is_empty() {
            section id="steps" { h2 { "Steps" } dl class="facts" { @for (name, value) in &detail.steps { dt { (line(name)) } dd { code { (ostler_core::cut(value.as_str(), 2_000)) } } } } }
        }
        @if !view.transitions.is_empty() {
            section id="history" { h2 { "History" } ol class="plain" { @for change in &view.transitions { li { (time::at(change.at)) " " (badge(change.state)) " " (line(&change.why)) @if let Some(at) = change.run_at { " → " (time::at(at)) } } } } }
        }
        section id="conversation" { h2 { "Events" } (search::form(&page, &id, "")) (transcript::events(&page, &id, &events)) }
    };
    Ok(page.page(&format!("{} {}", line(&task.kind), short(&id)), ANYTHING_CHANGES, &main))
}

fn failure(error: &ostler_wire::task::ErrorView) -> Markup {
    html! {
        div class="failure" {
            p { strong { (error.class) } ": " (line(&error.message)) @if let Some(code) = error.exit_code { " (exit code " (code) ")" } @if let Some(step) = &error.step { " in step " (line(step)) } }
            @if let Some(hint) = &error.hint { p { "Hint: " (line(hint)) } }
            @if let Some(details) = &error.details { details data-key="details" { summary { "Details" } pre { (visible_lines(ostler_core::beginning(details, MAX_SHOWN))) } } }
        }
    }
}

fn actions(page: &PageContext, id: &str, detail: &Detail) -> Markup {
    let state = detail.summary.state;
    let one = |operation: &str, label: &str| ActionButton::new(operation, label, &[("p:id", id)]);
    let all = match state {
        "queued" | "claimed" | "running" => vec![one("tasks.cancel", "Cancel")],
        "failed" => vec![one("dead.replay", "Replay"), one("dead.drop", "Drop")],
        "cancelled" => vec![one("tasks.retry", "Retry")],
        _ => vec![ActionButton::new("tasks.retry", "Run a copy", &[("p:id", id), ("t:again", "yes")])],
    };
    html! {
        section id="actions" class="actions" aria-label="Actions" {
            @for button in &all { (button.show(page)) }
            @if matches!(state, "queued" | "claimed" | "running") {
                (fold(page, "amend", "Change its attempts or timeout", &one("tasks.amend", "Amend"), &html! { (field("n:attempts", "attempts", "5")) (field("s:timeout", "timeout of one", "5m")) }))
            } @else if detail.attempts.iter().any(|attempt| attempt.session_id.is_some()) {
                (fold(page, "continue", "Go on with its conversation", &one("tasks.continue", "Continue"), &html! { label for="prompt" { "Prompt" } textarea id="prompt" name="s:prompt" rows="4" required {} }))
            }
            @if !page.may_change() { p class="quiet" { "You may only look." } }
        }
    }
}

fn facts(
    page: &PageContext,
    view: &ShownTask,
    survey: &Survey,
    process: Option<(&WorkerView, &[TreeProcess])>,
    age: u64,
) -> Markup {
    let detail = &view.detail;
    html! {
        dl id="facts" class="facts" {
            dt { "Queue" } dd { a href=(page.link(&super::layout::with_query("tasks", &[("queue", &detail.summary.queue)]))) { (line(&detail.summary.queue)) } }
            @if let Some(key) = &detail.summary.key { dt { "Key" } dd { (line(key)) } }
            @if let Some(key) = &detail.limit_key { dt { "Limit key" } dd { (line(key)) } }
            dt { "Enqueued" } dd { (time::at(detail.summary.created_at)) span class="quiet" { " " (seconds(age)) " ago" } }
            dt { "Priority" } dd { (detail.summary.priority) }
            dt { "Attempts" } dd { (detail.summary.runs) " started, " (detail.summary.failures) " failed" @if let Some(most) = detail.rules.attempts { ", at most " (most) } @if detail.crashes > 0 { ", " (detail.crashes) " crashes" } }
            @if let Some(timeout) = detail.rules.timeout_ms { dt { "Timeout" } dd { (millis(timeout.unsigned_abs())) } }
            @if detail.deadline.is_some() { dt { "Deadline" } dd { (time::maybe(detail.deadline)) } }
            @if let Some(lease) = &detail.lease { dt { "Lease" } dd { (lease_facts(lease, survey)) } }
            @if let Some((worker, processes)) = process {
                dt { "Process" } dd { "worker " (line(&worker.name)) " of pool " (line(&worker.pool)) @if let Some(pid) = worker.pid { ", pid " (pid) } @if let Some(memory) = worker.memory_bytes { ", " (bytes(memory)) } @if let Some(elapsed) = worker.elapsed_s { ", on this task for " (seconds(elapsed)) } ", seen " (time::at(worker.last_seen)) (process_tree(processes)) }
            }
            dt { "In a terminal" } dd { (command(&format!("ostler show {}", detail.summary.id))) }
        }
    }
}

/// What the process of a worker has started; nothing if that is nothing.
fn process_tree(processes: &[TreeProcess]) -> Markup {
    html! {
        @if processes.len() > 1 {
            (process_list(&mut &processes[..], 0))
            @if processes.len() >= MAX_PROCESSES { p class="quiet" { "The first " (MAX_PROCESSES) " processes." } }
        }
    }
}

/// The processes that stand at this depth or below it, up to the first that does not.
fn process_list(rest: &mut &[TreeProcess], depth: usize) -> Markup {
    let mut items = Vec::new();
    while let Some((process, others)) = rest.split_first().filter(|(process, _)| process.depth >= depth) {
        *rest = others;
        let below = process_list(rest, depth + 1);
        items.push(html! { li { (line(&process.name)) span class="quiet" { " pid " (process.pid) ", " (bytes(process.memory_bytes)) } (below) } });
    }
    html! { @if !items.is_empty() { ul class="processes" { @for item in &items { (item) } } } }
}

/// The lease: who has it, and until when. A node renews with each heartbeat, and reports its workers at least as often while one is busy.
fn lease_facts(lease: &LeaseView, survey: &Survey) -> Markup {
    let node = survey.nodes.iter().find(|node| node.session.to_string() == lease.node);
    let seen = node.and_then(|node| {
        let its = survey.workers.iter().filter(|worker| worker.session == node.session);
        its.map(|worker| worker.last_seen).max().map(|seen| (node, seen))
    });
    html! {
        "node " code title=(lease.node) { (short(&lease.node)) } @if let Some(node) = node { " (" (line(&node.name)) ")" } ", token " (lease.token)
        @match node.map(|node| node.liveness) {
            Some(Liveness::Alive) => {},
            Some(Liveness::Overdue) => ". The node is overdue: the task is about to be queued again",
            None => ". The node is gone: the task is about to be queued again",
        }
        @if let Some((node, seen)) = seen { ". Last heard of at " (time::at(seen.into())) "; if nothing more is heard, the lease runs out at " (time::at(seen.after(node.ttl).into())) }
    }
}

/// The payload as it is stored, to the byte; and a field to change it, which is text too: numbers keep every digit.
fn payload(page: &PageContext, id: &str, state: &str, text: &str) -> Markup {
    let replay = match state {
        "failed" => Some("dead.replay"),
        "cancelled" => Some("tasks.retry"),
        _ => None,
    };
    let by_command =
        |operation: &str| ActionButton::new(operation, "", &[("p:id", id)]).command() + " --payload -";
    html! {
        section id="payload" {
            h2 { "Payload" }
            pre class="payload" { (visible_lines(ostler_core::beginning(text, MAX_SHOWN))) }
            @if text.len() > MAX_SHOWN { p class="quiet" { "The first of " (bytes(text.len() as u64)) "." } }
            @if let Some(operation) = replay.map(super::parts::button::row).filter(|_| page.may_change() && text.len() <= MAX_SHOWN) {
                details data-key="edit" {
                    summary { "Edit and replay" }
                    form class="edit" method="post" action=(page.link(&format!("do/{}", operation.id))) data-danger=[asks(operation)] data-about=(operation.summary) {
                        input type="hidden" name="p:id" value=(id);
                        input type="hidden" name=(BACK) value=(page.address);
                        label for="edited" { "New payload, as JSON" }
                        textarea id="edited" name="j:payload" rows="10" spellcheck="false" { "\n" (text) }
                        label class="check" { input type="checkbox" name="t:from_scratch" value="yes"; " from scratch: discard saved steps" }
                        button class="button" { "Replay with this payload" }
                        " " (command(&by_command(operation.id)))
                    }
                }
            }
        }
    }
}

fn text_section(id: &str, title: &str, text: &str) -> Markup {
    html! { section id=(id) { h2 { (title) } pre { (visible_lines(ostler_core::beginning(text, MAX_SHOWN))) } @if text.len() > MAX_SHOWN { p class="quiet" { "The first of " (bytes(text.len() as u64)) "." } } } }
}

fn attempts(page: &PageContext, id: &str, all: &[AttemptView]) -> Markup {
    let shown = &all[all.len().saturating_sub(MAX_ATTEMPTS)..];
    html! {
        @if !all.is_empty() {
            section id="attempts" {
                h2 { "Attempts" @if all.len() > shown.len() { span class="quiet" { " the last " (shown.len()) " of " (all.len()) } } }
                div class="scroll" tabindex="0" role="region" aria-label="Attempts side by side" { table class="aside" {
                    thead { tr { th { span class="hidden" { "What" } } @for attempt in shown { th scope="col" { "Attempt " (attempt.number) } } } }
                    tbody {
                        (line_of("State", shown, |attempt| badge(attempt.state)))
                        (line_of("Started", shown, |attempt| time::at(attempt.started_at)))
                        (line_of("Took", shown, |attempt| html! { @match attempt.duration_ms { Some(took) => (millis(took.unsigned_abs())), None => "…" } }))
                        (line_of("Error", shown, |attempt| html! { @if let Some(error) = &attempt.error { strong { (error.class) } " " (line(&error.message)) } @else { span class="quiet" { "–" } } }))
                        (line_of("Node", shown, |attempt| html! { code title=(attempt.node) { (short(&attempt.node)) } }))
                        (line_of("Worker", shown, |attempt| html! { code title=(attempt.worker) { (short(&attempt.worker)) } }))
                        (line_of("Lease token", shown, |attempt| html! { (attempt.token) }))
                        @if shown.iter().any(|attempt| attempt.cost_usd.is_some()) { (line_of("Cost", shown, |attempt| html! { @if let Some(cost) = attempt.cost_usd { (usd(cost)) @if attempt.cost_estimated { " or more" } } })) }
                        @if shown.iter().any(|attempt| attempt.session_id.is_some()) { (line_of("Conversation", shown, |attempt| html! { @if let Some(session) = &attempt.session_id { code { (line(session)) } } })) }
                        @if shown.iter().any(|attempt| !attempt.files.is_empty()) { (line_of("Files", shown, |attempt| files(page, id, attempt))) }
                        @if shown.iter().any(|attempt| attempt.stdout.is_some()) { (line_of("Last output", shown, |attempt| html! { @if let Some(text) = &attempt.stdout { pre { (visible_lines(ostler_core::beginning(text, 4_096))) } } })) }
                    }
                } }
            }
        }
    }
}

fn line_of(name: &str, all: &[AttemptView], cell: impl Fn(&AttemptView) -> Markup) -> Markup {
    html! { tr { th scope="row" { (name) } @for attempt in all { td { (cell(attempt)) } } } }
}

fn files(page: &PageContext, id: &str, attempt: &AttemptView) -> Markup {
    html! {
        ul class="plain" { @for file in &attempt.files {
            @let path: Vec<String> = file.path.split('/').map(segment).collect();
            li { a download href=(page.link(&format!("api/v1/tasks/{id}/files/{}", path.join("/")))) { (line(&file.path)) } " " span class="quiet" title=(file.sha256) { (bytes(file.size)) } }
        } }
    }
}
