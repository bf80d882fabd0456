//! `ostler logs`: prints the log of a task, and follows it.

use ostler_ops::logs::{LogPage, LogTail};
use ostler_ops::tasks;
use ostler_store::Store;
use ostler_store::views::TaskDetail;
use ostler_wire::event::EventView;
use ostler_wire::transcript_page;

use super::log_lines::{LogLines, SilentTask};
use super::{Console, task_name};
use crate::args::Logs;
use crate::exit::Code;
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
    let id = found.task.id.to_string();
    let mut lines = LogLines::new(console, &logs.shape);
    lines.know_attempts(attempts(&found));
    if !logs.follow {
        lines.check_attempt(&id)?;
    }
    let mut changes = store.changes();
    loop {
        match tail.next(store.as_ref()).await? {
            LogPage::Events(events) => {
                let views: Vec<EventView> = events.iter().map(EventView::from).collect();
                if lines.must_know_attempts(&views) {
                    lines.know_attempts(attempts(&tasks::find(store.as_ref(), &which).await?));
                }
                lines.print(&views)?;
            }
            LogPage::UpToDate if logs.follow => {
                lines.up_to_date()?;
                changes.wait().await;
            }
            LogPage::UpToDate | LogPage::Ended => break,
        }
    }
    let task = tasks::find(store.as_ref(), &which).await?.task;
    let silent = match (task.state.name().is_terminal(), task.output.is_some()) {
        (false, _) => SilentTask::Running,
        (true, false) => SilentTask::Ended,
        (true, true) => SilentTask::WithOutput,
    };
    lines.end(&id, silent)?;
    Ok(Code::Done)
}

/// The numbers and tokens of the attempts of a task.
fn attempts(found: &TaskDetail) -> impl Iterator<Item = (u32, u64)> {
    found.attempts.iter().map(|attempt| (attempt.number, attempt.token))
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
