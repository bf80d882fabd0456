//! A shared store as tests see it: the server itself, beside the nodes that work on it.

use ostler::postgres::{Listening, NewTask, Options, Postgres};
use ostler_core::{StateName, Task, TaskId};
use ostler_store::Store;
use ostler_store::views::{Counts, Filter, TaskDetail, TaskRef};
use ostler_testkit::Ids;
use tokio::runtime::Runtime;

/// Tasks in one write, and in one page.
const MANY: usize = 1_000;

/// The store of a place, opened by the test.
pub(crate) struct Shared {
    runtime: Runtime,
    store: Postgres,
    ids: Ids,
}

impl Shared {
    pub(crate) fn open(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options = Options { listening: Listening::Brief, ..Options::default() };
        let store = runtime.block_on(Postgres::open(url, options)).expect("the server is there");
        Self { runtime, store, ids: Ids::new(7) }
    }

    /// Submits this many identical tasks.
    pub(crate) fn submit(&self, queue: &str, payload: &str, count: usize) {
        for begin in (0..count).step_by(MANY) {
            let new = |_| NewTask::new(self.ids.task(), queue, "k", payload);
            let tasks = (begin..count.min(begin + MANY)).map(new).collect();
            self.runtime.block_on(self.store.enqueue(tasks)).expect("they are submitted");
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let survey = self.runtime.block_on(self.store.survey()).expect("it is read");
        survey.lanes.iter().fold(Counts::default(), |mut all, lane| {
            all.queued += lane.counts.queued;
            all.claimed += lane.counts.claimed;
            all.running += lane.counts.running;
            all.completed += lane.counts.completed;
            all.failed += lane.counts.failed;
            all.cancelled += lane.counts.cancelled;
            all
        })
    }

    pub(crate) fn tasks(&self) -> Vec<Task> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let list = self.store.list(Filter::default(), after, MANY.min(ostler_store::MAX_PAGE));
            let page = self.runtime.block_on(list).expect("it is read");
            all.extend(page.tasks);
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }

    pub(crate) fn show(&self, id: TaskId) -> TaskDetail {
        self.runtime.block_on(self.store.show(TaskRef::Id(id))).expect("it is read").expect("it is there")
    }

    /// Asserts that each task was completed by one attempt; returns how many had earlier attempts that died with their node.
    pub(crate) fn each_was_done_once(&self) -> usize {
        let mut moved = 0;
        for task in self.tasks() {
            assert_eq!(task.state.name(), StateName::Completed, "{}", task.id);
            if task.runs > 1 {
                let attempts = self.show(task.id).attempts;
                let done = attempts.iter().filter(|attempt| {
                    attempt.end.as_ref().is_some_and(|end| end.ending == ostler_core::Ending::Success)
                });
                assert_eq!(done.count(), 1, "{attempts:?}");
                moved += 1;
            }
        }
        moved
    }
}
