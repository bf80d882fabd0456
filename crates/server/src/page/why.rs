//! "Why does it wait?": the state of a task in a sentence, with what frees it.

use maud::{Markup, html};
use ostler_core::{CancelReason, FailReason, Readiness, State, Task, Wait};
use ostler_store::views::Survey;
use ostler_wire::limits::ThrottleView;
use ostler_wire::task::Detail;
use ostler_wire::time::TimeView;

use super::layout::PageContext;
use super::overview::{release, task_address};
use super::parts::button::ActionButton;
use super::parts::{line, short, time};

/// The sentence, and the buttons that free the task.
pub(super) fn sentence(page: &PageContext, task: &Task, detail: &Detail, survey: &Survey) -> Markup {
    let id = task.id.to_string();
    let hasten = |label: &str| ActionButton::new("tasks.retry", label, &[("p:id", &id)]).show(page);
    html! {
        @match task.state {
            State::Queued { readiness, why, run_at } => {
                @if let Some(held) = &detail.held { (throttled(page, held, survey)) }
                @else { @match (why, readiness) {
                    (Wait::Scheduled, Readiness::Waiting) => { p { "It waits until it is due, at " (time::at(run_at.into())) "." } (hasten("Run it now")) }
                    (Wait::Retry, Readiness::Waiting) => {
                        p { "Its last attempt failed" @if let Some(error) = &detail.summary.error { " (" (error.class) ": " (line(&error.message)) ")" } ". The next attempt may start at " (time::at(run_at.into())) "." }
                        (hasten("Retry now"))
                    }
                    (Wait::RateLimited | Wait::UsageLimit, Readiness::Waiting) => { p { "A service asked for a pause. It goes on at " (time::at(run_at.into())) "." } (hasten("Retry now")) }
                    (Wait::Dependency, _) if !detail.after.is_empty() => {
                        p { "It waits for " @for (place, other) in detail.after.iter().enumerate() { @if place > 0 { ", " } a href=(page.link(&task_address(other))) { "task " (short(other)) } } " to complete." }
                    }
                    (Wait::Dependency, _) => p { "It waits for an approval or for another task." },
                    (why, Readiness::Parked) => p { "It waits for its limit key " strong { (line(task.limit_key.as_deref().unwrap_or_default())) } " (" (why.name().replace('_', " ")) "): it starts when a task of this key ends or the key is released." },
                    (why, Readiness::Ready | Readiness::Waiting) => (ready(task, why, survey)),
                } }
            }
            State::Claimed { .. } => p { "A node has claimed it, and starts an attempt as soon as a worker is free." },
            State::Running { started_at, .. } => p { "It runs since " (time::at(started_at.into())) @if detail.cancel_requested_at.is_some() { ", and was asked to stop at " (time::maybe(detail.cancel_requested_at)) } "." },
            State::Completed { finished_at } => p { "It completed at " (time::at(finished_at.into())) "." },
            State::Failed { finished_at, reason } => p { "It failed for good at " (time::at(finished_at.into())) ": " (match reason {
                FailReason::Permanent => "the error was permanent, so it is not retried.",
                FailReason::Exhausted => "no attempts are left.",
                FailReason::Crashes => "it killed its worker too often.",
                FailReason::NodeDeaths => "too many nodes died while they ran it.",
                FailReason::Deadline => "its deadline has passed.",
            }) },
            State::Cancelled { finished_at, reason } => p { "It was cancelled at " (time::at(finished_at.into())) ": " (match reason {
                CancelReason::Requested => "by hand.",
                CancelReason::Expired => "it did not start before its not_after.",
                CancelReason::Dependency => "a task that it depends on did not complete.",
                CancelReason::Replaced => "the next run of its schedule replaced it.",
            }) },
        }
    }
}

fn ready(task: &Task, why: Wait, survey: &Survey) -> Markup {
    let served = survey.workers.iter().any(|at| at.worker.pool == task.queue)
        || survey.queues.iter().any(|queue| queue.name == task.queue && queue.settings.pool.is_some())
        || survey.nodes.iter().any(|node| node.settings.contains(&format!("\"{}\":", task.queue)));
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
        p { (came)
            @if served { "It is ready: the next free worker of the queue takes it. " (waiting) " tasks of the queue wait, this one included." }
            @else { strong { "No running node serves the queue " (line(&task.queue)) "." } " It starts when a node with a pool for it is up: " code class="cmd" { "ostler up" } }
        }
    }
}

fn throttled(page: &PageContext, held: &ThrottleView, survey: &Survey) -> Markup {
    let queue = survey.queues.iter().find(|queue| queue.name == held.queue);
    let paused = queue.and_then(|queue| queue.settings.paused.as_deref()).unwrap_or_default();
    let whose = match &held.key {
        Some(key) => format!("limit key {} of queue {}", line(key), line(&held.queue)),
        None => format!("queue {}", line(&held.queue)),
    };
    let until = |until: Option<TimeView>| html! { @if let Some(until) = until { " It goes on by itself at " (time::at(until)) "." } };
    html! {
        @match held.waits_for {
            "paused" => p { "The " (whose) " is paused (" (line(paused)) "). It starts when the queue is resumed." },
            "breaker_open" => p { "The breaker of the " (whose) " is open, because tasks failed." (until(held.until)) " When the cause is fixed, reset it." },
            "rate_limited" => p { "The rate limit of the " (whose) " is reached." (until(held.until)) },
            "usage_limit" => p { "The allowance of the account of the " (whose) " is used up." (until(held.until)) " " a href=(page.link("#accounts")) { "See the account." } },
            "budget" => p { "The budget of the " (whose) " is spent." (until(held.until)) " To raise it: " code class="cmd" { "ostler queue set " (super::command::word(&held.queue)) " --budget AMOUNT" } },
            "concurrency" => p { "As many tasks of the " (whose) " run as may run at once. It starts when one of them ends." },
            other => p { "The " (whose) " waits: " (other.replace('_', " ")) "." (until(held.until)) },
        }
        @for button in release(held) { (button.show(page)) }
    }
}
