//! What holds back a whole queue or limit key, in a sentence, with until when.

use maud::{Markup, html};
use ostler_store::views::Survey;
use ostler_wire::limits::ThrottleView;
use ostler_wire::time::TimeView;

use super::layout::{PageContext, with_query};
use super::parts::{line, time};

/// The sentence.
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
    }
}
