//! Events of a query for a worker process, in the words of the worker protocol.

use ostler_core::{EventBody, ToolStatus, Usage};
use serde_json::{Value, json};

/// An event as JSON; `None` for one that a handler does not get.
pub(super) fn handler_event(event: &EventBody) -> Option<Value> {
    Some(match event {
        EventBody::Message { role, text } => json!({"type": "message", "role": role.name(), "text": text}),
        EventBody::Thinking { text } => json!({"type": "thinking", "text": text}),
        EventBody::Status { text } => json!({"type": "status", "text": text}),
        EventBody::Warning { text } | EventBody::Error { text } => json!({"type": "warning", "text": text}),
        EventBody::ToolCall { call, tool, input } => {
            // One that was cut is no JSON any more.
            let input: Value = serde_json::from_str(input).unwrap_or_else(|_| json!(input));
            json!({"type": "tool_call", "call": call, "tool": tool, "input": input})
        }
        EventBody::ToolResult { call, tool, status, output } => {
            let error = *status == ToolStatus::Error;
            json!({"type": "tool_result", "call": call, "tool": tool, "output": output, "error": error})
        }
        EventBody::Usage(Usage {
            model,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens,
            cost,
            source,
        }) => json!({
            "type": "usage",
            "model": model,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cache_read_tokens": cache_read_tokens,
            "cache_write_tokens": cache_write_tokens,
            "reasoning_tokens": reasoning_tokens,
            "cost_usd": cost.map(|cost| cost.usd()),
            "estimated": source.is_estimated(),
        }),
        EventBody::Log { .. }
        | EventBody::Progress { .. }
        | EventBody::Prompt { .. }
        | EventBody::File { .. }
        | EventBody::Session { .. }
        | EventBody::Stdout { .. }
        | EventBody::Transition { .. }
        | EventBody::Thinned { .. }
        | EventBody::Result { .. }
        | EventBody::Raw { .. }
        | EventBody::FormerPayload { .. }
        | EventBody::Continued { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use ostler_core::{Cost, Role};

    use super::*;

    #[test]
    fn an_event_has_the_fields_of_its_frame() {
        let said = EventBody::Message { role: Role::Assistant, text: "Hi".into() };
        assert_eq!(handler_event(&said), Some(json!({"type": "message", "role": "assistant", "text": "Hi"})));
        let called = |input: &str| {
            let event = EventBody::ToolCall { call: "c".into(), tool: "Read".into(), input: input.into() };
            handler_event(&event).map(|event| event["input"].clone())
        };
        assert_eq!(called(r#"{"a":1}"#), Some(json!({"a": 1})));
        assert_eq!(called(r#"{"a": … (cut)"#), Some(json!(r#"{"a": … (cut)"#)));
        let usage = Usage { input_tokens: 7, cost: Cost::from_usd(0.5), ..Usage::default() };
        let usage = handler_event(&EventBody::Usage(usage)).expect("an event");
        assert_eq!((&usage["input_tokens"], &usage["cost_usd"]), (&json!(7), &json!(0.5)));
        assert_eq!(handler_event(&EventBody::Prompt { text: "p".into() }), None);
    }
}
