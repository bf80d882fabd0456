//! Events of a task as JSON: what they all have, and the fields of their kind.

use std::fmt;

use ostler_core::{EventBody, EventKind, Level, Usage};
use ostler_store::events::Event;
use serde::{Deserialize, Serialize};

use crate::bytes::ByteString;
use crate::time::TimeView;
use crate::word::{self, Word};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventView {
    /// Counted from 1 for each task.
    pub number: u64,
    pub at: TimeView,
    /// The token of the lease it was written under.
    pub token: u64,
    /// `log`, `progress`, `prompt`, `message`, `thinking`, `tool_call`, `tool_result`, `file`, `usage`, `session`, `warning`,
    /// `transition`, `thinned`, `status`, `error`, `result`, or `stdout`: standard output of a command that did not succeed, or that ran
    /// for more than a moment; `raw`: a line as an agent wrote it; `former_payload`: the payload before a replay with another one; or
    /// `continued`: more of the `message` before it, or without a `role` of the `thinking`.
    #[serde(deserialize_with = "word::read")]
    pub kind: Word,
    /// The level of a log line: `debug`, `info`, `warn` or `error`; null for other kinds.
    #[serde(deserialize_with = "word::read_option")]
    pub level: Option<Word>,
    /// The text of the event; for an event without one, a line for people.
    pub data: String,
    /// The size of the whole text in bytes, if `data` is only its beginning.
    pub cut: Option<u64>,
    #[serde(flatten)]
    fields: EventFields,
}

/// The fields that only events of one kind have.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum EventFields {
    Log {
        #[serde(deserialize_with = "word::read")]
        stream: Word,
    },
    Progress {
        done: u64,
        total: Option<u64>,
        note: Option<String>,
    },
    Message {
        #[serde(deserialize_with = "word::read")]
        role: Word,
    },
    // Before tool calls, which have a part of these fields: a view is read as the first one that fits.
    ToolResult {
        call: String,
        tool: Option<String>,
        #[serde(deserialize_with = "word::read")]
        status: Word,
    },
    ToolCall {
        call: String,
        tool: String,
    },
    File {
        path: String,
        size: u64,
        sha256: String,
    },
    Usage {
        usage: UsageView,
    },
    Session {
        session_id: String,
    },
    Transition {
        #[serde(deserialize_with = "word::read")]
        state: Word,
        why: String,
        run_at: Option<TimeView>,
    },
    Thinned {
        lines: u64,
    },
    TextOnly {},
}

/// How far a task has come.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportedProgress {
    pub done: u64,
    /// Null: not known.
    pub total: Option<u64>,
    pub note: Option<String>,
}

impl ReportedProgress {
    /// The progress of a progress event.
    #[must_use]
    pub fn of_event(body: &EventBody) -> Option<Self> {
        let EventBody::Progress { done, total, note } = body else { return None };
        Some(Self { done: *done, total: *total, note: note.clone() })
    }
}

impl fmt::Display for ReportedProgress {
    /// Such as `3/6 page 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, total, note } = self;
        write!(f, "{done}/")?;
        match total {
            Some(total) => write!(f, "{total}")?,
            None => f.write_str("?")?,
        }
        note.as_ref().map_or(Ok(()), |note| write!(f, " {note}"))
    }
}

/// Tokens and money.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageView {
    pub model: Option<String>,
    /// Input that was not read from a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub reasoning_tokens: u64,
    /// Null: not known.
    pub cost_usd: Option<f64>,
    /// Whether it is the last usage seen of an attempt that could not report it.
    pub estimated: bool,
}

impl From<&Usage> for UsageView {
    fn from(usage: &Usage) -> Self {
        Self {
            model: usage.model.clone(),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost_usd: usage.cost.map(|cost| cost.usd()),
            estimated: usage.source.is_estimated(),
        }
    }
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        let Event { number, at, token, body, cut } = event;
        let level = if let EventBody::Log { level, .. } = body { Some(level.name()) } else { None };
        let (kind, data) = (body.kind().name(), text(body));
        let (at, fields) = ((*at).into(), fields(body));
        Self { number: *number, at, token: *token, kind, level, data, cut: *cut, fields }
    }
}

