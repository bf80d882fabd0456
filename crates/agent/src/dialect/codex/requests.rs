//! Requests to `codex app-server`, and answers to its own. One JSON object in each line, without the `jsonrpc` field.

use serde_json::{Value, json};

use super::plan::sandbox;
use crate::settings::{AgentSettings, SessionStart};

/// The id of each request. One of each is made.
pub(super) const INITIALIZE: u64 = 0;
pub(super) const THREAD: u64 = 1;
pub(super) const TURN: u64 = 2;
pub(super) const INTERRUPT: u64 = 3;

/// "The method does not exist."
const NO_SUCH_METHOD: i64 = -32_601;

pub(super) fn initialize() -> Value {
    let client = json!({ "name": "ostler", "title": "Ostler", "version": env!("CARGO_PKG_VERSION") });
    json!({ "id": INITIALIZE, "method": "initialize", "params": { "clientInfo": client } })
}

pub(super) fn initialized() -> Value {
    json!({ "method": "initialized" })
}

/// Begins or resumes a conversation. What it may do is part of each request: it is not remembered.
pub(super) fn thread(settings: &AgentSettings) -> Value {
    let mut params = json!({
        "cwd": settings.folder.to_string_lossy(),
        "approvalPolicy": "never",
        "sandbox": sandbox(settings.permission),
    });
    if let Some(model) = &settings.model {
        params["model"] = json!(model);
    }
    let method = match &settings.session {
        SessionStart::New { .. } => "thread/start",
        SessionStart::Resume { id } => {
            params["threadId"] = json!(id);
            // Its history is in the transcripts of earlier attempts.
            params["excludeTurns"] = json!(true);
            "thread/resume"
        }
    };
    json!({ "id": THREAD, "method": method, "params": params })
}

pub(super) fn turn(thread: &str, prompt: &str, schema: Option<&Value>) -> Value {
    let mut params = json!({ "threadId": thread, "input": [{ "type": "text", "text": prompt }] });
    if let Some(schema) = schema {
        params["outputSchema"] = schema.clone();
    }
    json!({ "id": TURN, "method": "turn/start", "params": params })
}

pub(super) fn interrupt(thread: &str, turn: &str) -> Value {
    json!({ "id": INTERRUPT, "method": "turn/interrupt", "params": { "threadId": thread, "turnId": turn } })
}

/// The answer to a request of the server. An approval is refused, since the settings say what is allowed; nothing is left
/// without an answer, since the server would wait for it.
pub(super) fn answer(id: &Value, method: &str) -> Value {
    if method.ends_with("/requestApproval") {
        return json!({ "id": id, "result": { "decision": "decline" } });
    }
    let message = format!("{method} is not supported");
    json!({ "id": id, "error": { "code": NO_SUCH_METHOD, "message": message } })
}
