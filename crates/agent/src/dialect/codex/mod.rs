//! The dialects of Codex: `codex app-server`, and `codex exec --json`.

mod app_server;
mod ending;
mod exec;
mod items;
mod plan;
mod requests;

pub(super) use app_server::AppServer;
pub(super) use exec::ExecStream;
pub(super) use plan::{plan_app_server, plan_exec};
