//! Why an agent ended: stop reasons of a turn, and errors of requests, by their code where it says something and by their words elsewhere.

use std::time::Duration;

use serde_json::Value;

use super::messages::{NO_SUCH_METHOD, RpcError};
use crate::ending::{AgentAnswer, ProcessEnd, Trouble};
use crate::json::text;
use crate::reason::Reason;
use crate::reset::from_sentence;

/// "Authentication required." Of JSON-RPC it is any error of a server, and some agents use it so.
const AUTHENTICATION_REQUIRED: i64 = -32_000;
/// What the protocol says with that code: that something is wrong with a login, and not what.
const NO_LOGIN: &str = "authentication required";
/// "Resource not found", such as a session.
const NOT_FOUND: i64 = -32_002;
/// "Rate limited": not in the protocol, but agents say it.
const RATE_LIMITED: i64 = -32_003;
const INVALID_PARAMS: i64 = -32_602;
/// From this wait on, a limit is one of the account.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// The trouble behind an error.
pub(super) fn trouble(error: &RpcError, end: &ProcessEnd<'_>) -> Trouble {
    let message = sentence(error);
    let details = (message != error.message || !error.data.is_null())
        .then(|| format!("code {}: {} {}", error.code, error.message, error.data));
    Trouble { details, ..Trouble::new(reason(error, &message, end), message) }
}

/// Whether an error to the opening of a session says no more than that the session is not there.
pub(super) fn is_about_the_session(error: &RpcError, end: &ProcessEnd<'_>) -> bool {
    matches!(trouble(error, end).reason, Reason::Unknown | Reason::BadRequest | Reason::ServerError)
}

fn reason(error: &RpcError, message: &str, end: &ProcessEnd<'_>) -> Reason {
    let said = by_words(message, end);
    match error.code {
        AUTHENTICATION_REQUIRED => {
            match message.trim_end_matches('.').to_lowercase().strip_prefix(NO_LOGIN) {
                Some("") => Reason::LoginNeeded,
                // A network that breaks when a login is renewed.
                Some(why) if is_broken(why) => Reason::BrokenStream,
                Some(_) | None => said.unwrap_or(Reason::Unknown),
            }
        }
        RATE_LIMITED => said.unwrap_or(Reason::Throttled),
        NO_SUCH_METHOD => Reason::BadSettings,
        NOT_FOUND | INVALID_PARAMS => said.unwrap_or(Reason::BadRequest),
        // Gemini has the status of the provider for a code.
        status @ 400..=599 => said.unwrap_or_else(|| Reason::of_status(status.unsigned_abs())),
        _ => said.unwrap_or(Reason::Unknown),
    }
}

/// What the words of an error say. `None`: nothing that is known.
fn by_words(message: &str, end: &ProcessEnd<'_>) -> Option<Reason> {
    let lower = message.to_lowercase().replace('\u{2019}', "'");
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["usage limit", "hit your", "5-hour limit", "weekly limit"]) {
        return Some(Reason::UsageLimit { resets_at: from_sentence(message, end.now, end.zone) });
    }
    if has(&["billing", "credit balance", "insufficient_quota", "insufficient quota", "payment required"]) {
        return Some(Reason::Billing);
    }
    if has(&[
        "authentication",
        "unauthorized",
        "unauthenticated",
        "api key",
        "api-key",
        "api_key",
        "not logged in",
        "please log in",
    ]) {
        return Some(Reason::BadCredentials);
    }
    if has(&["rate limit", "rate_limit", "too many requests", "resource_exhausted", "quota"]) {
        let wait = retry_after(&lower).filter(|wait| *wait >= LONG_WAIT);
        return Some(match wait {
            Some(wait) => Reason::UsageLimit { resets_at: Some(end.now.after(wait)) },
            None => Reason::Throttled,
        });
    }
    if has(&["too long", "context window", "context length", "context_length", "maximum number of tokens"]) {
        return Some(Reason::ContextTooLong);
    }
    if has(&["content_filter", "content filter", "content policy"]) {
        return Some(Reason::Refused);
    }
    if has(&["overloaded", "unavailable", "at capacity"]) {
        return Some(Reason::Overloaded);
    }
    if has(&["model"]) && has(&["not found", "not exist", "unknown model", "no such model", "not supported"])
    {
        return Some(Reason::BadRequest);
    }
    is_broken(&lower).then_some(Reason::BrokenStream)
}

/// Whether the words, in small letters, are those of a broken connection.
fn is_broken(lower: &str) -> bool {
    [
        "fetch failed",
        "econn",
        "enotfound",
        "eai_again",
        "socket",
        "network",
        "timed out",
        "timeout",
        "incomplete json",
        "connection",
    ]
    .iter()
    .any(|word| lower.contains(word))
}

/// "Suggested retry after 3600s."
fn retry_after(lower: &str) -> Option<Duration> {
    let digits = lower.split_once("retry after ")?.1;
    let digits = &digits[..digits.find('s')?];
    digits.trim().parse().ok().map(Duration::from_secs)
}

