//! `ostler logs`: prints the log of a task, and follows it.

use ostler_ops::logs::{LogPage, LogTail};
use ostler_ops::tasks;
use ostler_store::Store;
use ostler_store::views::TaskDetail;
use ostler_wire::event::EventView;
use ostler_wire::transcript_page;

use super::{Console, task_name};
use crate::args::Logs;
use crate::exit::Code;
use crate::print::Format;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, logs: &Logs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let which = task_name::of_one(store.as_ref(), &logs.one).await?;
    let found = tasks::find(store.as_ref(), &which).await?;
    let tail = LogTail::new(found.task.id, 0);
    let mut tail = if logs.raw { tail.with_raw() } else { tail };
    if logs.html {
        return page(console, store.as_ref(), &found, tail).await;
    }
    let mut changes = store.changes();
    let mut lines = Lines::default();
    loop {
        match tail.next(store.as_ref()).await? {
            LogPage::Events(events) => {
                let views: Vec<EventView> = events.iter().map(EventView::from).collect();
                print(console, &views, &mut lines)?;
            }
            LogPage::UpToDate if logs.follow => {
                changes.wait().await;
            }
            LogPage::UpToDate | LogPage::Ended => {
                console.out.text(lines.end())?;
                return Ok(Code::Done);
            }
        }
    }
}

/// Prints the events so far as an HTML page.
async fn page(
    console: &Console,
    store: &dyn Store,
    found: &TaskDetail,
    mut tail: LogTail,
) -> anyhow::Result<Code> {
    console.out.task_text(&transcript_page::head(found))?;
    let mut attempts = found.attempts.iter().peekable();
    while let LogPage::Events(events) = tail.next(store).await? {
        let mut text = String::new();
        for event in &events {
            while let Some(attempt) = attempts.next_if(|attempt| attempt.token <= event.token) {
                text.push_str(&transcript_page::attempt_heading(attempt));
            }
            text.push_str(&transcript_page::event(event));
        }
        console.out.task_text(&text)?;
    }
    let silent: String = attempts.map(transcript_page::attempt_heading).collect();
    console.out.task_text(&silent)?;
    console.out.text(transcript_page::FOOT)?;
    Ok(Code::Done)
}

/// Whether the last output ended its line: pieces of standard output may not.
#[derive(Clone, Copy, Default)]
pub(super) enum Lines {
    #[default]
    Whole,
    Open,
}

impl Lines {
    /// Ends an open line.
    pub(super) fn end(&mut self) -> &'static str {
        match std::mem::take(self) {
            Self::Whole => "",
            Self::Open => "\n",
        }
    }
}

pub(super) fn print(console: &Console, views: &[EventView], lines: &mut Lines) -> anyhow::Result<()> {
    match console.out.format() {
        Format::Json => {
            let lines: Result<Vec<String>, _> = views.iter().map(serde_json::to_string).collect();
            Ok(console.out.json_line(&lines?.join("\n"))?)
        }
        Format::People => {
            let mut text = String::new();
            for (view, next) in views.iter().zip(views.iter().skip(1).map(Some).chain([None])) {
                if view.is_stdout() {
                    text.push_str(&view.data);
                    *lines = if view.data.ends_with('\n') { Lines::Whole } else { Lines::Open };
                    continue;
                }
                // Of one that follows later, the line has ended.
                text.push_str(if view.is_continued() { "" } else { lines.end() });
                text.push_str(&view.line());
                *lines = Lines::Whole;
                if next.is_some_and(EventView::is_continued) {
                    *lines = Lines::Open;
                } else {
                    text.push('\n');
                }
            }
            Ok(console.out.task_text(&text)?)
        }
    }
}
