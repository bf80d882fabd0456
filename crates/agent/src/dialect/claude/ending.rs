//! Why claude ended: its result line, the error message before it, and what it writes to standard error when it does not even start.

use ostler_core::Timestamp;
use serde_json::Value;

use crate::ending::{AgentAnswer, SaidReason, Trouble};
use crate::json::{list, text, whole};
use crate::reason::Reason;
use crate::reset::from_seconds;
use crate::settings::Denials;

/// A message that claude wrote itself about an error.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    pub(super) text: String,
    class: String,
    pub(super) resets_at: Option<Timestamp>,
}

impl ApiError {
    pub(super) fn of(line: &Value, message: &Value) -> Option<Self> {
        let class = text(line, "error")?.to_owned();
        let blocks = list(message, "content").iter().filter_map(|block| text(block, "text"));
        let info = line.get("api_error_params").and_then(|params| params.get("rate_limit_info"));
        Some(Self {
            text: blocks.collect::<Vec<_>>().join("\n"),
            class,
            resets_at: info.and_then(|info| whole(info, "resetsAt")).and_then(from_seconds),
        })
    }
}

/// A result line.
#[derive(Clone, Debug)]
pub(super) struct TurnResult {
    subtype: String,
    pub(super) is_error: bool,
    pub(super) text: String,
    errors: String,
    /// Why the turn ended.
    terminal: String,
    stop: String,
    api_error: String,
    http_status: Option<u64>,
    structured: Option<String>,
    denied: Vec<String>,
}

impl TurnResult {
    pub(super) fn of(value: &Value) -> Self {
        let word = |name| text(value, name).unwrap_or_default().to_owned();
        let errors = list(value, "errors").iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
        let subtype = word("subtype");
        let is_error = value.get("is_error").and_then(Value::as_bool);
        let denied = list(value, "permission_denials").iter().filter_map(|one| text(one, "tool_name"));
        Self {
            is_error: is_error.unwrap_or(subtype != "success"),
            subtype,
            text: word("result"),
            errors,
            terminal: word("terminal_reason"),
            stop: word("stop_reason"),
            api_error: word("api_error"),
            http_status: whole(value, "api_error_status"),
            structured: value.get("structured_output").filter(|value| !value.is_null()).map(Value::to_string),
            denied: denied.map(str::to_owned).collect(),
        }
    }

    /// What it says of an error.
    pub(super) fn message(&self) -> String {
        let said = [&self.text, &self.errors].into_iter().find(|text| !text.is_empty());
        said.cloned().unwrap_or_else(|| format!("it ended with {}", self.subtype))
    }
}

/// The answer or the trouble behind the last result. `schema` is what was asked for.
pub(super) fn judge(
    result: TurnResult,
    error: Option<&ApiError>,
    resets_at: Option<Timestamp>,
    schema: Option<&str>,
    denials: Denials,
) -> Result<AgentAnswer, Trouble> {
    if result.is_error {
        let reason = reason(&result, error, resets_at);
        if reason == Reason::Interrupted {
            // What it says of that is for its own developers.
            let trouble = Trouble::new(reason, "it was interrupted");
            return Err(Trouble { details: Some(result.message()), ..trouble });
        }
        return Err(Trouble::new(reason, result.message()));
    }
    if !result.denied.is_empty() && denials == Denials::Fail {
        let message = format!("it was not allowed to use {}", result.denied.join(", "));
        return Err(Trouble::new(Reason::PermissionDenied, message));
    }
    // A model that will not fill in the schema is reported as a success, without the key.
    if schema.is_some() && result.structured.is_none() {
        let mut trouble =
            Trouble::new(Reason::Schema, "the answer does not have the form that the schema asks for");
        trouble.details = Some(result.text);
        return Err(trouble);
    }
    Ok(AgentAnswer { text: result.text, structured: result.structured, denied: result.denied })
}

fn reason(result: &TurnResult, error: Option<&ApiError>, resets_at: Option<Timestamp>) -> Reason {
    match result.subtype.as_str() {
        "error_max_turns" => return Reason::TurnLimit,
        "error_max_budget_usd" => return Reason::Budget,
        "error_max_structured_output_retries" => return Reason::Schema,
        "error_during_execution" if is_unknown_session(&result.errors) => return Reason::UnknownSession,
        _ => {}
    }
    match result.terminal.as_str() {
        "prompt_too_long" => return Reason::ContextTooLong,
        "max_turns" => return Reason::TurnLimit,
        "budget_exhausted" => return Reason::Budget,
        "aborted_tools" | "aborted_streaming" => return Reason::Interrupted,
        "blocking_limit" => return Reason::UsageLimit { resets_at },
        _ => {}
    }
    match result.api_error.as_str() {
        "usage_limit_reached" => return Reason::UsageLimit { resets_at },
        "connection_failed" => return Reason::BrokenStream,
        "max_output_tokens" => return Reason::OutputLimit,
        _ => {}
    }
    let message = result.message();
    if result.stop == "refusal" {
        return Reason::Refused;
    }
    let of_status = result.http_status.map(Reason::of_status);
    match error.map(|error| error.class.as_str()) {
        Some("rate_limit") if message.contains("billing") => Reason::Billing,
        // Without these it is only too fast.
        Some("rate_limit") if resets_at.is_some() || message.contains("hit your") => {
            Reason::UsageLimit { resets_at }
        }
        Some("rate_limit") => Reason::Throttled,
        Some("overloaded") => Reason::Overloaded,
        Some("server_error") => of_status.unwrap_or_else(|| transport(&message)),
        Some("authentication_failed") => Reason::BadCredentials,
        Some("billing_error") => Reason::Billing,
        Some("model_not_found") => Reason::BadRequest,
        Some("max_output_tokens") => Reason::OutputLimit,
        Some("invalid_request") if message.contains("too long") => Reason::ContextTooLong,
        Some("invalid_request") => Reason::BadRequest,
        _ => of_status.unwrap_or_else(|| transport(&message)),
    }
}

/// An error without a status: the answer did not come, or was no answer.
fn transport(message: &str) -> Reason {
    let signs = ["JSON", "malformed", "Connection", "connection", "stream", "timed out", "socket", "network"];
    if signs.iter().any(|sign| message.contains(sign)) { Reason::BrokenStream } else { Reason::Unknown }
}

fn is_unknown_session(text: &str) -> bool {
    text.contains("No conversation found") || text.contains("does not match any session")
}

/// Why it did not start.
pub(super) fn by_stderr(stderr: &str) -> Option<SaidReason> {
    let line = stderr.lines().find(|line| line.starts_with("Error") || is_unknown_session(line))?;
    let reason = if is_unknown_session(line) {
        Reason::UnknownSession
    } else if line.contains("is already in use") {
        Reason::SessionInUse
    } else {
        Reason::BadSettings
    };
    Some((reason, line.to_owned()))
}
