//! `ostler logs`: prints the log of a task, and follows it.

use std::time::Duration;

use ostler_core::{EventBody, TaskId};
use ostler_store::events::{Event, EventQuery};
use ostler_store::views::TaskRef;
use ostler_wire::event::{EventView, line, stdout_bytes};

use super::{Console, show};
use crate::args::Logs;
use crate::exit::{Code, refused};
use crate::print::Format;
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
            let events = store.read_events(id, EventQuery::default().after(last)).await?;
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
            let view =
                |event: &Event| EventView::new(event.number, event.at, event.token, &event.body, event.cut);
            let lines: Result<Vec<String>, _> =
                events.iter().map(|event| serde_json::to_string(&view(event))).collect();
            Ok(console.out.json_line(&lines?.join("\n"))?)
        }
        Format::People => {
            let mut text = String::new();
            for event in events {
                if let EventBody::Stdout { text: piece } = &event.body {
                    let piece = stdout_bytes(piece);
                    text.push_str(&String::from_utf8_lossy(&piece));
                    *lines = if piece.ends_with(b"\n") { Lines::Whole } else { Lines::Open };
                    continue;
                }
                text.push_str(lines.end());
                text.push_str(&line(&event.body));
                text.push('\n');
            }
            Ok(console.out.task_text(&text)?)
        }
    }
}
