//! `ostler show`: all about one task.

use ostler_core::TaskId;
use ostler_store::calls::EventKind;
use ostler_store::views::{TaskDetail, Which};
use ostler_store::{Clock as _, MAX_PAGE, Store, SystemClock};
use ostler_wire::dead::PostMortem;
use ostler_wire::limits::Held;
use ostler_wire::task::{Detail, FileView, Shown};

use super::{Console, queue};
use crate::args::{One, TaskName};
use crate::exit::{Code, refused};
use crate::place::Missing;
use crate::print::{self, visible};

pub(super) async fn run(console: &Console, one: &One) -> anyhow::Result<Code> {
    let store = console.place()?.open(Missing::Refuse).await?;
    let found = find(store.as_ref(), one).await?;
    let held = queue::holds(store.as_ref(), &found.task).await?;
    let files = files(store.as_ref(), found.task.id).await?;
    print(console, &found, held, files)
}

/// The files that its attempts left, with the tokens of the attempts.
pub(super) async fn files(store: &dyn Store, id: TaskId) -> anyhow::Result<Vec<(u64, FileView)>> {
    let (mut files, mut last) = (Vec::new(), 0);
    loop {
        let events = store.read_events_of(id, EventKind::File, last, MAX_PAGE).await?;
        let Some(newest) = events.last() else { return Ok(files) };
        last = newest.number;
        files.extend(events.iter().filter_map(|event| Some((event.token, FileView::of_event(&event.data)?))));
    }
}

/// Prints a task, what holds it back, and what its attempts left.
pub(super) fn print(
    console: &Console,
    found: &TaskDetail,
    held: Option<Held>,
    files: Vec<(u64, FileView)>,
) -> anyhow::Result<Code> {
    let detail = Detail::new(&found.task, &found.attempts, &found.steps, &found.after, held);
    let detail = detail.with_files(files);
    let shown = Shown { reason: PostMortem::from(&found.task).reason, detail };
    console.out.answer(&shown, |looks| {
        let detail = &shown.detail;
        print::show(found, detail.held.as_ref(), &detail.attempts, SystemClock.now(), looks)
    })?;
    Ok(Code::Done)
}

/// The task that is meant.
pub(super) async fn find(store: &dyn Store, one: &One) -> anyhow::Result<TaskDetail> {
    named(store, &one.task, &one.queue).await
}

/// The task with this name; a key is looked for in the queue.
pub(super) async fn named(store: &dyn Store, task: &TaskName, queue: &str) -> anyhow::Result<TaskDetail> {
    let which = match task {
        TaskName::Id(id) => Which::Id(*id),
        TaskName::Key(key) => Which::Key { queue: queue.to_owned(), key: key.clone() },
    };
    store.show(which).await?.ok_or_else(|| {
        let sentence = match task {
            TaskName::Id(id) => format!("there is no task {id}"),
            TaskName::Key(key) => format!(
                "there is no task with the key \"{}\" in the queue \"{}\"; --queue names another queue",
                visible(key),
                visible(queue)
            ),
        };
        refused(Code::NotFound, sentence)
    })
}
