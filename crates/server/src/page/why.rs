//! "Why does it wait?": the state of a task in a sentence, with the next moment and the commands that free it. `throttle.rs` has what holds
//! back a whole queue or limit key.

use maud::{Markup, html};
use ostler_core::{CancelReason, FailReason, Readiness, State, Task, Timestamp, Wait};
use ostler_ops::waiting::{PoolWorkers, waits_for_approval};
use ostler_store::jobs::job_of;
use ostler_store::views::Survey;
use ostler_wire::task::{Detail, FreeingCommand};

use super::layout::PageContext;
use super::overview::task_address;
use super::parts::button::{ActionButton, command};
use super::parts::state::badge;
use super::parts::{counted, line, short, time};
use super::{mend, throttle};

/// The sentence, and the commands that free the task, which [`ostler_ops::waiting`] finds.
pub(super) fn sentence(
    page: &PageContext,
    task: &Task,
    detail: &Detail,
    survey: &Survey,
    others: &[Task],
) -> Markup {
    let id = task.id.to_string();
    let approval = waits_for_approval(others);
    // Buttons with these commands follow, for those who may press them.
    let by_command = |line: String| html! { @if !page.may_change() { p { (command(&line)) } } };
    html! {
        @match task.state {
            State::Queued { readiness, why, run_at } => {
                @match (why, readiness) {
                    (Wait::Dependency, _) => @if let Some(job) = job_of(&task.queue).filter(|_| approval) { (approval_of(page, &job.to_string())) } @else { (dependency(page, detail, others)) },
                    (_, Readiness::Ready) => @if detail.held.is_none() { (ready(task, why, survey)) },
                    (_, Readiness::Parked) => @if detail.held.is_none() { (parked(page, task, survey)) },
                    (_, Readiness::Waiting) => (waiting(detail, why, run_at)),
                }
                @if let Some(held) = detail.held.as_ref().filter(|_| !approval) { (throttle::sentence(page, held, survey)) }
                @for frees in &detail.frees { (free(page, frees)) }
            }
            State::Claimed { .. } => {
                p { "A node has claimed it, and starts an attempt as soon as a worker is free. To see what the workers do: " (command("ostler workers")) }
            }
            State::Running { started_at, .. } => {
                p { "It runs since " (time::at(started_at.into())) @if detail.cancel_requested_at.is_some() { ", and was asked to stop at " (time::maybe(detail.cancel_requested_at)) } ". To follow it: " (command(&format!("ostler logs -f {id}"))) }
            }
            State::Completed { finished_at } => {
                p { "It completed at " (time::at(finished_at.into())) "." }
                (by_command(format!("ostler retry {id} --again")))
            }
            State::Failed { finished_at, reason } => {
                p { "It failed for good at " (time::at(finished_at.into())) ": " (match reason {
                    FailReason::Permanent => "the error was permanent, so it is not retried. Mend the payload or the handler, then replay it.",
                    FailReason::Exhausted => "no attempts are left. When the cause is gone, replay it.",
                    FailReason::Crashes => "it killed its worker too often. When the cause is gone, replay it.",
                    FailReason::NodeDeaths => "too many nodes died while they ran it. When the cause is gone, replay it.",
                    FailReason::Deadline => "its deadline has passed. A replay has no deadline.",
                }) }
                (by_command(format!("ostler dead replay {id}")))
            }
            State::Cancelled { finished_at, reason } => {
                p { "It was cancelled at " (time::at(finished_at.into())) ": " (match reason {
                    CancelReason::Requested => "by hand.",
                    CancelReason::Expired => "it did not start before its not_after. A retry has no such limit.",
                    CancelReason::Dependency => "a task that it depends on did not complete.",
                    CancelReason::Replaced => "the next run of its schedule replaced it.",
                }) }
                (by_command(format!("ostler retry {id}")))
            }
        }
    }
}

/// A button with its command; a visitor who may only look gets the command alone.
pub(super) fn offer(page: &PageContext, button: &ActionButton) -> Markup {
    html! { @if page.may_change() { (button.show(page)) } @else { p { (command(&button.command())) } } }
}

/// What frees the task: a button with its command, or the command alone.
fn free(page: &PageContext, frees: &FreeingCommand) -> Markup {
    let button = mend::labelled(&label(&frees.what), &frees.command);
    html! {
        @match button.filter(|_| page.may_change()) {
            Some(button) => (button.show(page)),
            None => p { (frees.what) ": " (command(&frees.command)) },
        }
    }
}

