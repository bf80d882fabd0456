//! Messages of the Agent Client Protocol: what is sent, and the parts that are read of what comes back.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::settings::AgentSettings;

/// The version of the protocol that is spoken.
pub(super) const PROTOCOL_VERSION: u64 = 1;

/// The ids of requests. One of each is made, but for pings.
pub(super) const INITIALIZE: u64 = 0;
pub(super) const SESSION: u64 = 1;
pub(super) const MODEL: u64 = 2;
pub(super) const PROMPT: u64 = 3;
/// The first ping has this id, and each has one more than the last.
pub(super) const FIRST_PING: u64 = 100;

/// "The method does not exist."
pub(super) const NO_SUCH_METHOD: i64 = -32_601;

/// The answer to `initialize`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AcpHello {
    pub(super) protocol_version: Value,
    #[serde(deserialize_with = "or_default")]
    pub(super) agent_capabilities: AcpCapabilities,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AcpCapabilities {
    /// Whether it has `session/load`.
    #[serde(deserialize_with = "or_default")]
    pub(super) load_session: bool,
    #[serde(deserialize_with = "or_default")]
    session_capabilities: SessionCapabilities,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SessionCapabilities {
    resume: Value,
}

impl AcpCapabilities {
    /// Whether it has `session/resume`. Capabilities are objects, empty ones too.
    pub(super) const fn resumes(&self) -> bool {
        matches!(self.session_capabilities.resume, Value::Object(_) | Value::Bool(true))
    }
}

/// The answer to `session/new`, `session/load` and `session/resume`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AcpSession {
    pub(super) session_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    config_options: Vec<ConfigOption>,
    models: Option<AcpModels>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConfigOption {
    id: String,
    category: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AcpModels {
    #[serde(deserialize_with = "or_default")]
    available_models: Vec<Value>,
}

impl AcpSession {
    /// The request that chooses a model, if the agent has one for it.
    pub(super) fn choose(&self, session: &str, model: &str) -> Option<Value> {
        let option = self.config_options.iter().find(|option| option.category.as_deref() == Some("model"));
        if let Some(ConfigOption { id, .. }) = option {
            let params = json!({ "sessionId": session, "configId": id, "value": model });
            return Some(request(MODEL, "session/set_config_option", &params));
        }
        let has_models = self.models.as_ref().is_some_and(|models| !models.available_models.is_empty());
        let params = json!({ "sessionId": session, "modelId": model });
        has_models.then(|| request(MODEL, "session/set_model", &params))
    }
}

/// The answer to `session/prompt`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AcpTurn {
    pub(super) stop_reason: String,
    /// Not in the protocol yet, but some agents have it.
    pub(super) usage: Option<AcpUsage>,
    #[serde(rename = "_meta")]
    pub(super) meta: Value,
}

/// Tokens of a turn. What was read from a cache is not in the input, and what was thought not in the output.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AcpUsage {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) thought_tokens: Option<u64>,
    pub(super) cached_read_tokens: Option<u64>,
    pub(super) cached_write_tokens: Option<u64>,
}

/// What is known of a tool call. An update has only what has changed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AcpToolCall {
    pub(super) tool_call_id: String,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) content: Option<Vec<Value>>,
    pub(super) locations: Option<Vec<Value>>,
    pub(super) raw_input: Option<Value>,
    pub(super) raw_output: Option<Value>,
}

/// `session/request_permission`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PermissionQuestion {
    #[serde(deserialize_with = "or_default")]
    pub(super) tool_call: AcpToolCall,
    #[serde(deserialize_with = "or_default")]
    pub(super) options: Vec<PermissionOption>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PermissionOption {
    pub(super) option_id: String,
    pub(super) kind: String,
}

/// The error of an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
}

/// What is null is as good as missing.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(read: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(read)?.unwrap_or_default())
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// No files and no terminals are offered: an agent has its own.
pub(super) fn initialize() -> Value {
    let params = json!({
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
        "clientInfo": { "name": "ostler", "title": "Ostler", "version": env!("CARGO_PKG_VERSION") },
    });
    request(INITIALIZE, "initialize", &params)
}

/// `session/new`, or with the id of a session `session/load` or `session/resume`.
pub(super) fn open_session(method: &str, session: Option<&str>, settings: &AgentSettings) -> Value {
    let servers: Option<Value> =
        settings.mcp_config.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let mut params = json!({
        "cwd": settings.folder.to_string_lossy(),
        "mcpServers": servers.unwrap_or_else(|| json!([])),
    });
    if let Some(session) = session {
        params["sessionId"] = json!(session);
    }
    request(SESSION, method, &params)
}

/// A request that no agent has. Its answer comes after all that was under way.
pub(super) fn ping(id: u64) -> Value {
    request(id, "_ostler/ping", &json!({}))
}

/// The prompt, and beside it the schema: the protocol has no place of its own for one.
pub(super) fn prompt(session: &str, settings: &AgentSettings) -> Value {
    let mut blocks = vec![json!({ "type": "text", "text": settings.prompt })];
    if let Some(schema) = &settings.schema {
        let text = format!(
            "Answer only with a JSON value that matches this JSON schema, without any other text:\n{schema}"
        );
        blocks.push(json!({ "type": "text", "text": text }));
    }
    request(PROMPT, "session/prompt", &json!({ "sessionId": session, "prompt": blocks }))
}

pub(super) fn cancel(session: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } })
}

/// The answer to a question for permission: the chosen option, or that there is none to choose.
pub(super) fn chosen(id: &Value, option: Option<&PermissionOption>) -> Value {
    let outcome = match option {
        Some(option) => json!({ "outcome": "selected", "optionId": option.option_id }),
        None => json!({ "outcome": "cancelled" }),
    };
    json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } })
}

/// The answer to a request that is not known: nothing is left without one, since the agent would wait for it.
pub(super) fn unsupported(id: &Value, method: &str) -> Value {
    let message = format!("{method} is not supported");
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": NO_SUCH_METHOD, "message": message } })
}
