//! `ostler logs`: what a task wrote, and what it goes on writing.

use std::time::Duration;

use ostler_core::TaskId;
use ostler_store::calls::EventKind;
use ostler_store::views::{Event, Which};
use ostler_store::{MAX_PAGE, Store as _};
use ostler_wire::system::EventView;

use super::{Console, show};
use crate::args::Logs;
use crate::exit::{Code, refused};
use crate::place::Missing;
use crate::print::Format;

/// How often whoever follows looks for more. Events ring no bell.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(console: &Console, logs: &Logs) -> anyhow::Result<Code> {
    let store = console.place()?.open(Missing::Refuse)?;
    let id = show::find(&store, &logs.one).await?.task.id;
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
                EventKind::Log => text.push_str(event.data.strip_suffix('\n').unwrap_or(&event.data)),
                EventKind::Message | EventKind::ToolCall | EventKind::Progress | EventKind::Warning => {
                    text.push_str(&format!("[{}] {}", name(event.kind), event.data));
                }
            },
        }
        text.push('\n');
    }
    Ok(console.out.text(&text)?)
}

fn view(event: &Event) -> EventView {
    EventView {
        number: event.number,
        at: event.at.into(),
        token: event.token,
        kind: name(event.kind),
        data: event.data.clone(),
    }
}

const fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Log => "log",
        EventKind::Message => "message",
        EventKind::ToolCall => "tool_call",
        EventKind::Progress => "progress",
        EventKind::Warning => "warning",
    }
}
