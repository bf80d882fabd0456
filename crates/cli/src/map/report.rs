//! Prints the outputs of items one after the other: after the commit, and after a crash only those not printed before.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::Add;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ostler_core::{Cost, EndKind, StateName, Task, TaskId};
use ostler_ops::jobs::ItemPayload;
use ostler_ops::output::AttemptOutput;
use ostler_runtime::EndListener;
use ostler_store::Store;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::{TaskDetail, TaskRef};
use tokio::sync::mpsc;

use super::progress::Beside;
use crate::exit::say;
use crate::print::{how_long, visible};

/// Finished items passed on with their details; beyond that only the ids are passed on, and the details are read again.
const MAX_WHOLE: usize = 256;
/// The maximum output size of such an item.
const MAX_WHOLE_BYTES: usize = 4 * 1024;

/// A finished item.
pub(crate) enum ItemEnd {
    /// With its details.
    Whole(Box<TaskDetail>),
    /// The id only.
    Named(TaskId),
}

/// Receives finished tasks from the outbox, and passes them on.
pub(crate) struct Reporter {
    ends: Mutex<Option<mpsc::Sender<ItemEnd>>>,
}

impl Reporter {
    /// A reporter and its receiver. The channel has room for all items, so that a slow reader does not block the reporter.
    pub(crate) fn new(items: usize) -> (Arc<Self>, mpsc::Receiver<ItemEnd>) {
        // Twice the number of items, because delivery may repeat.
        let (sender, ends) = mpsc::channel(items.saturating_mul(2).max(1));
        (Arc::new(Self { ends: Mutex::new(Some(sender)) }), ends)
    }

    /// Closes the channel.
    pub(crate) fn close(&self) {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[async_trait]
impl EndListener for Reporter {
    fn subscriber(&self) -> &str {
        "map"
    }

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

/// The order in which outputs are printed.
pub(crate) enum OutputOrder {
    /// As they arrive.
    AsTheyCome,
    /// In the order of the items; these numbers are still missing, the lowest first.
    Kept(Vec<u64>),
}

/// Whether each completed item gets a line on standard error, where there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemLines {
    Printed,
    LeftOut,
}

/// Whether each line of an output begins with its item and a tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineTags {
    Printed,
    LeftOut,
}

/// Prints outputs until the channel is closed.
pub(crate) struct Printer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) beside: Beside,
    pub(crate) order: OutputOrder,
    pub(crate) lines: ItemLines,
    pub(crate) tags: LineTags,
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
                // An item completed in an earlier run and delivered only now is printed as it arrives.
                let Some(entry) = early.first_entry().filter(|entry| *entry.key() <= next) else { break };
                if *entry.key() == next {
                    expected.next();
                }
                let end = entry.remove();
                readable = readable && self.print(end).await?;
            }
        }
        // An item that never arrived leaves a gap; the items after it are printed anyway.
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

    /// The item's number, with the id only: it may have to wait for long.
    async fn numbered(&self, end: ItemEnd) -> anyhow::Result<Option<(u64, ItemEnd)>> {
        let Some(found) = self.found(end).await? else { return Ok(None) };
        let payload = ItemPayload::of(&found.task.payload);
        Ok(payload.map(|payload| (payload.number, ItemEnd::Named(found.task.id))))
    }

    /// Prints one item; false if the output has been closed.
    async fn print(&self, end: ItemEnd) -> anyhow::Result<bool> {
        let Some(found) = self.found(end).await? else { return Ok(true) };
        let written = AttemptOutput::of_last(self.store.as_ref(), &found).await?;
        let line = match self.lines {
            ItemLines::Printed => completion_of(&found),
            ItemLines::LeftOut => None,
        };
        let task = found.task;
        let said: Vec<String> = written
            .warnings
            .iter()
            .map(|warning| format!("{}: {}", visible(&item_of(&task)), visible(warning)))
            .chain(trouble_of(&task))
            .chain(line)
            .collect();
        let (mut output, complaints) = (written.stdout, written.stderr);
        // The output of a command is as it wrote it; any other result is a line of its own.
        let is_result = ItemPayload::of(&task.payload).is_none_or(|payload| payload.argv.is_empty());
        if is_result && !output.is_empty() && !output.ends_with(b"\n") {
            output.push(b'\n');
        }
        let complaints = match self.tags {
            LineTags::LeftOut => complaints,
            LineTags::Printed => {
                let tag = tag_of(&task);
                output = tagged(&tag, &output);
                tagged(&tag, &complaints)
            }
        };
        if complaints.is_empty() && output.is_empty() && said.is_empty() {
            return Ok(true);
        }
        let beside = self.beside.clone();
        // A slow reader blocks only this thread.
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

fn item_of(task: &Task) -> String {
    let payload = ItemPayload::of(&task.payload);
    payload.map_or_else(|| task.id.to_string(), |payload| payload.item.shown())
}

/// What stands before the lines of an item. A line break in it would make two lines of one.
fn tag_of(task: &Task) -> Vec<u8> {
    let payload = ItemPayload::of(&task.payload);
    let item = payload.map_or_else(|| task.id.to_string().into_bytes(), |payload| payload.item.0);
    if item.iter().any(u8::is_ascii_control) {
        visible(&String::from_utf8_lossy(&item)).into_bytes()
    } else {
        item
    }
}

/// The output with the tag and a tab before each of its lines.
fn tagged(tag: &[u8], output: &[u8]) -> Vec<u8> {
    output
        .split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| [tag, b"\t", line])
        .collect::<Vec<_>>()
        .concat()
}

/// How long a completed item took, and what it cost.
fn completion_of(found: &TaskDetail) -> Option<String> {
    if found.task.state.name() != StateName::Completed {
        return None;
    }
    let took = how_long(found.attempts.last()?.took()?);
    let cost: Option<Cost> =
        found.attempts.iter().filter_map(|attempt| attempt.conversation.cost()).reduce(Add::add);
    let cost = cost.map(|cost| format!(", {cost}")).unwrap_or_default();
    Some(format!("{}: completed, {took}{cost}", visible(&item_of(&found.task))))
}

fn trouble_of(task: &Task) -> Option<String> {
    if task.state.name() != StateName::Failed {
        return None;
    }
    let why = task.last_failure.as_ref().map_or("its node died", |failure| failure.message.as_str());
    Some(format!("{}: {}", visible(&item_of(task)), visible(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_tag_and_an_output_keeps_its_end() {
        assert_eq!(tagged(b"a", b"1\n\n2"), b"a\t1\na\t\na\t2");
        assert_eq!(tagged(b"a", b"1\n"), b"a\t1\n");
        assert_eq!(tagged(b"a", b""), b"");
    }
}