/// "To let more run" as the label of a button: "Let more run".
fn label(what: &str) -> String {
    let words = what.strip_prefix("To ").or_else(|| what.strip_prefix("For ")).unwrap_or(what);
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

/// It waits for a time.
fn waiting(detail: &Detail, why: Wait, run_at: Timestamp) -> Markup {
    let at = html! { (time::at(run_at.into())) };
    html! {
        @match why {
            Wait::Scheduled => p { "It waits until it is due, at " (at) "." },
            Wait::Retry => p { "Its last attempt failed" @if let Some(error) = &detail.summary.error { " (" (error.class) ": " (line(&error.message)) ")" } ". The next attempt may start at " (at) "." },
            Wait::RateLimited => p { "A service asked for a pause. It goes on at " (at) "." },
            Wait::UsageLimit => p { "The allowance of its account was used up. It goes on at " (at) "." },
            Wait::Concurrency | Wait::BreakerOpen => p { "It waits (" (why.name().replace('_', " ")) "), and is looked at again at " (at) "." },
            Wait::New | Wait::Paused | Wait::Dependency | Wait::Budget | Wait::HandedBack | Wait::LeaseExpired | Wait::Replayed => p { "It goes on at " (at) " (" (why.name().replace('_', " ")) ")." },
        }
    }
}

fn approval_of(page: &PageContext, job: &str) -> Markup {
    html! { p { "It waits for the approval of the pilot of its " a href=(page.link(&format!("jobs/{job}"))) { "job" } "." } }
}

fn dependency(page: &PageContext, detail: &Detail, others: &[Task]) -> Markup {
    let rest = detail.after.len().saturating_sub(others.len());
    html! {
        @if others.is_empty() {
            p { "It waits for another task." }
        } @else {
            p { "It waits for " (counted(detail.after.len(), "task")) " to complete:" }
            ul class="plain" {
                @for other in others {
                    @let id = other.id.to_string();
                    li { (badge(other.state.name().name())) " " a class="id" href=(page.link(&task_address(&id))) { (short(&id)) } " " (line(&other.kind)) }
                }
                @if rest > 0 { li class="quiet" { "and " (rest) " more" } }
            }
        }
    }
}

/// It waits for its limit key.
fn parked(page: &PageContext, task: &Task, survey: &Survey) -> Markup {
    let queue = survey.queues.iter().find(|queue| queue.name == task.queue);
    let most = queue.and_then(|queue| queue.settings.key_concurrency);
    let key = line(task.limit_key.as_deref().unwrap_or_default());
    html! {
        @if let Some(most) = most {
            p { "Of the limit key " strong { (key) } ", " (counted(most, "task")) " may run at once, and as many run. It starts when one of them ends: " a href=(page.link(&super::layout::with_query("tasks", &[("state", "running"), ("queue", &task.queue)]))) { "those that run" } "." }
        } @else {
            p { "It waits for its limit key " strong { (key) } ": it starts when a task of this key ends." }
        }
    }
}

fn ready(task: &Task, why: Wait, survey: &Survey) -> Markup {
    let PoolWorkers { is_served, all, busy, .. } = PoolWorkers::of(survey, &task.queue);
    let lanes = survey.lanes.iter().filter(|lane| lane.queue == task.queue);
    let waiting: u64 = lanes.map(|lane| lane.counts.queued).sum();
    let came = match why {
        Wait::HandedBack => "A node handed it back. ",
        Wait::LeaseExpired => "Its node died, and it was queued again. ",
        Wait::Replayed => "It was replayed. ",
        Wait::Retry => "It is due for its next attempt. ",
        Wait::New
        | Wait::Scheduled
        | Wait::RateLimited
        | Wait::Concurrency
        | Wait::BreakerOpen
        | Wait::Paused
        | Wait::Dependency
        | Wait::Budget
        | Wait::UsageLimit => "",
    };
    html! {
        @if is_served {
            p { (came) "It is ready: the next free worker of the queue takes it. " @if waiting == 1 { "No other task of the queue waits." } @else { (waiting) " tasks of the queue wait, this one included." } @if all > 0 { " " (busy) " of " (counted(all, "worker")) " of its pool " @if busy == 1 { "is" } @else { "are" } " busy." } }
        } @else {
            p { (came) strong { "No running node serves the queue " (line(&task.queue)) "." } " It starts when a node with a pool for it is up." }
        }
    }
}
