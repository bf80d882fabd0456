//! Times: in UTC by the server, with the zone named. A script shows them in the zone of the reader, with UTC as the title.

use maud::{Markup, html};
use ostler_core::Timestamp;
use ostler_wire::time::TimeView;

/// A date and a time.
pub(in crate::page) fn at(time: TimeView) -> Markup {
    let text = time.to_string();
    html! { time datetime=(text) title=(text) { (shown(&text)) } }
}

pub(in crate::page) fn maybe(time: Option<TimeView>) -> Markup {
    html! { @match time { Some(time) => (at(time)), None => span class="quiet" { "–" } } }
}

/// Only the time of the day.
pub(in crate::page) fn clock(now: Timestamp) -> Markup {
    let text = TimeView::from(now).to_string();
    html! { time datetime=(text) title=(text) data-clock="" { (shown(&text).split(' ').skip(1).collect::<Vec<_>>().join(" ")) } }
}

/// `2026-08-01 03:00:00 UTC`.
fn shown(text: &str) -> String {
    let (date, rest) = text.split_once('T').unwrap_or((text, ""));
    format!("{date} {} UTC", rest.split('.').next().unwrap_or_default())
}
