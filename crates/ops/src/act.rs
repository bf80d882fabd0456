//! Actions on many tasks: cancel, replay, copy, drop. In bounded batches, with progress; the caller is asked before a filter acts.

use async_trait::async_trait;
use ostler_core::{Id, StateName, Task, TaskId};
use ostler_store::calls::{Enqueued, NewTask, Prune, Replay};
use ostler_store::views::TaskRef;
use ostler_store::{Store, release_all_dependents};
use ostler_wire::action::{ActionResult, ActionView};

use crate::error::OpsError;
use crate::selection::{SelectedBy, Selection, Selector, select};

/// The number of tasks in one batch. Nodes write in between.
pub const ACT_BATCH: usize = 1_000;

/// Makes ids for new tasks.
pub type MakeId<'a> = &'a (dyn Fn() -> Id + Send + Sync);

/// What to do with each task.
pub enum Act<'a> {
    /// Cancels waiting tasks, and asks running ones to stop.
    Cancel,
    /// Requeues failed and cancelled tasks, and makes waiting ones due now.
    Replay(Replay),
    /// Replays dead letters only.
    ReplayLetters(Replay),
    /// Enqueues a copy, with another payload if one is given.
    Copy { payload: Option<String>, ids: MakeId<'a> },
    /// Removes dead letters permanently.
    DropLetters,
}

impl Act<'_> {
    /// The states to which it applies.
    #[must_use]
    pub const fn states(&self) -> &'static [StateName] {
        match self {
            Self::Cancel => &[StateName::Queued, StateName::Claimed, StateName::Running],
            Self::Replay(_) => &[StateName::Failed, StateName::Cancelled],
            Self::Copy { .. } => &[StateName::Completed],
            Self::ReplayLetters(_) | Self::DropLetters => &[StateName::Failed],
        }
    }

    /// Whether tasks that are named one by one must be dead letters.
    const fn is_for_letters(&self) -> bool {
        match self {
            Self::ReplayLetters(_) | Self::DropLetters => true,
            Self::Cancel | Self::Replay(_) | Self::Copy { .. } => false,
        }
    }
}

/// The caller of an action: a person at a terminal, or the client of an API.
#[async_trait]
pub trait Operator: Send {
    /// Whether to act on this many tasks. Asked once, and only if a filter selected them.
    async fn approve(&mut self, tasks: usize) -> Approval;

    /// Called after each batch.
    fn progress(&mut self, _done: usize, _of: usize) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    GoOn,
    Stop,
}

/// What an action did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acted {
    /// The operator declined: nothing was done.
    Declined,
    Done {
        by: SelectedBy,
        /// One for each task.
        answers: Vec<ActionView>,
    },
}

/// Selects tasks, asks the operator, and acts on them batch by batch.
///
/// # Errors
/// When the selection is refused or the store cannot be written. What earlier batches did stays done.
pub async fn act(
    store: &dyn Store,
    selector: &Selector,
    act: &Act<'_>,
    operator: &mut dyn Operator,
) -> Result<Acted, OpsError> {
    let Selection { ids, by } = select(store, selector, act.states()).await?;
    if by == SelectedBy::Filter && !ids.is_empty() && operator.approve(ids.len()).await == Approval::Stop {
        return Ok(Acted::Declined);
    }
    let (of, mut answers) = (ids.len(), Vec::new());
    let ids = match by {
        SelectedBy::Name if act.is_for_letters() => only_letters(store, ids, &mut answers).await?,
        // Those that match are dead letters already.
        SelectedBy::Name | SelectedBy::Filter => ids,
    };
    for batch in ids.chunks(ACT_BATCH) {
        answers.extend(act_on(store, batch, act).await?);
        operator.progress(answers.len(), of);
    }
    if answers.iter().any(|answer| answer.result == ActionResult::Cancelled) {
        release_all_dependents(store).await?;
    }
    Ok(Acted::Done { by, answers })
}

/// Acts on one batch, of up to [`ACT_BATCH`] tasks or a page of a selection.
///
/// # Errors
/// When the store cannot be written, or the queue of a copy is full.
pub async fn act_on(store: &dyn Store, batch: &[TaskId], act: &Act<'_>) -> Result<Vec<ActionView>, OpsError> {
    let ids = batch.to_vec();
    let each = batch.iter().copied();
    Ok(match act {
        Act::Cancel => {
            let said = store.cancel(ids).await?;
            each.zip(said).map(|(id, said)| ActionView::cancelled(id, said)).collect()
        }
        Act::Replay(how) | Act::ReplayLetters(how) => {
            let said = store.replay(ids, how.clone()).await?;
            each.zip(said).map(|(id, said)| ActionView::replayed(id, said)).collect()
        }
        Act::Copy { payload, ids: make } => {
            let mut answers = Vec::new();
            for id in ids {
                answers.push(copy(store, id, TaskId(make()), payload.as_deref()).await?);
            }
            answers
        }
        Act::DropLetters => {
            store.prune(Prune::Tasks(ids)).await?;
            each.map(ActionView::dropped).collect()
        }
    })
}

/// Keeps the dead letters, and answers for the tasks that are none.
async fn only_letters(
    store: &dyn Store,
    ids: Vec<TaskId>,
    answers: &mut Vec<ActionView>,
) -> Result<Vec<TaskId>, OpsError> {
    let mut letters = Vec::new();
    for id in ids {
        match store.show(TaskRef::Id(id)).await?.map(|found| found.task.state.name()) {
            Some(StateName::Failed) => letters.push(id),
            Some(state) => answers.push(ActionView::refused(id, state)),
            None => answers.push(ActionView::not_found(id)),
        }
    }
    Ok(letters)
}

/// Enqueues a copy of a task, with all its settings except the unique key, which is taken, and the times, which have passed.
async fn copy(
    store: &dyn Store,
    id: TaskId,
    new: TaskId,
    payload: Option<&str>,
) -> Result<ActionView, OpsError> {
    let Some(found) = store.show(TaskRef::Id(id)).await? else { return Ok(ActionView::not_found(id)) };
    let queue = found.task.queue.clone();
    match store.enqueue(vec![copy_of(found.task, new, payload)]).await?.as_slice() {
        [Enqueued::Created(copy) | Enqueued::Existing(copy)] => Ok(ActionView::copied(id, *copy)),
        [Enqueued::QueueFull { limit }] => Err(OpsError::QueueFull { queue, limit: *limit }),
        other => unreachable!("one task has one answer, not {other:?}"),
    }
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
