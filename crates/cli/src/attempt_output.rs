//! The recorded output of an attempt: stdout, stderr and warnings.

use ostler_core::{EventBody, TaskId};
use ostler_store::Store;
use ostler_store::events::EventQuery;
use ostler_wire::event::{self, stdout_bytes};

#[derive(Debug, Default)]
pub(crate) struct AttemptOutput {
    /// Standard output of a command that did not succeed. The output of a success is the task's.
    pub(crate) stdout: Vec<u8>,
    /// Standard error, in lines.
    pub(crate) stderr: Vec<u8>,
    /// Warnings about the output, such as that it was truncated.
    pub(crate) warnings: Vec<String>,
}

impl AttemptOutput {
    /// Reads the recorded output of the attempt with this token.
    pub(crate) async fn read(store: &dyn Store, id: TaskId, token: Option<u64>) -> anyhow::Result<Self> {
        let mut written = Self::default();
        let mut after = 0;
        loop {
            let events = store.read_events(id, EventQuery::default().after(after)).await?;
            let Some(last) = events.last() else { return Ok(written) };
            after = last.number;
            for event in events.iter().filter(|event| Some(event.token) == token) {
                match &event.body {
                    EventBody::Log { text, .. } => {
                        written.stderr.extend_from_slice(text.as_bytes());
                        written.stderr.push(b'\n');
                    }
                    EventBody::Stdout { text } => written.stdout.extend(stdout_bytes(text)),
                    EventBody::Warning { text } => written.warnings.push(text.clone()),
                    thinned @ EventBody::Thinned { .. } => written.warnings.push(event::text(thinned)),
                    EventBody::Progress { .. }
                    | EventBody::Prompt { .. }
                    | EventBody::Message { .. }
                    | EventBody::Thinking { .. }
                    | EventBody::ToolCall { .. }
                    | EventBody::ToolResult { .. }
                    | EventBody::File { .. }
                    | EventBody::Usage(_)
                    | EventBody::Session { .. }
                    | EventBody::Transition { .. } => {}
                }
            }
        }
    }
}