fn fields(body: &EventBody) -> EventFields {
    match body {
        EventBody::Log { stream, .. } => EventFields::Log { stream: stream.name() },
        EventBody::Progress { done, total, note } => {
            EventFields::Progress { done: *done, total: *total, note: note.clone() }
        }
        EventBody::Message { role, .. } | EventBody::Continued { role: Some(role), .. } => {
            EventFields::Message { role: role.name() }
        }
        EventBody::ToolCall { call, tool, .. } => {
            EventFields::ToolCall { call: call.clone(), tool: tool.clone() }
        }
        EventBody::ToolResult { call, tool, status, .. } => {
            EventFields::ToolResult { call: call.clone(), tool: tool.clone(), status: status.name() }
        }
        EventBody::File { path, size, sha256 } => {
            EventFields::File { path: path.clone(), size: *size, sha256: sha256.clone() }
        }
        EventBody::Usage(usage) => EventFields::Usage { usage: usage.into() },
        EventBody::Session { id } => EventFields::Session { session_id: id.clone() },
        EventBody::Transition { state, why, run_at } => EventFields::Transition {
            state: state.name(),
            why: why.clone(),
            run_at: run_at.map(TimeView::from),
        },
        EventBody::Thinned { lines } => EventFields::Thinned { lines: *lines },
        EventBody::Prompt { .. }
        | EventBody::Thinking { .. }
        | EventBody::Warning { .. }
        | EventBody::Stdout { .. }
        | EventBody::Status { .. }
        | EventBody::Error { .. }
        | EventBody::Result { .. }
        | EventBody::Raw { .. }
        | EventBody::FormerPayload { .. }
        | EventBody::Continued { role: None, .. } => EventFields::TextOnly {},
    }
}

/// The event as a text: its own, or a line for people.
#[must_use]
pub fn text(body: &EventBody) -> String {
    match body {
        EventBody::Log { text, .. }
        | EventBody::Prompt { text }
        | EventBody::Message { text, .. }
        | EventBody::Thinking { text }
        | EventBody::Warning { text }
        | EventBody::Status { text }
        | EventBody::Error { text }
        | EventBody::Result { text }
        | EventBody::FormerPayload { text }
        | EventBody::Continued { text, .. }
        | EventBody::ToolCall { input: text, .. }
        | EventBody::ToolResult { output: text, .. } => text.clone(),
        EventBody::Stdout { text } | EventBody::Raw { text } => ByteString::of_event(text).shown(),
        EventBody::Progress { .. } => {
            ReportedProgress::of_event(body).map(|progress| progress.to_string()).unwrap_or_default()
        }
        EventBody::File { path, size, .. } => format!("{path} ({size} bytes)"),
        EventBody::Usage(usage) => {
            let model = usage.model.as_ref().map(|model| format!("{model}: ")).unwrap_or_default();
            let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
            let cost = usage.cost.map(|cost| format!(", {cost}")).unwrap_or_default();
            format!("{model}{input} tokens in, {} out{cost}", usage.output_tokens)
        }
        EventBody::Session { id } => id.clone(),
        EventBody::Transition { state, why, run_at } => {
            let next = run_at.map(|at| format!(", next attempt at {}", TimeView::from(at)));
            format!("{}: {why}{}", state.name(), next.unwrap_or_default())
        }
        EventBody::Thinned { lines: 1 } => "1 log line was left out: it came too fast".to_owned(),
        EventBody::Thinned { lines } => format!("{lines} log lines were left out: they came too fast"),
    }
}

/// Who or what speaks in an event.
#[must_use]
pub fn label(body: &EventBody) -> String {
    if let EventBody::Message { role, .. } = body {
        role.name().to_owned()
    } else if let EventBody::ToolCall { tool, .. } = body {
        format!("tool_call {tool}")
    } else if let EventBody::ToolResult { status, .. } = body {
        format!("tool_result {}", status.name())
    } else {
        body.kind().name().to_owned()
    }
}

