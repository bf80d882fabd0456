//! The wire format of an external gateway: what is posted, and what a line of its answer means. No I/O.

use std::time::Duration;

use ostler_core::{Cost, ErrorClass, EventBody, Failure, Role, ToolStatus, Usage, UsageSource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Bytes of a session's id.
const MAX_SESSION_BYTES: usize = 256;
/// The longest wait that an error may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30 * 24 * 3_600);

/// `POST {base}/sessions`
#[derive(Debug, Serialize)]
pub(super) struct SessionBody<'a> {
    pub(super) user_id: &'a str,
    pub(super) workspace: Option<&'a str>,
}

/// Its answer.
#[derive(Debug, Deserialize)]
pub(super) struct CreatedSession {
    pub(super) session_id: String,
}

/// `POST {base}/sessions/{id}/queries`
#[derive(Debug, Serialize)]
pub(super) struct QueryBody<'a> {
    /// Differs with every attempt: a gateway that has seen it has the request twice.
    pub(super) query_id: String,
    /// The same in every attempt: the answer to an earlier one is the answer to this one.
    pub(super) query_key: String,
    pub(super) attempt: u32,
    /// Whether an earlier attempt, or another task, has used the session.
    pub(super) resumed: bool,
    pub(super) input: &'a str,
    pub(super) workspace: Option<&'a str>,
    pub(super) timeout_ms: u64,
    pub(super) options: &'a Map<String, Value>,
}

/// What a line of the answer to a query means.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WireLine {
    Event(EventBody),
    /// The last line of a success: JSON text.
    Result(String),
    /// The last line of a failure.
    Error(Failure),
    /// A sign of life, or a type of a later version.
    Nothing,
}

#[derive(Deserialize)]
struct LineHead {
    #[serde(rename = "type")]
    sort: String,
}

#[derive(Deserialize)]
struct TextLine {
    text: String,
    role: Option<String>,
}

#[derive(Deserialize)]
struct ToolLine<'a> {
    #[serde(default)]
    call: Option<String>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    error: bool,
}

#[derive(Deserialize)]
struct SessionLine {
    session_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageLine {
    model: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
    cost_usd: Option<f64>,
    estimated: bool,
}

#[derive(Deserialize)]
struct ResultLine<'a> {
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    text: Option<String>,
}

/// An error, as the last line of an answer or as the body of a refusal.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorLine {
    class: Option<String>,
    message: Option<String>,
    details: Option<String>,
    hint: Option<String>,
    retry_after_ms: Option<f64>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorLine,
}

/// Reads a line. The error says what is wrong with it.
pub(super) fn read_line(line: &[u8]) -> Result<WireLine, String> {
    let wrong = |error: serde_json::Error| format!("a line of its answer cannot be read: {error}");
    if line.trim_ascii().is_empty() {
        return Ok(WireLine::Nothing);
    }
    let LineHead { sort } = serde_json::from_slice(line).map_err(wrong)?;
    let event = match sort.as_str() {
        "text" => {
            let TextLine { text, role } = serde_json::from_slice(line).map_err(wrong)?;
            let role = role.as_deref().and_then(Role::named).unwrap_or(Role::Assistant);
            EventBody::Message { role, text }
        }
        "thinking" => {
            let TextLine { text, .. } = serde_json::from_slice(line).map_err(wrong)?;
            EventBody::Thinking { text }
        }
        "status" => {
            let TextLine { text, .. } = serde_json::from_slice(line).map_err(wrong)?;
            EventBody::Status { text }
        }
        "tool_call" => {
            let tool: ToolLine<'_> = serde_json::from_slice(line).map_err(wrong)?;
            EventBody::ToolCall {
                call: tool.call.unwrap_or_default(),
                tool: tool.tool.unwrap_or_default(),
                input: tool.input.map_or("null", RawValue::get).to_owned(),
            }
        }
        "tool_result" => {
            let tool: ToolLine<'_> = serde_json::from_slice(line).map_err(wrong)?;
            EventBody::ToolResult {
                call: tool.call.unwrap_or_default(),
                tool: tool.tool,
                status: if tool.error { ToolStatus::Error } else { ToolStatus::Ok },
                output: tool.output.map(plain).unwrap_or_default(),
            }
        }
        "usage" => EventBody::Usage(usage(serde_json::from_slice(line).map_err(wrong)?)),
        "session" => {
            let SessionLine { session_id } = serde_json::from_slice(line).map_err(wrong)?;
            check_session(&session_id)?;
            EventBody::Session { id: session_id }
        }
        "result" => {
            let ResultLine { output, text } = serde_json::from_slice(line).map_err(wrong)?;
            let text = || Value::from(text.unwrap_or_default()).to_string();
            return Ok(WireLine::Result(output.map_or_else(text, |output| output.get().to_owned())));
        }
        "error" => {
            let error: ErrorLine = serde_json::from_slice(line).map_err(wrong)?;
            return Ok(WireLine::Error(failure(error, ErrorClass::Transient)));
        }
        _ => return Ok(WireLine::Nothing),
    };
    Ok(WireLine::Event(event))
}

/// What a refusal says, in `{"error": {"class": …, "message": …}}`; otherwise its first line.
pub(super) fn read_refusal(body: &[u8]) -> (Option<Failure>, Option<String>) {
    if let Ok(ErrorBody { error }) = serde_json::from_slice(body) {
        let is_classed = error.class.as_deref().and_then(ErrorClass::named).is_some();
        let message = error.message.clone();
        return (is_classed.then(|| failure(error, ErrorClass::Transient)), message);
    }
    let text = String::from_utf8_lossy(body);
    (None, text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned))
}

