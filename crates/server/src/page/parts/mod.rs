//! Components that pages share.

pub(super) mod button;
pub(super) mod state;
pub(super) mod time;

use maud::{Markup, html};
use ostler_core::visible;

/// Letters of an id that are shown in a table. The command line takes them too.
const SHORT_ID: usize = 8;

/// The last letters of an id.
pub(super) fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(SHORT_ID)..).unwrap_or(id)
}

/// A text of users in one line: control characters and marks that turn the direction are shown, not obeyed.
pub(super) fn line(text: &str) -> String {
    visible(text)
}

/// A number with what it counts, for words with a plain plural.
pub(super) fn counted(count: impl TryInto<u64>, one: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// Bytes for people.
pub(super) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Milliseconds for people.
pub(super) fn millis(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} ms"),
        1_000..60_000 => format!("{}.{} s", count / 1_000, count % 1_000 / 100),
        _ => seconds(count / 1_000),
    }
}

/// Seconds for people.
pub(super) fn seconds(count: u64) -> String {
    match count {
        0..60 => format!("{count} s"),
        60..3_600 => format!("{} min {} s", count / 60, count % 60),
        3_600..86_400 => format!("{} h {} min", count / 3_600, count % 3_600 / 60),
        _ => format!("{} d {} h", count / 86_400, count % 86_400 / 3_600),
    }
}

/// Money.
pub(super) fn usd(amount: f64) -> String {
    if amount != 0.0 && amount.abs() < 0.01 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

/// A share of a whole, as a bar with its numbers.
pub(super) fn share(part: f64, whole: f64, label: &str) -> Markup {
    html! { meter min="0" max=(whole.max(part)) value=(part) aria-label=(label) title=(label) {} }
}
