//! Events of every kind, for cases and random sequences.

use ostler_core::{
    Cost, EventBody, Level, LogStream, Role, StateName, Timestamp, ToolStatus, Usage, UsageSource, beginning,
};

/// One event of each kind, in the order of `EventKind::ALL`, with this text.
#[must_use]
pub fn one_of_each(text: &str) -> Vec<EventBody> {
    let text = || text.to_owned();
    let usage = Usage {
        model: Some("model-1".to_owned()),
        input_tokens: 3,
        output_tokens: 5,
        cache_read_tokens: 7,
        cache_write_tokens: 11,
        reasoning_tokens: 2,
        cost: Some(Cost::from_nanos(12_345)),
        source: UsageSource::Estimated,
    };
    vec![
        EventBody::Log { level: Level::Error, stream: LogStream::Stderr, text: text() },
        EventBody::Message { role: Role::User, text: text() },
        EventBody::ToolCall { call: "call-1".to_owned(), tool: "Read".to_owned(), input: text() },
        EventBody::Progress { done: 3, total: Some(10), note: Some(beginning(&text(), 100).to_owned()) },
        EventBody::Warning { text: text() },
        EventBody::File { path: "a/ä.txt".to_owned(), size: 7, sha256: "ab".repeat(32) },
        EventBody::Stdout { text: text() },
        EventBody::Prompt { text: text() },
        EventBody::Thinking { text: text() },
        EventBody::ToolResult {
            call: "call-1".to_owned(),
            tool: None,
            status: ToolStatus::Error,
            output: text(),
        },
        EventBody::Usage(usage),
        EventBody::Session { id: "session-1".to_owned() },
        EventBody::Transition {
            state: StateName::Queued,
            why: "retry".to_owned(),
            run_at: Some(Timestamp::from_millis(5)),
        },
        EventBody::Thinned { lines: 12 },
        EventBody::Status { text: text() },
        EventBody::Error { text: text() },
        EventBody::Result { text: text() },
        EventBody::Raw { text: text() },
        EventBody::FormerPayload { text: text() },
        EventBody::Continued { role: Some(Role::Assistant), text: text() },
    ]
}
