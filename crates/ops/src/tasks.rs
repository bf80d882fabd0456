//! Tasks: find, list, show and amend.

use ostler_core::{Overrides, StateName};
use ostler_store::calls::Amended;
use ostler_store::events::EventQuery;
use ostler_store::views::{Cursor, Filter, Page, TaskDetail, TaskRef};
use ostler_store::{MAX_PAGE, Store, check_overrides};
use ostler_wire::action::ActionView;
use ostler_wire::dead::{Letter, LetterDetail};
use ostler_wire::limits::ThrottleView;
use ostler_wire::remains::AttemptRemains;
use ostler_wire::task::ShownTask;

use crate::error::{Missing, OpsError, Refusal};
use crate::obstacle::{Candidate, obstacles};
use crate::progress;
use crate::task_name::{NamedTask, by_part};
use crate::waiting;

/// The task with this id, part of an id, or key.
///
/// # Errors
/// When there is none, or several have this part in their id.
pub async fn find(store: &dyn Store, which: &NamedTask) -> Result<TaskDetail, OpsError> {
    let whole = match which {
        NamedTask::Id(id) => TaskRef::Id(*id),
        NamedTask::Part(part) => TaskRef::Id(by_part(store, *part).await?.id),
        NamedTask::Key { queue, key } => TaskRef::Key { queue: queue.clone(), key: key.clone() },
    };
    store.show(whole.clone()).await?.ok_or_else(|| {
        OpsError::from(match whole {
            TaskRef::Id(id) => Missing::Task(id),
            TaskRef::Key { queue, key } => Missing::Key { queue, key },
        })
    })
}

/// A page of up to `limit` tasks. One call of the store examines a bounded number of rows: where matches are rare, it takes
/// several to fill a page.
///
/// # Errors
/// When the cursor is of another list, or the store cannot be read.
pub async fn list(
    store: &dyn Store,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, OpsError> {
    let mut page = Page { tasks: Vec::new(), next: after };
    loop {
        let wanted = (limit - page.tasks.len()).min(MAX_PAGE);
        let found = store.list(filter.clone(), page.next, wanted).await?;
        page.tasks.extend(found.tasks);
        page.next = found.next;
        if page.next.is_none() || page.tasks.len() >= limit {
            return Ok(page);
        }
    }
}

/// The dead letters of a page, with their steps.
///
/// # Errors
/// When the store cannot be read.
pub async fn letters(store: &dyn Store, page: &Page) -> Result<Vec<Letter>, OpsError> {
    let mut letters = Vec::new();
    for task in &page.tasks {
        // A task that was removed since the list was read has no steps.
        let steps = store.show(TaskRef::Id(task.id)).await?.map(|found| found.steps).unwrap_or_default();
        letters.push(Letter::new(task, &steps));
    }
    Ok(letters)
}

/// A task as `show` presents it, with its record.
#[derive(Clone, Debug)]
pub struct Shown<T> {
    pub record: TaskDetail,
    pub view: T,
}

/// A task with what throttles it and what frees it, and what its attempts left.
///
/// # Errors
/// When there is no such task.
pub async fn show(store: &dyn Store, which: &NamedTask) -> Result<Shown<ShownTask>, OpsError> {
    let record = find(store, which).await?;
    let mut view = ShownTask::new(&record, None, remains(store, &record).await?);
    if record.task.state.name() == StateName::Running {
        view.detail.summary.progress = progress::of_attempt(store, record.task.id, record.task.token).await?;
    }
    if record.task.state.name() == StateName::Queued {
        let survey = store.survey().await?;
        let held = ThrottleView::of_task(&survey, &record.task);
        view.detail.frees = waiting::frees(store, &survey, &record, held.as_ref()).await?;
        view.detail.obstacles = obstacles(&survey, &Candidate::from(&record.task), store.now().await?);
        view.detail.held = held;
    }
    Ok(Shown { record, view })
}

/// A dead letter, with what its attempts left.
///
/// # Errors
/// When there is no such task, or it has not failed for good.
pub async fn show_letter(store: &dyn Store, which: &NamedTask) -> Result<Shown<LetterDetail>, OpsError> {
    let record = find(store, which).await?;
    let (id, state) = (record.task.id, record.task.state.name());
    if state != StateName::Failed {
        return Err(Missing::DeadLetter { id, state }.into());
    }
    let view = LetterDetail::new(&record, remains(store, &record).await?);
    Ok(Shown { record, view })
}

/// What the attempts of a task left: files, and the output of those that did not succeed.
pub(crate) async fn remains(store: &dyn Store, found: &TaskDetail) -> Result<AttemptRemains, OpsError> {
    let mut remains = AttemptRemains::default();
    let mut query = EventQuery { kinds: AttemptRemains::KINDS, ..EventQuery::default() };
    loop {
        let events = store.read_events(found.task.id, query).await?;
        let Some(newest) = events.last() else { return Ok(remains) };
        query.after = newest.number;
        events.iter().for_each(|event| remains.add(event));
    }
}

/// Refuses settings that no task may have. Needs no store.
///
/// # Errors
/// When a value is out of its range, or the first delay is longer than the longest.
pub fn check_amendment(overrides: &Overrides) -> Result<(), OpsError> {
    check_overrides(overrides)?;
    match (overrides.base, overrides.max) {
        (Some(base), Some(max)) if base > max => Err(Refusal::Delays.into()),
        _ => Ok(()),
    }
}

/// Changes the retry and timeout settings of a task that has not finished.
///
/// # Errors
/// When there is no such task, or it has finished.
pub async fn amend(
    store: &dyn Store,
    which: &NamedTask,
    overrides: Overrides,
) -> Result<ActionView, OpsError> {
    check_amendment(&overrides)?;
    let id = find(store, which).await?.task.id;
    match store.amend(id, overrides).await? {
        Amended::Done => Ok(ActionView::amended(id)),
        Amended::Ended(state) => Err(Refusal::Finished { id, state }.into()),
        Amended::NotFound => Err(Missing::Task(id).into()),
    }
}
