//! The transcript: how what an agent wrote becomes events.
//!
//! Each line is kept as it was ([`EventBody::Raw`]), before the events that were read from it. Left out are only lines that a later one
//! repeats whole, such as the pieces of a message that is still being written.

use ostler_core::{EventBody, Role, ToolStatus, beginning};
use serde_json::Value;

use crate::fact::Fact;

/// Bytes of a line that is no JSON object, in the status that shows it.
const SHOWN_BYTES: usize = 200;

/// A line as it was written, without loss: JSON, a string or the list of its bytes.
#[must_use]
pub fn raw(line: &[u8]) -> EventBody {
    let text = match std::str::from_utf8(line) {
        Ok(text) => serde_json::to_string(text),
        Err(_) => serde_json::to_string(line),
    };
    EventBody::Raw { text: text.expect("texts and bytes have a JSON form") }
}

/// The beginning of a line that was too long to be read.
#[must_use]
pub fn too_long(start: &[u8], size: u64) -> Vec<Fact> {
    let kept = start.len();
    let text = format!("a line of {size} bytes was too long to be read; its first {kept} bytes are kept");
    vec![raw(start).into(), EventBody::Warning { text }.into()]
}

/// A line that is not what its dialect writes.
pub(crate) fn unreadable(line: &[u8]) -> Vec<Fact> {
    let shown = String::from_utf8_lossy(line);
    let shown = beginning(shown.trim(), SHOWN_BYTES);
    vec![raw(line).into(), status(format!("not a JSON object: {shown}"))]
}

pub(crate) fn status(text: impl Into<String>) -> Fact {
    EventBody::Status { text: text.into() }.into()
}

pub(crate) fn warning(text: impl Into<String>) -> Fact {
    EventBody::Warning { text: text.into() }.into()
}

pub(crate) fn error(text: impl Into<String>) -> Fact {
    EventBody::Error { text: text.into() }.into()
}

pub(crate) fn said(role: Role, text: impl Into<String>) -> Fact {
    EventBody::Message { role, text: text.into() }.into()
}

pub(crate) fn thought(text: impl Into<String>) -> Fact {
    EventBody::Thinking { text: text.into() }.into()
}

/// More of what was said, or thought, and had not come to its end.
pub(crate) fn continued(role: Option<Role>, text: impl Into<String>) -> Fact {
    EventBody::Continued { role, text: text.into() }.into()
}

/// A tool is called, and runs from now on.
pub(crate) fn called(call: &str, tool: &str, input: &Value) -> [Fact; 2] {
    let event =
        EventBody::ToolCall { call: call.to_owned(), tool: tool.to_owned(), input: input.to_string() };
    [event.into(), Fact::ToolStarted { call: call.to_owned() }]
}

/// A tool has returned.
pub(crate) fn returned(call: &str, tool: Option<&str>, status: ToolStatus, output: String) -> [Fact; 2] {
    let event =
        EventBody::ToolResult { call: call.to_owned(), tool: tool.map(str::to_owned), status, output };
    [event.into(), Fact::ToolFinished { call: call.to_owned() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_line_keeps_every_byte() {
        let json = |line: &[u8]| {
            let EventBody::Raw { text } = raw(line) else { panic!("it is raw") };
            text
        };
        assert_eq!(json(br#"{"a":"\u0000"}"#), r#""{\"a\":\"\\u0000\"}""#);
        assert_eq!(json(b"a\0b"), r#""a\u0000b""#);
        assert_eq!(json(b"\xffa"), "[255,97]");
    }
}
