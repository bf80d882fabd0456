//! Conversation frames of the worker protocol: prompt, message, thinking, tool call, tool result, session, usage.

use ostler_core::{Cost, EventBody, Role, ToolStatus, Usage, UsageSource};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct TextFrame {
    id: String,
    token: u64,
    text: String,
    role: Option<String>,
}

#[derive(Deserialize)]
struct ToolFrame<'a> {
    id: String,
    token: u64,
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
struct SessionFrame {
    id: String,
    token: u64,
    session: String,
}

#[derive(Deserialize)]
struct UsageFrame {
    id: String,
    token: u64,
    model: Option<String>,
    #[serde(default)]
    input_tokens: f64,
    #[serde(default)]
    output_tokens: f64,
    #[serde(default)]
    cache_read_tokens: f64,
    #[serde(default)]
    cache_write_tokens: f64,
    #[serde(default)]
    reasoning_tokens: f64,
    cost_usd: Option<f64>,
    #[serde(default)]
    estimated: bool,
}

/// Decodes a frame of this type: the attempt that it belongs to, and the event. `None`: it is not part of a conversation.
pub(super) fn decode(sort: &str, line: &[u8]) -> Option<serde_json::Result<(String, u64, EventBody)>> {
    let decoded = match sort {
        "prompt" => text(line, |text, _| EventBody::Prompt { text }),
        "thinking" => text(line, |text, _| EventBody::Thinking { text }),
        "message" => text(line, |text, role| {
            let role = role.as_deref().and_then(Role::named).unwrap_or(Role::Assistant);
            EventBody::Message { role, text }
        }),
        "tool_call" => tool(line, |frame| EventBody::ToolCall {
            call: frame.call.unwrap_or_default(),
            tool: frame.tool.unwrap_or_default(),
            input: frame.input.map_or("null", RawValue::get).to_owned(),
        }),
        "tool_result" => tool(line, |frame| EventBody::ToolResult {
            call: frame.call.unwrap_or_default(),
            tool: frame.tool,
            status: if frame.error { ToolStatus::Error } else { ToolStatus::Ok },
            output: frame.output.map(plain).unwrap_or_default(),
        }),
        "session" => serde_json::from_slice(line)
            .map(|SessionFrame { id, token, session }| (id, token, EventBody::Session { id: session })),
        "usage" => serde_json::from_slice(line).map(|frame: UsageFrame| {
            let usage = Usage {
                model: frame.model,
                input_tokens: super::incoming::whole(frame.input_tokens),
                output_tokens: super::incoming::whole(frame.output_tokens),
                cache_read_tokens: super::incoming::whole(frame.cache_read_tokens),
                cache_write_tokens: super::incoming::whole(frame.cache_write_tokens),
                reasoning_tokens: super::incoming::whole(frame.reasoning_tokens),
                cost: frame.cost_usd.and_then(Cost::from_usd),
                source: UsageSource::from_estimated(frame.estimated),
            };
            (frame.id, frame.token, EventBody::Usage(usage))
        }),
        _ => return None,
    };
    Some(decoded)
}

fn text(
    line: &[u8],
    event: impl FnOnce(String, Option<String>) -> EventBody,
) -> serde_json::Result<(String, u64, EventBody)> {
    let TextFrame { id, token, text, role } = serde_json::from_slice(line)?;
    Ok((id, token, event(text, role)))
}

fn tool(
    line: &[u8],
    event: impl FnOnce(ToolFrame<'_>) -> EventBody,
) -> serde_json::Result<(String, u64, EventBody)> {
    let mut frame: ToolFrame<'_> = serde_json::from_slice(line)?;
    let (id, token) = (std::mem::take(&mut frame.id), frame.token);
    Ok((id, token, event(frame)))
}

/// A string as its text, and everything else as JSON.
fn plain(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sort: &str, fields: &str) -> EventBody {
        let line = format!(r#"{{"type":"{sort}","id":"T","token":3,{fields}}}"#);
        let (id, token, body) = decode(sort, line.as_bytes()).expect("it is known").expect("it is right");
        assert_eq!((id.as_str(), token), ("T", 3));
        body
    }

    #[test]
    fn each_frame_of_a_conversation_becomes_its_event() {
        assert_eq!(read("prompt", r#""text":"Hi""#), EventBody::Prompt { text: "Hi".into() });
        assert_eq!(read("thinking", r#""text":"Hm""#), EventBody::Thinking { text: "Hm".into() });
        let message = |role, text: &str| EventBody::Message { role, text: text.into() };
        assert_eq!(read("message", r#""text":"A""#), message(Role::Assistant, "A"));
        assert_eq!(read("message", r#""role":"user","text":"B""#), message(Role::User, "B"));
        assert_eq!(
            read("tool_call", r#""call":"c1","tool":"Read","input":{"path":"a"}"#),
            EventBody::ToolCall { call: "c1".into(), tool: "Read".into(), input: r#"{"path":"a"}"#.into() }
        );
        let result = |status, output: &str| EventBody::ToolResult {
            call: "c1".into(),
            tool: None,
            status,
            output: output.into(),
        };
        assert_eq!(read("tool_result", r#""call":"c1","output":"text\n""#), result(ToolStatus::Ok, "text\n"));
        assert_eq!(
            read("tool_result", r#""call":"c1","output":[1],"error":true"#),
            result(ToolStatus::Error, "[1]")
        );
        assert_eq!(read("session", r#""session":"s-1""#), EventBody::Session { id: "s-1".into() });
        let usage = Usage {
            model: Some("m".into()),
            input_tokens: 3,
            output_tokens: 4,
            cost: Cost::from_usd(0.25),
            ..Usage::default()
        };
        assert_eq!(
            read("usage", r#""model":"m","input_tokens":3,"output_tokens":4.0,"cost_usd":0.25"#),
            EventBody::Usage(usage)
        );
        let EventBody::Usage(killed) = read("usage", r#""input_tokens":3,"estimated":true"#) else {
            panic!("a usage")
        };
        assert_eq!(killed.source, UsageSource::Estimated);
    }

    #[test]
    fn a_frame_that_lacks_a_field_is_refused_and_others_are_left_to_the_caller() {
        assert!(
            decode("prompt", br#"{"type":"prompt","id":"T","token":3}"#).is_some_and(|read| read.is_err())
        );
        assert!(decode("log", b"{}").is_none());
    }
}
