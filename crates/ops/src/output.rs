//! The recorded output of an attempt: stdout, stderr and warnings.

use ostler_core::{EventBody, StateName, Task, TaskId};
use ostler_store::events::EventQuery;
use ostler_store::views::TaskDetail;
use ostler_store::{Error, Store};
use ostler_wire::bytes::ByteString;
use ostler_wire::event;

use crate::jobs::ItemPayload;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptOutput {
    /// Standard output: of a success that of the task, of other attempts what was recorded of it.
    pub stdout: Vec<u8>,
    /// Standard error, in lines.
    pub stderr: Vec<u8>,
    /// Warnings about the output, such as that it was truncated.
    pub warnings: Vec<String>,
    /// The names of the files that it left.
    pub files: Vec<String>,
}

impl AttemptOutput {
    /// Reads the output of the last attempt.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn of_last(store: &dyn Store, found: &TaskDetail) -> Result<Self, Error> {
        let token = found.attempts.last().map(|attempt| attempt.token);
        let mut written = Self::recorded(store, found.task.id, token).await?;
        if found.task.state.name() == StateName::Completed {
            written.stdout = stdout_of(&found.task);
        }
        Ok(written)
    }

    /// Reads what was recorded of the attempt with this token.
    async fn recorded(store: &dyn Store, id: TaskId, token: Option<u64>) -> Result<Self, Error> {
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
                    EventBody::Stdout { text } => written.stdout.extend(ByteString::of_event(text).0),
                    EventBody::File { path, .. } => written.files.push(path.clone()),
                    EventBody::Warning { text } => written.warnings.push(text.clone()),
                    thinned @ EventBody::Thinned { .. } => written.warnings.push(event::text(thinned)),
                    EventBody::Progress { .. }
                    | EventBody::Prompt { .. }
                    | EventBody::Message { .. }
                    | EventBody::Thinking { .. }
                    | EventBody::ToolCall { .. }
                    | EventBody::ToolResult { .. }
                    | EventBody::Usage(_)
                    | EventBody::Session { .. }
                    | EventBody::Transition { .. }
                    | EventBody::Status { .. }
                    | EventBody::Error { .. }
                    | EventBody::Result { .. }
                    | EventBody::Raw { .. }
                    | EventBody::FormerPayload { .. }
                    | EventBody::Continued { .. } => {}
                }
            }
        }
    }
}

/// The output of a completed task: text as it is, such as the standard output of a command, and anything else as JSON.
fn stdout_of(task: &Task) -> Vec<u8> {
    let Some(output) = task.output.as_deref().filter(|output| *output != "null") else { return Vec::new() };
    if let Ok(text) = serde_json::from_str::<String>(output) {
        return text.into_bytes();
    }
    // Only a command has bytes; from other work, a list of numbers is one.
    let of_command = ItemPayload::of(&task.payload).is_some_and(|payload| !payload.argv.is_empty());
    let bytes = serde_json::from_str::<ByteString>(output).ok().filter(|_| of_command);
    bytes.map_or_else(|| output.as_bytes().to_vec(), |bytes| bytes.0)
}
