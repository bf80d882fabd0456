//! `ostler show`: shows one task in detail.

use std::collections::BTreeMap;

use ostler_core::{EventBody, EventKind, EventKinds, TaskId};
use ostler_store::events::{Event, EventQuery};
use ostler_store::views::{TaskDetail, TaskRef};
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_wire::dead::PostMortem;
use ostler_wire::event::stdout_bytes;
use ostler_wire::limits::ThrottleView;
use ostler_wire::task::{Detail, FileView, ShownTask};

use super::{Console, queue};
use crate::args::{One, TaskName};
use crate::exit::{Code, refused};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, one: &One) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let found = find(store.as_ref(), one).await?;
    let held = queue::holds(store.as_ref(), &found.task).await?;
    let left = AttemptRemains::read(store.as_ref(), found.task.id).await?;
    print(console, &found, held, left)
}

/// Files and standard output of attempts, by the attempts' tokens.
#[derive(Default)]
pub(super) struct AttemptRemains {
    files: Vec<(u64, FileView)>,
    /// Standard output of attempts that did not succeed.
    stdout: BTreeMap<u64, Vec<u8>>,
}

impl AttemptRemains {
    /// Reads only events of these two kinds: a log may be long.
    pub(super) async fn read(store: &dyn Store, id: TaskId) -> anyhow::Result<Self> {
        let mut left = Self::default();
        let kinds = EventKinds::only(EventKind::File).with(EventKind::Stdout);
        let mut query = EventQuery { kinds, ..EventQuery::default() };
        loop {
            let events = store.read_events(id, query).await?;
            let Some(newest) = events.last() else { return Ok(left) };
            query.after = newest.number;
            events.iter().for_each(|event| left.take(event));
        }
    }

    fn take(&mut self, event: &Event) {
        self.files.extend(FileView::of_event(&event.body).map(|file| (event.token, file)));
        if let EventBody::Stdout { text } = &event.body {
            self.stdout.entry(event.token).or_default().extend(stdout_bytes(text));
        }
    }

    /// Adds the files and outputs to the task.
    pub(super) fn with(self, detail: Detail) -> Detail {
        let text = |(token, bytes): (u64, Vec<u8>)| (token, String::from_utf8_lossy(&bytes).into_owned());
        detail.with_files(self.files).with_stdout(self.stdout.into_iter().map(text).collect())
    }
}

/// Prints a task, what throttles it, and the files and outputs of its attempts.
pub(super) fn print(
    console: &Console,
    found: &TaskDetail,
    held: Option<ThrottleView>,
    left: AttemptRemains,
) -> anyhow::Result<Code> {
    let detail = Detail::new(&found.task, &found.attempts, &found.steps, &found.after, held);
    let detail = left.with(detail);
    let shown = ShownTask { reason: PostMortem::from(&found.task).reason, detail };
    console.out.answer(&shown, |looks| {
        let detail = &shown.detail;
        print::show(found, detail.held.as_ref(), &detail.attempts, SystemClock.now(), looks)
    })?;
    Ok(Code::Done)
}

pub(super) async fn find(store: &dyn Store, one: &One) -> anyhow::Result<TaskDetail> {
    named(store, &one.task, &one.queue).await
}

/// The task with this name; a key is looked up in `queue`.
pub(super) async fn named(store: &dyn Store, task: &TaskName, queue: &str) -> anyhow::Result<TaskDetail> {
    let which = match task {
        TaskName::Id(id) => TaskRef::Id(*id),
        TaskName::Key(key) => TaskRef::Key { queue: queue.to_owned(), key: key.clone() },
    };
    store.show(which).await?.ok_or_else(|| {
        let sentence = match task {
            TaskName::Id(id) => format!("there is no task {id}"),
            TaskName::Key(key) => format!(
                "there is no task with the key \"{}\" in the queue \"{}\"; use --queue for another queue",
                visible(key),
                visible(queue)
            ),
        };
        refused(Code::NotFound, sentence)
    })
}
