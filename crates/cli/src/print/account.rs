//! Accounts, for people.

use std::fmt::Write as _;

use ostler_core::Timestamp;
use ostler_wire::account::{AccountHoldView, AccountUsageView, AccountView};

use super::Looks;
use super::limits::until;
use super::table::{Cell, Paint, Table};
use super::visible;

/// The accounts, with what holds them.
pub(crate) fn accounts(views: &[AccountView], now: Timestamp, looks: Looks) -> String {
    if views.is_empty() {
        return "no queue has an account\n".to_owned();
    }
    let mut table = Table::new(&["ACCOUNT", "QUEUES", "RUNNING", "AT MOST", "USED", "HELD"]);
    for view in views {
        let usage = view.usage.as_ref();
        let near = usage.is_some_and(|usage| usage.near_limit);
        table.row(vec![
            view.account.as_str().into(),
            view.queues.len().to_string().into(),
            view.running.to_string().into(),
            view.most.map_or_else(|| "-".to_owned(), |most| most.to_string()).into(),
            Cell::painted(
                usage.map_or_else(|| "-".to_owned(), percent),
                if near { Paint::Bad } else { Paint::Plain },
            ),
            Cell::painted(
                view.held.as_ref().map(|held| hold(held, now, looks)).unwrap_or_default(),
                Paint::Bad,
            ),
        ]);
    }
    table.render(looks)
}

/// An account in detail.
pub(crate) fn account(view: &AccountView, now: Timestamp, looks: Looks) -> String {
    let queues: Vec<String> = view.queues.iter().map(|queue| visible(queue)).collect();
    let lowered = view.most.filter(|most| view.concurrency != Some(*most));
    let lines = [
        ("account", Some(visible(&view.account))),
        ("queues", Some(if queues.is_empty() { "none".to_owned() } else { queues.join(", ") })),
        ("running", Some(view.running.to_string())),
        ("held", view.held.as_ref().map(|held| hold(held, now, looks))),
        ("concurrency", view.concurrency.map(|most| format!("{most} at once"))),
        ("window", lowered.map(|most| format!("{most} at once, since the provider throttled"))),
        ("usage", view.usage.as_ref().map(|used| usage(used, now, looks))),
    ];
    let mut text = String::new();
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let _ = writeln!(text, "{name:<12} {value}");
    }
    text
}

fn hold(held: &AccountHoldView, now: Timestamp, looks: Looks) -> String {
    let end =
        if held.until.is_none() { " until it is released".to_owned() } else { until(held.until, now, looks) };
    format!("{}:{end}", visible(&held.reason))
}

fn usage(usage: &AccountUsageView, now: Timestamp, looks: Looks) -> String {
    let resets =
        usage.resets_at.map(|_| until(usage.resets_at, now, looks).replacen(" until", ", resets at", 1));
    format!("{} of {}{}", percent(usage), visible(&usage.window), resets.unwrap_or_default())
}

fn percent(usage: &AccountUsageView) -> String {
    format!("{:.0} %", usage.used * 100.0)
}