/// What an error says. Some agents put the body of an answer into the message, or all that matters into the data.
fn sentence(error: &RpcError) -> String {
    let body = serde_json::from_str::<Value>(&error.message).ok();
    if let Some(said) = body.as_ref().and_then(|body| text(body.get("error")?, "message")) {
        return said.to_owned();
    }
    let details =
        error.data.as_str().or_else(|| text(&error.data, "details")).or_else(|| text(&error.data, "message"));
    let message = if error.message.is_empty() { "an error without a message" } else { &error.message };
    match details {
        Some(details) if details != message => format!("{message}: {details}"),
        Some(_) | None => message.to_owned(),
    }
}

/// The answer of a turn that came to its end.
pub(super) fn answer(text: String, schema: Option<&str>) -> Result<AgentAnswer, Trouble> {
    if schema.is_none() {
        return Ok(AgentAnswer { text, ..AgentAnswer::default() });
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => Ok(AgentAnswer { structured: Some(value.to_string()), text, ..AgentAnswer::default() }),
        Err(error) => {
            let trouble = Trouble::new(Reason::Schema, format!("the answer is not JSON: {error}"));
            Err(Trouble { details: Some(text), ..trouble })
        }
    }
}

/// Why a turn stopped, other than at its end.
pub(super) fn stopped(reason: &str) -> Trouble {
    match reason {
        "max_tokens" => Trouble::new(Reason::OutputLimit, "the answer was longer than the model may write"),
        "max_turn_requests" => {
            Trouble::new(Reason::TurnLimit, "it made as many model requests as it may, and was not done")
        }
        "refusal" => Trouble::new(Reason::Refused, "it refused"),
        "cancelled" => Trouble::new(Reason::Interrupted, "it was interrupted"),
        other => Trouble::new(Reason::Unknown, format!("it stopped for an unknown reason, \"{other}\"")),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use ostler_core::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::ending::{ProcessExit, StopCause};

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn end(zone: &TimeZone) -> ProcessEnd<'_> {
        ProcessEnd { exit: ProcessExit::Code(0), stop: StopCause::None, stderr: "", now: NOW, zone }
    }

    fn of(code: i64, message: &str, data: Value) -> Trouble {
        trouble(&RpcError { code, message: message.into(), data }, &end(&TimeZone::UTC))
    }

    #[test]
    fn the_code_or_the_words_of_an_error_decide_its_reason() {
        let hour = Some(NOW.after(Duration::from_secs(3_600)));
        for (code, message, reason) in [
            (-32_000, "Authentication required", Reason::LoginNeeded),
            (-32_000, "Authentication required.", Reason::LoginNeeded),
            (-32_000, "Authentication required: fetch failed", Reason::BrokenStream),
            (-32_000, "Authentication required: the token has expired", Reason::BadCredentials),
            (-32_000, "Gemini API key is missing or not configured.", Reason::BadCredentials),
            (
                -32_000,
                "request failed, reason: getaddrinfo ENOTFOUND oauth2.example.org",
                Reason::BrokenStream,
            ),
            (-32_000, "Something", Reason::Unknown),
            (-32_003, "Rate limited", Reason::Throttled),
            (-32_602, "Invalid params", Reason::BadRequest),
            (
                401,
                r#"{"error":{"code":401,"message":"invalid x-api-key","status":"UNAUTHENTICATED"}}"#,
                Reason::BadCredentials,
            ),
            (429, "You are too fast.", Reason::Throttled),
            (
                429,
                "It would exceed your rate limit.\nSuggested retry after 3600s.",
                Reason::UsageLimit { resets_at: hour },
            ),
            (400, r#"{"error":{"code":400,"message":"prompt is too long: 9 > 8"}}"#, Reason::ContextTooLong),
            (500, "Incomplete JSON segment at the end", Reason::BrokenStream),
            (500, "Oh no.", Reason::ServerError),
            (-32_603, "Internal error: invalid x-api-key", Reason::BadCredentials),
            (
                -32_603,
                "You exceeded your current quota, please check your plan and billing details.",
                Reason::Billing,
            ),
            (-32_603, "You\u{2019}ve hit your usage limit.", Reason::UsageLimit { resets_at: None }),
            (-32_603, "Internal error", Reason::Unknown),
        ] {
            assert_eq!(of(code, message, Value::Null).reason, reason, "{code} {message}");
        }
    }

    #[test]
    fn what_is_in_the_data_or_in_a_body_is_part_of_the_sentence_and_the_rest_of_the_details() {
        let said = of(-32_603, "Internal error", json!({"details": "no such thing"}));
        assert_eq!(said.message, "Internal error: no such thing");
        assert!(said.details.is_some_and(|details| details.contains("code -32603")));
        let body = of(401, r#"{"error":{"code":401,"message":"a bad key"}}"#, Value::Null);
        assert_eq!(body.message, "a bad key");
    }
}
