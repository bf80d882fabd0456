//! Why codex ended: `codexErrorInfo` where there is one, and the sentences that it writes where there is none.

use ostler_core::Timestamp;
use serde_json::Value;

use crate::ending::{AgentAnswer, AgentEnd, ProcessEnd, SaidReason, Terminal, Trouble, conclude};
use crate::json::{text, whole};
use crate::reason::Reason;
use crate::reset::from_sentence;

/// The reason and the message of an error. `reset` is what fields said of the time when a limit resets; a sentence may have it too.
pub(super) fn trouble(
    message: &str,
    info: Option<&Value>,
    reset: Option<Timestamp>,
    end: &ProcessEnd<'_>,
) -> Trouble {
    let said = by_sentence(message);
    // A spent quota has the same code as a usage limit, and does not reset.
    let of_info = info.and_then(by_info).filter(|_| said != Reason::Billing);
    let mut reason = of_info.unwrap_or(said);
    if let Reason::UsageLimit { resets_at } = &mut reason {
        *resets_at = reset.or_else(|| from_sentence(message, end.now, end.zone));
    }
    match body(message).as_ref().and_then(|body| text(body, "message")) {
        // The body of an answer stands for a message: it goes to the details.
        Some(said) => Trouble { details: Some(message.to_owned()), ..Trouble::new(reason, said) },
        None => Trouble::new(reason, message),
    }
}

/// `codexErrorInfo`: a word, or a word with a status. `None` where the sentence may say more.
fn by_info(info: &Value) -> Option<Reason> {
    let (word, status) = match info {
        Value::String(word) => (word.as_str(), None),
        Value::Object(fields) => {
            let (word, details) = fields.iter().next()?;
            (word.as_str(), whole(details, "httpStatusCode"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    match word {
        "contextWindowExceeded" => Some(Reason::ContextTooLong),
        "sessionBudgetExceeded" => Some(Reason::Budget),
        "usageLimitExceeded" => Some(Reason::UsageLimit { resets_at: None }),
        "unauthorized" => Some(Reason::BadCredentials),
        "serverOverloaded" => Some(Reason::Overloaded),
        "internalServerError" => Some(Reason::ServerError),
        "httpConnectionFailed"
        | "responseStreamConnectionFailed"
        | "responseStreamDisconnected"
        | "responseTooManyFailedAttempts" => Some(status.map_or(Reason::BrokenStream, Reason::of_status)),
        _ => None,
    }
}

/// Sentences, with both sorts of apostrophe.
fn by_sentence(message: &str) -> Reason {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&["hit your usage limit"]) {
        return Reason::UsageLimit { resets_at: None };
    }
    if has(&["Quota exceeded", "insufficient_quota", "billing", "Billing"]) {
        return Reason::Billing;
    }
    if has(&["context_length_exceeded", "prompt is too long", "context window", "exceeds the maximum length"])
    {
        return Reason::ContextTooLong;
    }
    if has(&["max_output_tokens"]) {
        return Reason::OutputLimit;
    }
    if has(&["content_filter", "content policy"]) {
        return Reason::Refused;
    }
    if has(&["Missing environment variable", "Not logged in", "not logged in"]) {
        return Reason::BadCredentials;
    }
    if has(&["at capacity", "overloaded"]) {
        return Reason::Overloaded;
    }
    if let Some(status) = status(message) {
        return Reason::of_status(status);
    }
    if has(&["stream disconnected", "error sending request", "timed out"]) {
        return Reason::BrokenStream;
    }
    if body(message).is_some_and(|body| text(&body, "type") == Some("invalid_request_error")) {
        return Reason::BadRequest;
    }
    Reason::Unknown
}

/// The trouble behind an error after which codex tries again, if that is no use: a key that is refused stays refused.
pub(super) fn hopeless(message: &str) -> Option<Trouble> {
    let reason = by_sentence(message);
    (reason == Reason::BadCredentials).then(|| Trouble::new(reason, message))
}

/// "unexpected status 401 Unauthorized: …" and "…, last status: 429 Too Many Requests".
fn status(message: &str) -> Option<u64> {
    let after = ["unexpected status ", "last status: "].iter().find_map(|before| message.split_once(before));
    after?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The error of an answer's body, where that is the message.
fn body(message: &str) -> Option<Value> {
    serde_json::from_str::<Value>(message).ok()?.get("error").cloned()
}

/// The answer of a completed turn.
pub(super) fn answer(text: Option<String>, schema: Option<&str>) -> Result<AgentAnswer, Trouble> {
    // A refusal and an empty answer look the same.
    let Some(text) = text else {
        return Err(Trouble::new(Reason::NoAnswer, "it completed without an answer: it may have refused"));
    };
    if schema.is_none() {
        return Ok(AgentAnswer { text, ..AgentAnswer::default() });
    }
    // The schema is only passed on to the model: an answer that ignores it is not noticed.
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => Ok(AgentAnswer { structured: Some(value.to_string()), text, ..AgentAnswer::default() }),
        Err(error) => {
            let trouble = Trouble::new(Reason::Schema, format!("the answer is not JSON: {error}"));
            Err(Trouble { details: Some(text), ..trouble })
        }
    }
}

/// Signs on standard error that a conversation is not there.
const UNKNOWN_SESSION: [&str; 3] = ["no rollout found", "session not found", "thread not found"];
/// Signs that it rejected its arguments or its config.
const BAD_SETTINGS: [&str; 5] = [
    "Error loading config.toml",
    "error: unexpected argument",
    "error: invalid value",
    "Not inside a trusted directory",
    "Failed to read output schema",
];

/// Why it did not start.
fn by_stderr(stderr: &str) -> Option<SaidReason> {
    let has = |line: &str, signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
    let mut lines = stderr.lines();
    while let Some(line) = lines.next() {
        if has(&line.to_ascii_lowercase(), &UNKNOWN_SESSION) {
            return Some((Reason::UnknownSession, line.to_owned()));
        }
        if has(line, &BAD_SETTINGS) {
            // What is wrong stands on the next line.
            let more = if line.ends_with(':') { lines.next() } else { None };
            return Some((Reason::BadSettings, [line].into_iter().chain(more).collect::<Vec<_>>().join(" ")));
        }
    }
    None
}

/// Joins the end of the turn with that of the process.
pub(super) fn concluded(terminal: Terminal, end: &ProcessEnd<'_>) -> AgentEnd {
    // It says this whenever its input is no terminal.
    let is_said = |line: &&str| !line.starts_with("Reading additional input from stdin");
    let stderr = end.stderr.lines().filter(is_said).collect::<Vec<_>>().join("\n");
    conclude(terminal, &ProcessEnd { stderr: &stderr, ..*end }, by_stderr)
}
