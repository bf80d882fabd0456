//! The dialect of the Agent Client Protocol (ACP), version 1: JSON-RPC 2.0 in lines over standard input and output.
//!
//! Gemini CLI and opencode are presets of it; any other agent is a `command`. See `docs/decisions/0034-acp.md`.
//!
//! - `client.rs`: the dialogue. `messages.rs`: its messages. `updates.rs`: what an agent tells of its work. `tools.rs`: its tools.
//! - `permission.rs`: answers to what it asks. `ledger.rs`: what it costs. `ending.rs`: why it ended.
//! - `plan.rs`: how it is started. `opencode_log.rs`: model requests that opencode tells only in its log.

mod client;
mod ending;
mod ledger;
mod messages;
mod opencode_log;
mod permission;
mod plan;
mod tools;
mod updates;

pub(super) use client::AcpClient;
pub(super) use plan::{NO_RELAUNCH, plan};

/// The agent at the other end. The protocol is the same; some of what they do around it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcpAgent {
    Gemini,
    OpenCode,
    /// An agent of which nothing is known.
    Other,
}
