//! Prints what items wrote, one after the other: after the commit, and again after a kill only what was not printed yet.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ostler_core::{EndKind, StateName, Task, TaskId};
use ostler_process::Argument;
use ostler_runtime::EndListener;
use ostler_store::Store;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::{TaskDetail, TaskRef};
use tokio::sync::mpsc;

use super::plan::Payload;
use super::progress::Beside;
use crate::attempt_output::AttemptOutput;
use crate::exit::say;
use crate::print::visible;

/// Ends that are passed on as they were found; of those beyond only the names are, and they are looked up again.
const MAX_WHOLE: usize = 256;
/// Bytes of output of such an end.
const MAX_WHOLE_BYTES: usize = 4 * 1024;

/// The end of an item.
pub(crate) enum ItemEnd {
    /// As it was found.
    Whole(Box<TaskDetail>),
    /// Its name alone.
    Named(TaskId),
}

/// Hears which tasks have ended, and passes them on.
pub(crate) struct Reporter {
    ends: Mutex<Option<mpsc::Sender<ItemEnd>>>,
}

impl Reporter {
    /// A reporter, and where the ends come out. It has room for all of them, so that nobody who reads slowly holds it up.
    pub(crate) fn new(items: usize) -> (Arc<Self>, mpsc::Receiver<ItemEnd>) {
        // One that was told twice has room, too.
        let (sender, ends) = mpsc::channel(items.saturating_mul(2).max(1));
        (Arc::new(Self { ends: Mutex::new(Some(sender)) }), ends)
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[async_trait]
impl EndListener for Reporter {
    fn wants(&self) -> OutboxFilter {
        OutboxFilter::NONE.with(EndKind::Completed).with(EndKind::Failed)
    }

    async fn ended(&self, telling: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        let sender = self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sender) = sender {
            let waiting = sender.max_capacity() - sender.capacity();
            let bytes = found.task.output.as_ref().map_or(0, String::len) + found.task.payload.len();
            let small = waiting < MAX_WHOLE && bytes <= MAX_WHOLE_BYTES;
            let end = if small { ItemEnd::Whole(Box::new(found)) } else { ItemEnd::Named(telling.task) };
            let _ = sender.send(end).await;
        }
        Ok(())
    }
}

/// In which order outputs are printed.
pub(crate) enum OutputOrder {
    /// As they come.
    AsTheyCome,
    /// In the order of the items; these numbers are still to come, the lowest first.
    Kept(Vec<u64>),
}

/// Prints outputs until nothing more comes.
pub(crate) struct Printer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) beside: Beside,
    pub(crate) order: OutputOrder,
}

impl Printer {
    pub(crate) async fn serve(self, mut ends: mpsc::Receiver<ItemEnd>) -> anyhow::Result<()> {
        let mut early: BTreeMap<u64, ItemEnd> = BTreeMap::new();
        let mut expected = match &self.order {
            OutputOrder::AsTheyCome => None,
            OutputOrder::Kept(numbers) => Some(numbers.iter().copied().peekable()),
        };
        let mut readable = true;
        while let Some(end) = ends.recv().await {
            let Some(expected) = &mut expected else {
                readable = readable && self.print(end).await?;
                continue;
            };
            let Some((number, end)) = self.numbered(end).await? else { continue };
            early.insert(number, end);
            while let Some(next) = expected.peek().copied() {
                // What was done before, and is told of only now, comes as it comes.
                let Some(entry) = early.first_entry().filter(|entry| *entry.key() <= next) else { break };
                if *entry.key() == next {
                    expected.next();
                }
                let end = entry.remove();
                readable = readable && self.print(end).await?;
            }
        }
        // What never came leaves a gap; what stands behind it is printed all the same.
        for end in early.into_values() {
            readable = readable && self.print(end).await?;
        }
        Ok(())
    }

    async fn found(&self, end: ItemEnd) -> anyhow::Result<Option<Box<TaskDetail>>> {
        Ok(match end {
            ItemEnd::Whole(found) => Some(found),
            ItemEnd::Named(id) => self.store.show(TaskRef::Id(id)).await?.map(Box::new),
        })
    }

    /// The number of the item, and its name alone: it may have to wait for long.
    async fn numbered(&self, end: ItemEnd) -> anyhow::Result<Option<(u64, ItemEnd)>> {
        let Some(found) = self.found(end).await? else { return Ok(None) };
        let payload = serde_json::from_str::<Payload>(&found.task.payload).ok();
        Ok(payload.map(|payload| (payload.number, ItemEnd::Named(found.task.id))))
    }

    /// Prints one; false when nobody reads any more.
    async fn print(&self, end: ItemEnd) -> anyhow::Result<bool> {
        let Some(found) = self.found(end).await? else { return Ok(true) };
        let task = found.task;
        let last = found.attempts.last().map(|attempt| attempt.token);
        let written = AttemptOutput::read(self.store.as_ref(), task.id, last).await?;
        let said: Vec<String> = written
            .warnings
            .iter()
            .map(|warning| format!("{}: {}", visible(&item_of(&task)), visible(warning)))
            .chain(trouble_of(&task))
            .collect();
        let (output, complaints) = (stdout_of(&task, written.stdout), written.stderr);
        if complaints.is_empty() && output.is_empty() && said.is_empty() {
            return Ok(true);
        }
        let beside = self.beside.clone();
        // Whoever reads slowly holds up this thread, and nothing else.
        tokio::task::spawn_blocking(move || {
            let complain = || {
                let _ = io::stderr().write_all(&complaints);
                said.iter().for_each(|sentence| say(sentence));
            };
            beside.print(&output, complain).is_ok()
        })
        .await
        .map_err(Into::into)
    }
}

/// What it wrote to standard output: the task's output, or what its last attempt wrote that did not succeed.
pub(crate) fn stdout_of(task: &Task, of_attempt: Vec<u8>) -> Vec<u8> {
    if task.state.name() != StateName::Completed {
        return of_attempt;
    }
    let output = task.output.as_deref().and_then(|output| serde_json::from_str::<Argument>(output).ok());
    output.unwrap_or_default().0
}

/// The item, for people.
fn item_of(task: &Task) -> String {
    let payload = serde_json::from_str::<Payload>(&task.payload).ok();
    payload.map_or_else(|| task.id.to_string(), |payload| payload.item.shown())
}

/// What went wrong with it, for people.
fn trouble_of(task: &Task) -> Option<String> {
    if task.state.name() != StateName::Failed {
        return None;
    }
    let why = task.last_failure.as_ref().map_or("it died with its node", |failure| failure.message.as_str());
    Some(format!("{}: {}", visible(&item_of(task)), visible(why)))
}
