//! How far running tasks have come: the last progress event of each.

use ostler_core::{EventKind, State, Task, TaskId};
use ostler_store::Store;
use ostler_store::events::{Event, EventQuery};
use ostler_wire::event::ReportedProgress;
use ostler_wire::task::Summary;

use crate::error::OpsError;

/// The maximum number of running tasks of a list whose progress is read, which is a query for each.
const MAX_TASKS: usize = 100;
/// How far to look ahead of a full page of progress events; doubled each time.
const FIRST_STRIDE: u64 = 1_024;

/// The views of tasks in a list. Those that are running have their progress.
///
/// # Errors
/// When the store cannot be read.
pub async fn summaries(store: &dyn Store, tasks: &[Task]) -> Result<Vec<Summary>, OpsError> {
    let mut views: Vec<Summary> = tasks.iter().map(Summary::from).collect();
    let running = tasks.iter().zip(&mut views).filter(|(task, _)| is_running(task));
    for (task, view) in running.take(MAX_TASKS) {
        view.progress = of_attempt(store, task.id, task.token).await?;
    }
    Ok(views)
}

const fn is_running(task: &Task) -> bool {
    match task.state {
        State::Running { .. } => true,
        State::Queued { .. }
        | State::Claimed { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => false,
    }
}

/// The progress of the attempt with this token, if it is the last one that reported any.
pub(crate) async fn of_attempt(
    store: &dyn Store,
    id: TaskId,
    token: u64,
) -> Result<Option<ReportedProgress>, OpsError> {
    let last = last(store, id).await?.filter(|event| event.token == token);
    Ok(last.and_then(|event| ReportedProgress::of_event(&event.body)))
}

/// The last progress event. Few tasks have more than a page of them; of those it is found by a binary search.
async fn last(store: &dyn Store, id: TaskId) -> Result<Option<Event>, OpsError> {
    let query = EventQuery::of(EventKind::Progress);
    let page = store.read_events(id, query).await?;
    let is_all = page.len() < query.limit;
    let Some(mut last) = page.into_iter().next_back() else { return Ok(None) };
    if is_all {
        return Ok(Some(last));
    }
    let mut stride = FIRST_STRIDE;
    while let Some(later) = first_after(store, id, last.number.saturating_add(stride)).await? {
        last = later;
        stride = stride.saturating_mul(2);
    }
    while stride > 0 {
        stride /= 2;
        if let Some(later) = first_after(store, id, last.number.saturating_add(stride)).await? {
            last = later;
        }
    }
    Ok(Some(last))
}

async fn first_after(store: &dyn Store, id: TaskId, number: u64) -> Result<Option<Event>, OpsError> {
    let query = EventQuery { limit: 1, ..EventQuery::of(EventKind::Progress).after(number) };
    Ok(store.read_events(id, query).await?.pop())
}
