//! Snapshot of everything a store shows, to compare two stores, or one store before and after.

use ostler_core::TaskId;
use ostler_store::events::{Event, EventQuery};

use ostler_store::MAX_PAGE;
use ostler_store::Store;
use ostler_store::accounts::AccountRecord;
use ostler_store::call_breakers::CallBreakerRecord;
use ostler_store::costs::{CostBy, CostQuery, CostRecord};
use ostler_store::jobs::{JobFilter, JobRecord};
use ostler_store::schedules::ScheduleRecord;
use ostler_store::views::{Cursor, Filter, Survey, TaskDetail, TaskRef};

/// Small, so that every list in a test has several pages.
const PAGE: usize = 7;

/// A snapshot of everything a store shows.
#[derive(Debug, PartialEq)]
pub struct Picture {
    pub(super) survey: Survey,
    pub(super) schedules: Vec<ScheduleRecord>,
    pub(super) jobs: Vec<JobRecord>,
    pub(super) call_breakers: Vec<CallBreakerRecord>,
    pub(super) accounts: Vec<AccountRecord>,
    /// By queue, by model and by attempt.
    pub(super) costs: Vec<Vec<CostRecord>>,
    /// Newest first, as in a list.
    pub(super) tasks: Vec<(TaskDetail, Vec<Event>)>,
}

impl Picture {
    /// Takes a snapshot.
    ///
    /// # Panics
    /// When a call to the store fails.
    pub async fn take(store: &dyn Store) -> Self {
        let mut tasks = Vec::new();
        for id in list_all(store, &Filter::default(), PAGE).await {
            let shown = store.show(TaskRef::Id(id)).await.expect("show answers");
            let detail = shown.unwrap_or_else(|| panic!("{id} is in the list, and show does not find it"));
            tasks.push((detail, read_all(store, id).await));
        }
        let schedules = store.schedules().await.expect("schedules answers");
        let jobs = store.jobs(JobFilter::default(), MAX_PAGE).await.expect("jobs answers");
        let call_breakers = store.call_breakers().await.expect("call_breakers answers");
        let accounts = store.accounts().await.expect("accounts answers");
        let mut costs = Vec::new();
        for by in [CostBy::Queue, CostBy::Model, CostBy::Attempt] {
            let query = CostQuery { by, since: None, until: None, queue: None, limit: MAX_PAGE };
            costs.push(store.costs(query).await.expect("costs answers"));
        }
        Self { survey: survey(store).await, schedules, jobs, call_breakers, accounts, costs, tasks }
    }
}

/// The survey with its workers sorted: the contract promises no order.
pub(super) async fn survey(store: &dyn Store) -> Survey {
    let mut survey = store.survey().await.expect("survey answers");
    survey.workers.sort_by_key(|record| (record.session, record.worker.id));
    survey
}

/// The ids of all matching tasks, page by page.
pub(super) async fn list_all(store: &dyn Store, filter: &Filter, page: usize) -> Vec<TaskId> {
    /// Bounds a list that never ends, which is a defect; no test has this many pages.
    const MOST_PAGES: usize = 100_000;
    let mut ids = Vec::new();
    let mut after: Option<Cursor> = None;
    for _ in 0..MOST_PAGES {
        let found = store.list(filter.clone(), after, page).await.expect("list answers");
        assert!(found.tasks.len() <= page, "a page of {page} has {} tasks", found.tasks.len());
        ids.extend(found.tasks.iter().map(|task| task.id));
        after = found.next;
        if after.is_none() {
            return ids;
        }
    }
    panic!("the list goes on after {MOST_PAGES} pages");
}

/// All events of a task, page by page.
pub(super) async fn read_all(store: &dyn Store, id: TaskId) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.number);
        let more = store
            .read_events(id, EventQuery { limit: PAGE, ..EventQuery::default().after(after) })
            .await
            .expect("events are read");
        if more.is_empty() {
            return events;
        }
        assert!(more.iter().all(|event| event.number > after), "events above {after} were asked for");
        events.extend(more);
    }
}
