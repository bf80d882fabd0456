//! `ostler retry`: requeues failed and cancelled tasks, runs waiting ones now, or enqueues copies of completed ones.

use std::sync::Arc;

use anyhow::Context as _;
use ostler_core::{StateName, Task, TaskId};
use ostler_store::calls::{Enqueued, NewTask, Replay, ReplayAnswer, StepsOnReplay};
use ostler_store::views::TaskRef;
use ostler_store::{MAX_BATCH, Store};
use ostler_wire::action::{ActionResult, ActionView};

use super::selection::{Selection, SelectionVerb, choose, chosen, report};
use super::{Console, payload};
use crate::args::Retry;
use crate::exit::{Code, refused};
use crate::store_location::IfMissing;

const REPLAY: SelectionVerb<'_> =
    SelectionVerb { name: "retry", states: &[StateName::Failed, StateName::Cancelled] };
const AGAIN: SelectionVerb<'_> = SelectionVerb { name: "enqueue a copy of", states: &[StateName::Completed] };

pub(super) async fn run(console: &Console, retry: Retry) -> anyhow::Result<Code> {
    chosen(&retry.select)?;
    let place = console.place()?;
    let payload = match retry.payload {
        Some(given) => Some(payload::read(given, place.bounds()).await?),
        None => None,
    };
    let store = place.open(IfMissing::Refuse).await?;
    let verb = if retry.again { AGAIN } else { REPLAY };
    let Some(picked) = choose(store.as_ref(), &retry.select, &verb).await? else { return Ok(Code::Done) };
    let answers = if retry.again {
        copies(store.as_ref(), &picked, payload).await?
    } else {
        let steps = if retry.from_scratch { StepsOnReplay::Drop } else { StepsOnReplay::Keep };
        replays(store.as_ref(), &picked, &Replay { steps, payload }).await?
    };
    report(console, &picked, &answers)
}

/// Replays the tasks.
pub(super) async fn replays(
    store: &dyn Store,
    picked: &Selection,
    how: &Replay,
) -> anyhow::Result<Vec<ActionView>> {
    let mut answers = Vec::new();
    for ids in picked.ids.chunks(MAX_BATCH) {
        let said = store.replay(ids.to_vec(), how.clone()).await?;
        answers.extend(ids.iter().zip(said).map(|(id, said)| answer(*id, said)));
    }
    Ok(answers)
}

fn answer(id: TaskId, said: ReplayAnswer) -> ActionView {
    let (result, state) = match said {
        ReplayAnswer::Requeued => (ActionResult::Requeued, None),
        ReplayAnswer::Hastened => (ActionResult::Hastened, None),
        ReplayAnswer::Refused(StateName::Queued) => (ActionResult::Unchanged, Some(StateName::Queued.name())),
        ReplayAnswer::Refused(state) => (ActionResult::Refused, Some(state.name())),
        ReplayAnswer::NotFound => (ActionResult::NotFound, None),
    };
    ActionView { id: id.to_string(), result, state, copy: None }
}

/// Enqueues a copy of each task, with all its settings except the unique key, which is taken, and the times, which have passed.
async fn copies(
    store: &dyn Store,
    picked: &Selection,
    payload: Option<String>,
) -> anyhow::Result<Vec<ActionView>> {
    let ids = ostler::ids().context("cannot get random bytes from the system")?;
    let payload: Option<Arc<str>> = payload.map(Into::into);
    let mut answers = Vec::new();
    for id in &picked.ids {
        let (result, copy) = match store.show(TaskRef::Id(*id)).await? {
            None => (ActionResult::NotFound, None),
            Some(found) => {
                let copy = copy_of(found.task, TaskId(ids()), payload.as_deref());
                (ActionResult::Copied, Some(enqueue(store, copy).await?.to_string()))
            }
        };
        answers.push(ActionView { id: id.to_string(), result, state: None, copy });
    }
    Ok(answers)
}

fn copy_of(task: Task, id: TaskId, payload: Option<&str>) -> NewTask {
    NewTask {
        priority: task.priority,
        limit_key: task.limit_key,
        overrides: task.overrides,
        folder: task.folder,
        cost: Some(task.cost),
        ..NewTask::new(id, task.queue, task.kind, payload.map_or(task.payload, str::to_owned))
    }
}

async fn enqueue(store: &dyn Store, task: NewTask) -> anyhow::Result<TaskId> {
    match store.enqueue(vec![task]).await?.as_slice() {
        [Enqueued::Created(id) | Enqueued::Existing(id)] => Ok(*id),
        [Enqueued::QueueFull { limit }] => {
            Err(refused(Code::QueueFull, format!("the queue is full: {limit} tasks are waiting, its limit")))
        }
        other => unreachable!("one task has one answer, not {other:?}"),
    }
}
