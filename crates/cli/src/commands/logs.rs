//! `ostler logs`: what a task wrote, and what it goes on writing.

use std::time::Duration;

use ostler_core::TaskId;
use ostler_exec::Level;
use ostler_store::MAX_PAGE;
use ostler_store::calls::EventKind;
use ostler_store::views::{Event, Which};
use ostler_wire::system::EventView;
use ostler_wire::task::FileView;

use super::{Console, show};
use crate::args::Logs;
use crate::exit::{Code, refused};
use crate::place::Missing;
use crate::print::{Format, visible};

/// How often whoever follows looks for more. Events ring no bell.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(console: &Console, logs: &Logs) -> anyhow::Result<Code> {
    let store = console.place()?.open(Missing::Refuse).await?;
    let id = show::find(store.as_ref(), &logs.one).await?.task.id;
    let mut last = 0;
    loop {
        // First the state, then the events: what was written before the end is seen before it is over.
        let ended = match store.show(Which::Id(id)).await? {
            Some(found) => found.task.state.name().is_terminal(),
            None => return Err(gone(id)),
        };
        loop {
            let events = store.read_events(id, last, MAX_PAGE).await?;
            let Some(newest) = events.last() else { break };
            last = newest.number;
            print(console, &events)?;
        }
        if ended || !logs.follow {
            return Ok(Code::Done);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn gone(id: TaskId) -> anyhow::Error {
    refused(Code::NotFound, format!("{id} was removed while it was followed"))
}

fn print(console: &Console, events: &[Event]) -> anyhow::Result<()> {
    let mut text = String::new();
    for event in events {
        match console.out.format() {
            Format::Json => text.push_str(&serde_json::to_string(&view(event))?),
            Format::People => match event.kind {
                EventKind::Log => {
                    let (level, line) = level(&event.data);
                    // What programs write comes as info, and is shown as they wrote it.
                    if let Some(level) = level.filter(|level| *level != Level::Info) {
                        text.push_str(&format!("{}: ", level.name()));
                    }
                    text.push_str(line.strip_suffix('\n').unwrap_or(line));
                }
                EventKind::File => {
                    let shown = FileView::of_event(&event.data);
                    let shown = shown.map(|file| format!("{} ({} bytes)", visible(&file.path), file.size));
                    text.push_str(&format!("[file] {}", shown.unwrap_or_else(|| event.data.clone())));
                }
                EventKind::Message | EventKind::ToolCall | EventKind::Progress | EventKind::Warning => {
                    text.push_str(&format!("[{}] {}", name(event.kind), event.data));
                }
            },
        }
        text.push('\n');
    }
    Ok(console.out.text(&text)?)
}

/// The level that stands before a log line, and the line.
pub(crate) fn level(data: &str) -> (Option<Level>, &str) {
    let known = [Level::Debug, Level::Info, Level::Warn, Level::Error];
    let of = |level: Level| Some((Some(level), data.strip_prefix(level.name())?.strip_prefix(' ')?));
    known.into_iter().find_map(of).unwrap_or((None, data))
}

fn view(event: &Event) -> EventView {
    let (level, data) = match event.kind {
        EventKind::Log => level(&event.data),
        EventKind::Message
        | EventKind::ToolCall
        | EventKind::Progress
        | EventKind::Warning
        | EventKind::File => (None, event.data.as_str()),
    };
    EventView {
        number: event.number,
        at: event.at.into(),
        token: event.token,
        kind: name(event.kind),
        level: level.map(Level::name),
        data: data.to_owned(),
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
    }
}
