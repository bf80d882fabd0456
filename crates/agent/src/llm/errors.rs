//! Errors of the APIs, by their type and code, and only then by the status: the same number means different things.

use ostler_core::{beginning, visible};
use serde_json::Value;

use crate::ending::Trouble;
use crate::json::{text, whole};
use crate::reason::Reason;
use crate::reset::from_seconds;

/// Bytes of a body that is no JSON, in a message.
const SHOWN_BYTES: usize = 300;

/// What a body or an event with an error means. Without a status it came inside a stream.
pub(super) fn error_trouble(body: &Value, status: Option<u16>) -> Trouble {
    // Some put the fields at the top, and some have only a sentence.
    let error = match body.get("error") {
        Some(error) if !error.is_null() => error,
        Some(_) | None => body,
    };
    let said = error.as_str().or_else(|| text(error, "message")).or_else(|| text(body, "message"));
    let message = said.map_or_else(|| visible(beginning(&body.to_string(), SHOWN_BYTES)), str::to_owned);
    let words = [text(error, "code"), text(error, "type"), text(error, "status")].into_iter().flatten();
    let by_word = words.filter_map(|word| by_word(word, error)).next();
    let reason = if is_too_long(&message) { Some(Reason::ContextTooLong) } else { by_word };
    let reason = match (reason, status) {
        (Some(reason), _) => reason,
        (None, Some(status)) => by_status(status),
        // A number in the body, as llama.cpp has it.
        (None, None) => whole(error, "code")
            .map_or(Reason::ServerError, |code| u16::try_from(code).map_or(Reason::ServerError, by_status)),
    };
    Trouble::new(reason, message)
}

/// What a body with an error status means.
pub(super) fn body_trouble(body: &str, status: u16) -> Trouble {
    match serde_json::from_str::<Value>(body) {
        Ok(value) if value.is_object() => error_trouble(&value, Some(status)),
        Ok(_) | Err(_) => {
            let shown = visible(beginning(body.trim(), SHOWN_BYTES));
            let said = if shown.is_empty() { String::new() } else { format!(": {shown}") };
            Trouble::new(by_status(status), format!("the server answered {status}{said}"))
        }
    }
}

/// The reason behind a code or a type. `None` for what says less than the status.
fn by_word(word: &str, error: &Value) -> Option<Reason> {
    Some(match word {
        "authentication_error" | "invalid_api_key" | "account_deactivated" | "invalid_organization" => {
            Reason::BadCredentials
        }
        "billing_error" | "insufficient_quota" | "billing_hard_limit_reached" | "billing_not_active" => {
            Reason::Billing
        }
        "usage_limit_reached" => {
            Reason::UsageLimit { resets_at: whole(error, "resets_at").and_then(from_seconds) }
        }
        // OpenAI names what there are too many of.
        "rate_limit_error" | "rate_limit_exceeded" | "requests" | "tokens" => Reason::Throttled,
        "overloaded_error" | "unavailable_error" | "server_is_overloaded" | "engine_overloaded_error" => {
            Reason::Overloaded
        }
        "api_error" | "server_error" | "timeout_error" | "internal_server_error" | "InternalServerError" => {
            Reason::ServerError
        }
        "context_length_exceeded" | "exceed_context_size_error" | "request_too_large" => {
            Reason::ContextTooLong
        }
        "content_filter" | "content_policy_violation" => Reason::Refused,
        "not_found_error" | "model_not_found" | "permission_error" | "BadRequestError" | "NotFoundError" => {
            Reason::BadRequest
        }
        _ => return None,
    })
}

/// A prompt that is too long is an invalid request for most servers: only the message says it.
fn is_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["prompt is too long", "maximum context length", "exceeds the available context size", "context window"]
        .iter()
        .any(|words| message.contains(words))
}

const fn by_status(status: u16) -> Reason {
    match status {
        401 => Reason::BadCredentials,
        402 => Reason::Billing,
        413 => Reason::ContextTooLong,
        429 => Reason::Throttled,
        503 | 529 => Reason::Overloaded,
        // A timeout, a conflict, a lock, too early: they may work next time.
        408 | 409 | 423 | 425 => Reason::ServerError,
        300..=499 => Reason::BadRequest,
        _ => Reason::ServerError,
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::ErrorClass;

    use super::*;

    #[test]
    fn the_type_counts_and_not_the_number() {
        for (status, body, reason, class) in [
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"m"}}"#,
                Reason::BadCredentials,
                ErrorClass::QueueStop,
            ),
            (
                401,
                r#"{"error":{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                Reason::BadCredentials,
                ErrorClass::QueueStop,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"billing_error","message":"m"}}"#,
                Reason::Billing,
                ErrorClass::QueueStop,
            ),
            (
                429,
                r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Reason::Billing,
                ErrorClass::QueueStop,
            ),
            (
                429,
                r#"{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded"}}"#,
                Reason::Throttled,
                ErrorClass::RateLimited,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                Reason::ContextTooLong,
                ErrorClass::Permanent,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
                Reason::ContextTooLong,
                ErrorClass::Permanent,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"BadRequestError","param":null,"code":400}}"#,
                Reason::ContextTooLong,
                ErrorClass::Permanent,
            ),
            (
                403,
                r#"{"type":"error","error":{"type":"permission_error","message":"m"}}"#,
                Reason::BadRequest,
                ErrorClass::Permanent,
            ),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
                Reason::BadRequest,
                ErrorClass::Permanent,
            ),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                Reason::Overloaded,
                ErrorClass::Transient,
            ),
            (
                503,
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
                Reason::Overloaded,
                ErrorClass::Transient,
            ),
            (
                503,
                r#"{"error":"server busy, please try again. maximum pending requests exceeded"}"#,
                Reason::Overloaded,
                ErrorClass::Transient,
            ),
            (
                504,
                r#"{"type":"error","error":{"type":"timeout_error","message":"m"}}"#,
                Reason::ServerError,
                ErrorClass::Transient,
            ),
            (502, "<html>Bad gateway</html>", Reason::ServerError, ErrorClass::Transient),
            (400, "", Reason::BadRequest, ErrorClass::Permanent),
        ] {
            let trouble = body_trouble(body, status);
            assert_eq!((trouble.reason, trouble.reason.class()), (reason, class), "{status} {body}");
        }
        let limit = body_trouble(
            r#"{"error":{"type":"usage_limit_reached","message":"m","resets_at":1700000100}}"#,
            429,
        );
        assert_eq!(limit.reason, Reason::UsageLimit { resets_at: from_seconds(1_700_000_100) });
    }
}
