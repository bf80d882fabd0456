//! Everything a store contains, read through its queries.

use ostler_store::events::{Event, EventQuery};
use ostler_store::views::{Cursor, Filter, Survey, TaskDetail, TaskRef};
use ostler_store::{Error, MAX_PAGE, Store};

/// The contents of a store.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub tasks: Vec<StoredTask>,
    /// Counts, settings, nodes and workers.
    pub survey: Survey,
}

/// A task with its attempts, steps and events.
#[derive(Clone, Debug)]
pub struct StoredTask {
    /// With its attempts and steps.
    pub detail: TaskDetail,
    pub events: Vec<Event>,
}

impl Stored {
    /// Reads everything. There must be no concurrent writes.
    ///
    /// # Errors
    /// The store's.
    pub async fn read(store: &dyn Store) -> Result<Self, Error> {
        let mut tasks = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let page = store.list(Filter::default(), after, MAX_PAGE).await?;
            for task in page.tasks {
                // A task that is listed but not shown is left out, and then the counts do not add up.
                if let Some(detail) = store.show(TaskRef::Id(task.id)).await? {
                    tasks.push(StoredTask { detail, events: events(store, task.id).await? });
                }
            }
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        Ok(Self { tasks, survey: store.survey().await? })
    }
}

async fn events(store: &dyn Store, task: ostler_core::TaskId) -> Result<Vec<Event>, Error> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let query = EventQuery::default().after(all.last().map_or(0, |event| event.number));
        let more = store.read_events(task, query).await?;
        if more.is_empty() {
            return Ok(all);
        }
        all.extend(more);
    }
}
