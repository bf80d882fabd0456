//! `ostler logs`: prints the log of a task, and follows it.

use std::time::Duration;

use ostler_core::TaskId;
use ostler_exec::Level;
use ostler_store::MAX_PAGE;
use ostler_store::calls::EventKind;
use ostler_store::views::{Event, TaskRef};
use ostler_wire::system::EventView;
use ostler_wire::task::FileView;

use super::{Console, show};
use crate::args::Logs;
use crate::attempt_output::{level, stdout_piece};
use crate::exit::{Code, refused};
use crate::print::{Format, visible};
use crate::store_location::IfMissing;

/// The polling interval of --follow. Events do not ring a bell.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(console: &Console, logs: &Logs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let id = show::find(store.as_ref(), &logs.one).await?.task.id;
    let (mut last, mut lines) = (0, Lines::default());
    loop {
        // The state is read before the events, so that all events of a finished task are printed.
        let ended = match store.show(TaskRef::Id(id)).await? {
            Some(found) => found.task.state.name().is_terminal(),
            None => return Err(gone(id)),
        };
        loop {
            let events = store.read_events(id, None, last, MAX_PAGE).await?;
            let Some(newest) = events.last() else { break };
            last = newest.number;
            print(console, &events, &mut lines)?;
        }
        if ended || !logs.follow {
            console.out.text(lines.end())?;
            return Ok(Code::Done);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn gone(id: TaskId) -> anyhow::Error {
    refused(Code::NotFound, format!("{id} was removed"))
}

/// Whether the last output ended its line: pieces of standard output may not.
#[derive(Clone, Copy, Default)]
enum Lines {
    #[default]
    Whole,
    Open,
}

impl Lines {
    /// Ends an open line.
    fn end(&mut self) -> &'static str {
        match std::mem::take(self) {
            Self::Whole => "",
            Self::Open => "\n",
        }
    }
}

fn print(console: &Console, events: &[Event], lines: &mut Lines) -> anyhow::Result<()> {
    match console.out.format() {
        Format::Json => {
            let lines: Result<Vec<String>, _> =
                events.iter().map(|event| serde_json::to_string(&view(event))).collect();
            Ok(console.out.json_line(&lines?.join("\n"))?)
        }
        Format::People => {
            let mut text = String::new();
            for event in events {
                if event.kind == EventKind::Stdout {
                    let piece = stdout_piece(&event.data);
                    text.push_str(&String::from_utf8_lossy(&piece));
                    *lines = if piece.ends_with(b"\n") { Lines::Whole } else { Lines::Open };
                    continue;
                }
                text.push_str(lines.end());
                text.push_str(&line(event));
                text.push('\n');
            }
            Ok(console.out.task_text(&text)?)
        }
    }
}

/// Formats an event other than standard output, for people.
fn line(event: &Event) -> String {
    match event.kind {
        EventKind::Log => {
            let (level, line) = level(&event.data);
            let line = line.strip_suffix('\n').unwrap_or(line);
            // Output of programs has the level info, and is shown as written.
            match level.filter(|level| *level != Level::Info) {
                Some(level) => format!("{}: {line}", level.name()),
                None => line.to_owned(),
            }
        }
        EventKind::File => {
            let shown = FileView::of_event(&event.data);
            let shown = shown.map(|file| format!("{} ({} bytes)", visible(&file.path), file.size));
            format!("[file] {}", shown.unwrap_or_else(|| event.data.clone()))
        }
        EventKind::Message
        | EventKind::ToolCall
        | EventKind::Progress
        | EventKind::Warning
        | EventKind::Stdout => format!("[{}] {}", name(event.kind), event.data),
    }
}

fn view(event: &Event) -> EventView {
    let (level, data) = match event.kind {
        EventKind::Log => {
            let (level, line) = level(&event.data);
            (level, line.to_owned())
        }
        EventKind::Stdout => (None, String::from_utf8_lossy(&stdout_piece(&event.data)).into_owned()),
        EventKind::Message
        | EventKind::ToolCall
        | EventKind::Progress
        | EventKind::Warning
        | EventKind::File => (None, event.data.clone()),
    };
    EventView {
        number: event.number,
        at: event.at.into(),
        token: event.token,
        kind: name(event.kind),
        level: level.map(Level::name),
        data,
    }
}

const fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Log => "log",
        EventKind::Message => "message",
        EventKind::ToolCall => "tool_call",
        EventKind::Progress => "progress",
        EventKind::Warning => "warning",
        EventKind::File => "file",
        EventKind::Stdout => "stdout",
    }
}
