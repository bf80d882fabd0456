//! What holds back a whole queue or limit key, in a sentence, with until when and the command that ends it.

use maud::{Markup, html};
use ostler_core::{Rate, show_duration};
use ostler_store::jobs::job_of;
use ostler_store::views::{QueueSettings, Survey};
use ostler_wire::limits::ThrottleView;
use ostler_wire::time::TimeView;

use super::layout::{PageContext, with_query};
use super::overview::release;
use super::parts::button::command;
use super::parts::{line, time};
use super::why::offer;

/// The sentence, and what frees the tasks.
pub(super) fn sentence(page: &PageContext, held: &ThrottleView, survey: &Survey) -> Markup {
    let queue = survey.queues.iter().find(|queue| queue.name == held.queue);
    let settings = queue.map(|queue| queue.settings.clone()).unwrap_or_default();
    let whose = match &held.key {
        Some(key) => format!("limit key {} of queue {}", line(key), line(&held.queue)),
        None => format!("queue {}", line(&held.queue)),
    };
    let until = |until: Option<TimeView>| html! { @if let Some(until) = until { " It goes on by itself at " (time::at(until)) "." } };
    let running = page.link(&with_query("tasks", &[("state", "running"), ("queue", &held.queue)]));
    html! {
        @match held.waits_for {
            "paused" => p { "The " (whose) " is paused (" (line(settings.paused.as_deref().unwrap_or_default())) "). It starts when the queue is resumed." },
            "breaker_open" => p { "The breaker of the " (whose) " is open, because tasks failed." (until(held.until)) " When the cause is fixed, reset it." },
            "rate_limited" => p { "The rate limit of the " (whose) " is reached." (until(held.until)) },
            "usage_limit" => p { "The allowance of the account of the " (whose) " is used up." (until(held.until)) " " a href=(page.link("#accounts")) { "See the account." } },
            "budget" => p { "The budget of the " (whose) " is spent." (until(held.until)) },
            "concurrency" => p { "As many tasks of the " (whose) " run as may run at once. It starts when one of them ends: " a href=(running) { "those that run" } "." },
            other => p { "The " (whose) " waits: " (other.replace('_', " ")) "." (until(held.until)) },
        }
        @if let Some((what, line)) = raise(held, &settings) { p { (what) ": " (command(&line)) } }
        @for button in release(held) { (offer(page, &button)) }
    }
}

/// What would let more run, with twice of the limit.
fn raise(held: &ThrottleView, settings: &QueueSettings) -> Option<(&'static str, String)> {
    let set = |option: &str| format!("ostler queue set {}{option}", super::command::word(&held.queue));
    Some(match held.waits_for {
        "rate_limited" => {
            let (option, rates) = match held.key {
                Some(_) => ("--key-rate", &settings.key_rate),
                None => ("--rate", &settings.rate),
            };
            if rates.is_empty() {
                return None;
            }
            let doubled = rates.iter().map(|rate| format!(" {option} {}", doubled(*rate)));
            ("To let more start", set(&doubled.collect::<String>()))
        }
        "concurrency" => {
            let most = settings.concurrency?;
            ("To let more run", set(&format!(" --concurrency {}", most.saturating_mul(2).max(1))))
        }
        "budget" | "paused" => {
            // A budget that is spent pauses its queue.
            let is_spent = held.waits_for == "budget" || settings.paused.as_deref()?.contains("budget");
            let budget = settings.budget.filter(|_| is_spent)?;
            let line = match (job_of(&held.queue), budget.total, budget.per_day) {
                (Some(job), Some(total), _) => {
                    format!("ostler job resume {job} --max-cost {}", total.usd() * 2.0)
                }
                (None, Some(total), _) => set(&format!(" --budget {}", total.usd() * 2.0)),
                (_, None, Some(day)) => set(&format!(" --budget-per-day {}", day.usd() * 2.0)),
                (_, None, None) => return None,
            };
            ("To go on with twice of it", line)
        }
        "usage_limit" => {
            let account = super::command::word(settings.account.as_deref()?);
            ("To start again at once, if there is an allowance", format!("ostler account release {account}"))
        }
        _ => return None,
    })
}

fn doubled(rate: Rate) -> String {
    format!("{}/{}", rate.amount.saturating_mul(2).max(1), show_duration(rate.per))
}
