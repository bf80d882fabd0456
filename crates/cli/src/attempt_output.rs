//! The recorded output of an attempt: stdout, stderr and warnings.

use ostler_core::TaskId;
use ostler_exec::Level;
use ostler_process::Argument;
use ostler_store::calls::EventKind;
use ostler_store::{MAX_PAGE, Store};

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
            let events = store.read_events(id, None, after, MAX_PAGE).await?;
            let Some(last) = events.last() else { return Ok(written) };
            after = last.number;
            for event in events.iter().filter(|event| Some(event.token) == token) {
                match event.kind {
                    EventKind::Log => {
                        written.stderr.extend_from_slice(level(&event.data).1.as_bytes());
                        written.stderr.push(b'\n');
                    }
                    EventKind::Stdout => written.stdout.extend(stdout_piece(&event.data)),
                    EventKind::Warning => written.warnings.push(event.data.clone()),
                    EventKind::Message | EventKind::ToolCall | EventKind::Progress | EventKind::File => {}
                }
            }
        }
    }
}

/// Decodes a piece of standard output from its event.
pub(crate) fn stdout_piece(data: &str) -> Vec<u8> {
    serde_json::from_str::<Argument>(data).map_or_else(|_| data.as_bytes().to_vec(), |argument| argument.0)
}

/// Splits a log line into its level and its text.
pub(crate) fn level(data: &str) -> (Option<Level>, &str) {
    let known = [Level::Debug, Level::Info, Level::Warn, Level::Error];
    let of = |level: Level| Some((Some(level), data.strip_prefix(level.name())?.strip_prefix(' ')?));
    known.into_iter().find_map(of).unwrap_or((None, data))
}