/// Refuses an id that cannot stand in a path as it is.
pub(super) fn check_session(id: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte);
    let is_dots = id == "." || id == "..";
    if id.is_empty() || id.len() > MAX_SESSION_BYTES || is_dots || !id.bytes().all(plain) {
        return Err(format!(
            "its session id is not one of at most {MAX_SESSION_BYTES} letters, digits and -._~:@"
        ));
    }
    Ok(())
}

fn failure(line: ErrorLine, unclassed: ErrorClass) -> Failure {
    let class = line.class.as_deref().and_then(ErrorClass::named).unwrap_or(unclassed);
    let message = line.message.unwrap_or_else(|| "the gateway gave no reason".to_owned());
    let wait = line.retry_after_ms.filter(|ms| ms.is_finite() && *ms > 0.0);
    let wait = wait.map(|ms| Duration::from_millis(ms as u64).min(MAX_RETRY_AFTER));
    Failure { details: line.details, hint: line.hint, retry_after: wait, ..Failure::new(class, message) }
}

fn usage(line: UsageLine) -> Usage {
    Usage {
        model: line.model,
        input_tokens: line.input_tokens,
        output_tokens: line.output_tokens,
        cache_read_tokens: line.cache_read_tokens,
        cache_write_tokens: line.cache_write_tokens,
        reasoning_tokens: line.reasoning_tokens,
        cost: line.cost_usd.and_then(Cost::from_usd),
        source: UsageSource::from_estimated(line.estimated),
    }
}

/// A string as its text, and everything else as JSON.
fn plain(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> EventBody {
        match read_line(line.as_bytes()) {
            Ok(WireLine::Event(event)) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn each_line_becomes_its_event_and_unknown_ones_are_ignored() {
        let message = |role, text: &str| EventBody::Message { role, text: text.into() };
        assert_eq!(event(r#"{"type":"text","text":"Hi"}"#), message(Role::Assistant, "Hi"));
        assert_eq!(event(r#"{"type":"text","role":"user","text":"Hi"}"#), message(Role::User, "Hi"));
        assert_eq!(event(r#"{"type":"thinking","text":"Hm"}"#), EventBody::Thinking { text: "Hm".into() });
        assert_eq!(
            event(r#"{"type":"tool_call","call":"c","tool":"Read","input":{"a":1}}"#),
            EventBody::ToolCall { call: "c".into(), tool: "Read".into(), input: r#"{"a":1}"#.into() }
        );
        assert_eq!(
            event(r#"{"type":"tool_result","call":"c","output":"no","error":true}"#),
            EventBody::ToolResult {
                call: "c".into(),
                tool: None,
                status: ToolStatus::Error,
                output: "no".into()
            }
        );
        let spent = event(r#"{"type":"usage","model":"m","input_tokens":7,"cost_usd":0.5}"#);
        let EventBody::Usage(spent) = spent else { panic!("{spent:?}") };
        assert_eq!((spent.input_tokens, spent.cost), (7, Cost::from_usd(0.5)));
        assert_eq!(
            event(r#"{"type":"session","session_id":"s-2"}"#),
            EventBody::Session { id: "s-2".into() }
        );
        assert_eq!(read_line(br#"{"type":"later","x":1}"#), Ok(WireLine::Nothing));
        assert_eq!(read_line(b"  "), Ok(WireLine::Nothing));
        assert!(read_line(b"nonsense").is_err());
        assert!(read_line(br#"{"type":"session","session_id":"../x"}"#).is_err());
    }

    #[test]
    fn the_last_line_is_a_result_or_an_error_with_its_class() {
        let result = |line: &str| read_line(line.as_bytes()).expect("it is right");
        assert_eq!(result(r#"{"type":"result","output":{"n":1}}"#), WireLine::Result(r#"{"n":1}"#.into()));
        assert_eq!(result(r#"{"type":"result","text":"Done."}"#), WireLine::Result("\"Done.\"".into()));
        let WireLine::Error(limited) =
            result(r#"{"type":"error","class":"rate_limited","message":"slow","retry_after_ms":1500}"#)
        else {
            panic!("it is an error")
        };
        assert_eq!(limited.class, ErrorClass::RateLimited);
        assert_eq!(limited.retry_after, Some(Duration::from_millis(1500)));
        let WireLine::Error(odd) = result(r#"{"type":"error","class":"odd","retry_after_ms":-5}"#) else {
            panic!("it is an error")
        };
        assert_eq!((odd.class, odd.retry_after), (ErrorClass::Transient, None));
    }

    #[test]
    fn a_refusal_has_its_own_class_or_the_first_line_of_its_body() {
        let (failure, _) = read_refusal(br#"{"error":{"class":"queue_stop","message":"log in"}}"#);
        assert_eq!(failure.map(|failure| failure.class), Some(ErrorClass::QueueStop));
        assert_eq!(read_refusal(br#"{"error":{"message":"no"}}"#), (None, Some("no".into())));
        assert_eq!(read_refusal(b"\n<h1>Bad</h1>\n"), (None, Some("<h1>Bad</h1>".into())));
        assert_eq!(read_refusal(b""), (None, None));
    }

    #[test]
    fn an_id_that_is_a_path_is_refused() {
        for id in ["", ".", "..", "a/b", "a b", "a?b", "ü"] {
            assert!(check_session(id).is_err(), "{id}");
        }
        assert_eq!(check_session("sess:01J-a_b.c~d@e"), Ok(()));
    }
}
