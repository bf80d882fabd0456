//! Reads the store for `top`, while it is shown: the overview as it changes, the doctor's findings from time to time, and the events of one
//! task. Each sender waits until its last message was taken, so that a slow terminal slows the reading.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{TaskId, visible};
use ostler_exec::ThreadEnvironment;
use ostler_ops::logs::{LogPage, LogTail};
use ostler_ops::overview::whole;
use ostler_store::{Store, SystemClock};
use ostler_wire::event::EventView;
use ostler_wire::overview::OverviewView;
use ostler_wire::system::FindingView;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::run::TopEvent;
use crate::config::{Config, ConfigError, StoreUrl};
use crate::doctor::{Subject, examine};

/// The minimum interval between two readings, and so between two frames that they cause.
pub(crate) const SPACING: Duration = Duration::from_millis(250);
/// How often the doctor looks.
const DOCTOR: Duration = Duration::from_secs(30);
/// Characters of a line of a transcript.
const MAX_LINE_CHARS: usize = 4_096;

/// Sends the overview after each change of the store.
pub(crate) async fn watch_store(store: Arc<dyn Store>, events: Sender<TopEvent>) {
    let mut changes = store.changes();
    loop {
        let began = Instant::now();
        let read: Result<OverviewView, String> =
            whole(store.as_ref(), Vec::new()).await.map_err(|error| error.to_string());
        if events.send(TopEvent::Read(Box::new(read))).await.is_err() {
            return;
        }
        changes.wait().await;
        tokio::time::sleep_until(began + SPACING).await;
    }
}

/// Sends what the doctor finds.
pub(crate) async fn watch_health(
    store: StoreUrl,
    config: impl Fn() -> Option<Result<Config, ConfigError>> + Send,
    events: Sender<TopEvent>,
) {
    loop {
        let found = findings(store.clone(), config()).await;
        if events.send(TopEvent::Found(found)).await.is_err() {
            return;
        }
        tokio::time::sleep(DOCTOR).await;
    }
}

/// `ostler doctor`, without starting a supervisor.
pub(crate) async fn findings(
    store: StoreUrl,
    config: Option<Result<Config, ConfigError>>,
) -> Vec<FindingView> {
    let threads = Some(ThreadEnvironment::here());
    let clock = Arc::new(SystemClock);
    examine(Subject { store: Some(store), config, containment: None, threads, clock }).await
}

/// Sends the events of a task as lines, until it has ended.
pub(crate) async fn watch_task(store: Arc<dyn Store>, task: TaskId, events: Sender<TopEvent>) {
    let (mut changes, mut tail) = (store.changes(), LogTail::new(task, 0));
    loop {
        let lines = match tail.next(store.as_ref()).await {
            Ok(LogPage::Events(page)) => {
                page.iter().flat_map(|event| shown(&EventView::from(event).line())).collect()
            }
            Ok(LogPage::UpToDate) => {
                let began = Instant::now();
                changes.wait().await;
                tokio::time::sleep_until(began + SPACING).await;
                continue;
            }
            Ok(LogPage::Ended) => vec!["(the task has ended)".to_owned()],
            Err(error) => vec![format!("({})", visible(&error.to_string()))],
        };
        let last = lines.len() == 1 && lines[0].starts_with('(');
        if events.send(TopEvent::Lines(task, lines)).await.is_err() || last {
            return;
        }
    }
}

/// An event as lines of a screen, escaped.
fn shown(text: &str) -> Vec<String> {
    let cut = |line: &str| visible(&line.chars().take(MAX_LINE_CHARS).collect::<String>());
    text.trim_end_matches('\n').split('\n').map(cut).collect()
}
