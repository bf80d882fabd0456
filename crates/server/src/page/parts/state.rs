//! States, each with a word, a colour and a sign of its own: the colour alone says nothing.

use maud::{Markup, html};

pub(in crate::page) fn badge(state: &str) -> Markup {
    let sign = match state {
        "completed" | "approved" | "closed" | "alive" | "active" | "done" | "idle" => "✓",
        "failed" | "error" | "open" | "node_died" | "overdue" | "unresponsive" | "killed" => "✕",
        "running" | "claimed" | "busy" | "half_open" | "starting" => "▶",
        "cancelled" | "stopped" | "over" => "⊘",
        "paused" | "warning" | "draining" | "unfinished" => "‖",
        _ => "○",
    };
    html! { span class={ "state s-" (state) } { span aria-hidden="true" { (sign) " " } (state.replace('_', " ")) } }
}