impl EventView {
    /// Whether it is standard output of a command, which is printed as it was written.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        self.kind == EventKind::Stdout.name()
    }

    /// Whether it is more of the message or the thought before it, which is printed behind that.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.kind == EventKind::Continued.name()
    }

    /// How grave it is: log lines have a level, warnings and errors are one, and everything else informs.
    #[must_use]
    pub fn severity(&self) -> Level {
        if let Some(level) = self.level.and_then(Level::named) {
            return level;
        }
        match EventKind::named(self.kind) {
            Some(EventKind::Warning | EventKind::Thinned) => Level::Warn,
            Some(EventKind::Error) => Level::Error,
            Some(
                EventKind::Log
                | EventKind::Message
                | EventKind::ToolCall
                | EventKind::Progress
                | EventKind::File
                | EventKind::Stdout
                | EventKind::Prompt
                | EventKind::Thinking
                | EventKind::ToolResult
                | EventKind::Usage
                | EventKind::Session
                | EventKind::Transition
                | EventKind::Status
                | EventKind::Result
                | EventKind::Raw
                | EventKind::FormerPayload
                | EventKind::Continued,
            )
            // Of a newer node.
            | None => Level::Info,
        }
    }

    /// The event as a line for people, standard output aside.
    #[must_use]
    pub fn line(&self) -> String {
        if self.is_continued() {
            return self.data.clone();
        }
        match (&self.fields, self.level) {
            (EventFields::Log { .. }, level) => {
                let text = self.data.strip_suffix('\n').unwrap_or(&self.data);
                // Output of programs has the level info, and is shown as written.
                match level {
                    None => text.to_owned(),
                    Some(level) if level == Level::Info.name() => text.to_owned(),
                    Some(level) => format!("{level}: {text}"),
                }
            }
            (EventFields::Message { role }, _) => format!("[{role}] {}", self.data),
            (EventFields::ToolCall { tool, .. }, _) => format!("[{} {tool}] {}", self.kind, self.data),
            (EventFields::ToolResult { status, .. }, _) => format!("[{} {status}] {}", self.kind, self.data),
            (
                EventFields::Progress { .. }
                | EventFields::File { .. }
                | EventFields::Usage { .. }
                | EventFields::Session { .. }
                | EventFields::Transition { .. }
                | EventFields::Thinned { .. }
                | EventFields::TextOnly {},
                _,
            ) => format!("[{}] {}", self.kind, self.data),
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Cost, Role, Timestamp, ToolStatus};

    use super::*;

    fn json(body: &EventBody) -> serde_json::Value {
        let event = Event { number: 7, at: Timestamp::ZERO, token: 2, body: body.clone(), cut: None };
        serde_json::to_value(EventView::from(&event)).unwrap()
    }

    #[test]
    fn an_event_has_the_common_fields_and_those_of_its_kind() {
        let call = EventBody::ToolCall { call: "c".into(), tool: "Read".into(), input: "{}".into() };
        let seen = json(&call);
        assert_eq!(
            (&seen["number"], &seen["token"], &seen["kind"], &seen["level"]),
            (&7.into(), &2.into(), &"tool_call".into(), &serde_json::Value::Null)
        );
        assert_eq!(
            (&seen["call"], &seen["tool"], &seen["data"]),
            (&"c".into(), &"Read".into(), &"{}".into())
        );
        assert_eq!(json(&EventBody::line("x"))["stream"], "log");
        let usage = Usage { cost: Cost::from_usd(0.5), input_tokens: 3, ..Usage::default() };
        assert_eq!(json(&EventBody::Usage(usage))["usage"]["cost_usd"], 0.5);
    }

    #[test]
    fn people_read_who_spoke_and_which_tool_ran() {
        let line = |body: &EventBody| -> String {
            // As a client reads it from a node's answer.
            let view: EventView = serde_json::from_value(json(body)).unwrap();
            view.line()
        };
        let said = EventBody::Message { role: Role::User, text: "Hello".into() };
        assert_eq!(line(&said), "[user] Hello");
        let output = "no such file".to_owned();
        let result =
            EventBody::ToolResult { call: "c".into(), tool: None, status: ToolStatus::Error, output };
        assert_eq!(line(&result), "[tool_result error] no such file");
        let progress = EventBody::Progress { done: 3, total: None, note: Some("pages".into()) };
        assert_eq!(line(&progress), "[progress] 3/? pages");
    }
}
