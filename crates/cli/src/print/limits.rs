//! Queues, their limits and their breakers, for people.

use std::fmt::Write as _;
use std::time::Duration;

use ostler_core::Timestamp;
use ostler_wire::limits::{BreakerRule, BreakerView, QueueView, RateView, SubscriberView, ThrottleView};
use ostler_wire::time::TimeView;

use super::Looks;
use super::cost;
use super::table::{Cell, Paint, Table};
use super::visible;
use super::when;

/// The queues, with what throttles them.
pub(crate) fn queues(views: &[QueueView], now: Timestamp, looks: Looks) -> String {
    if views.is_empty() {
        return "no queues yet\n".to_owned();
    }
    let mut table = Table::new(&["QUEUE", "QUEUED", "RUNNING", "FAILED", "THROTTLED"]);
    for view in views {
        let tasks = &view.tasks;
        table.row(vec![
            view.queue.as_str().into(),
            tasks.queued.to_string().into(),
            (tasks.claimed + tasks.running).to_string().into(),
            tasks.failed.to_string().into(),
            Cell::painted(stands(view, now, looks), Paint::Bad),
        ]);
    }
    table.render(looks)
}

fn stands(view: &QueueView, now: Timestamp, looks: Looks) -> String {
    let paused = view.paused.as_ref().map(|reason| format!("paused: {reason}"));
    let held = view.held.as_ref().map(|held| held_back(held, now, looks));
    let keys = match view.keys.len() {
        0 => None,
        1 => Some("1 key".to_owned()),
        many => Some(format!("{many} keys")),
    };
    [paused, held, keys].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The throttle, and when it ends.
pub(super) fn held_back(held: &ThrottleView, now: Timestamp, looks: Looks) -> String {
    format!("{}{}", held.waits_for, until(held.until, now, looks))
}

pub(super) fn until(moment: Option<TimeView>, now: Timestamp, looks: Looks) -> String {
    moment.map_or_else(String::new, |moment| {
        format!(" until {} ({})", when::moment(moment, looks), when::from(now, moment.timestamp()))
    })
}

/// A queue, its limits and their state.
pub(crate) fn queue(view: &QueueView, now: Timestamp, looks: Looks) -> String {
    let tasks = &view.tasks;
    let number = |number: Option<u32>| number.map(|number| format!("{number} at once"));
    let lines = [
        ("queue", Some(visible(&view.queue))),
        (
            "tasks",
            Some(format!("{} queued, {} claimed, {} running", tasks.queued, tasks.claimed, tasks.running)),
        ),
        ("paused", view.paused.as_deref().map(visible)),
        ("throttled", view.held.as_ref().map(|held| held_back(held, now, looks))),
        ("queue limit", view.queue_limit.map(|limit| format!("at most {limit} waiting tasks"))),
        ("account", view.account.as_deref().map(visible)),
        ("limit key", view.key.as_deref().map(visible)),
        ("cost", view.cost.as_deref().map(visible)),
        ("priority", (view.priority != "aging").then(|| view.priority.to_owned())),
        (
            "keys held",
            (view.key_until != "removed").then(|| format!("until the {} of the task", view.key_until)),
        ),
        ("concurrency", number(view.concurrency)),
        ("  per key", number(view.key_concurrency)),
        ("rate", rates(&view.rate)),
        ("  per key", rates(&view.key_rate)),
        ("breaker", view.breaker.as_ref().map(rule)),
        (
            "  state",
            view.breaker_state.map(|breaker| breaker_state(breaker.state, breaker.until, now, looks)),
        ),
        ("pool", view.pool.as_deref().map(visible)),
        ("subscribers", subscribers(&view.subscribers)),
    ];
    let budget = view.budget.iter().flat_map(cost::budget);
    let mut text = String::new();
    for (name, value) in lines.into_iter().chain(budget).filter_map(|(name, value)| Some((name, value?))) {
        let _ = writeln!(text, "{name:<12} {value}");
    }
    if !view.keys.is_empty() {
        let mut table = Table::new(&["KEY", "WAITS FOR", "UNTIL", "BREAKER"]);
        for key in &view.keys {
            table.row(vec![
                key.key.as_str().into(),
                key.waits_for.into(),
                until(key.until, now, looks).trim_start_matches(" until ").into(),
                key.breaker_state.map_or("-", |state| state.state).into(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render(looks));
    }
    text
}

fn subscribers(all: &[SubscriberView]) -> Option<String> {
    let shown = all.iter().map(|one| format!("{} ({})", visible(&one.name), one.wants.join(", ")));
    (!all.is_empty()).then(|| shown.collect::<Vec<_>>().join("; "))
}

fn rates(rates: &[RateView]) -> Option<String> {
    let one = |rate: &RateView| format!("{} per {}, burst {}", rate.amount, long(rate.per_ms), rate.burst);
    (!rates.is_empty()).then(|| rates.iter().map(one).collect::<Vec<_>>().join("; "))
}

fn rule(rule: &BreakerRule) -> String {
    let trip = match (rule.failures, rule.share, rule.at_least) {
        (Some(failures), _, _) => format!("opens after {failures} failures in a row"),
        (None, share, at_least) => format!(
            "opens when {} % of at least {} attempts within {} have failed",
            (share.unwrap_or_default() * 100.0).round(),
            at_least.unwrap_or_default(),
            long(rule.window_ms.unwrap_or_default())
        ),
    };
    let each = if rule.per == "key" { ", for each limit key" } else { "" };
    format!("{trip}{each}; one task is tried after {}", long(rule.reset_ms))
}

fn long(ms: i64) -> String {
    when::long(Duration::from_millis(ms.unsigned_abs()))
}

fn breaker_state(state: &str, ends: Option<TimeView>, now: Timestamp, looks: Looks) -> String {
    let open = match (state, ends) {
        ("open", None) => " until it is reset".to_owned(),
        _ => until(ends, now, looks),
    };
    format!("{state}{open}")
}

pub(crate) fn breakers(views: &[BreakerView], now: Timestamp, looks: Looks) -> String {
    if views.is_empty() {
        return "there are no breakers\n".to_owned();
    }
    let mut table = Table::new(&["QUEUE", "KEY", "CALL", "STATE", "RULE"]);
    for view in views {
        let stands = view
            .state
            .map_or_else(|| "per key".to_owned(), |state| breaker_state(state, view.until, now, looks));
        let paint = if matches!(view.state, Some("closed")) { Paint::Good } else { Paint::Bad };
        table.row(vec![
            view.queue.as_deref().unwrap_or("-").into(),
            view.key.as_deref().unwrap_or("-").into(),
            view.call.as_deref().unwrap_or("-").into(),
            Cell::painted(stands, if view.state.is_none() { Paint::Plain } else { paint }),
            match (&view.breaker, &view.call) {
                (Some(known), _) => rule(known),
                (None, Some(_)) => "set by the handler".to_owned(),
                (None, None) => "opened by hand".to_owned(),
            }
            .into(),
        ]);
    }
    table.render(looks)
}

pub(crate) fn breaker(view: &BreakerView, now: Timestamp, looks: Looks) -> String {
    let queue = view.queue.as_deref().unwrap_or_default();
    let whose = match &view.key {
        None => visible(queue),
        Some(key) => format!("{} of {}", visible(key), visible(queue)),
    };
    let state = breaker_state(view.state.unwrap_or("closed"), view.until, now, looks);
    format!("the breaker of {whose} is {state}\n")
}
