//! Results of a job's items, in their order: one row at a time, so that only one output is in memory.

use ostler_core::{JobId, TaskId};
use ostler_store::Store;
use ostler_store::jobs::queue_of;
use ostler_store::views::{Filter, TaskDetail, TaskRef};
use ostler_wire::job::JobResultView;

use super::find::by_id;
use super::spec::{ItemFolders, ItemPayload, JobSpec};
use crate::error::OpsError;
use crate::output::AttemptOutput;

/// Tasks per page; each comes with its output.
const PAGE: usize = 50;

/// The tasks of a job in the order of their items.
#[derive(Clone, Debug)]
pub struct JobResults {
    left: std::vec::IntoIter<(u64, TaskId)>,
    /// The number of the last item.
    last: u64,
    folders: Option<ItemFolders>,
}

/// The result of one item.
#[derive(Clone, Debug)]
pub struct ItemResult {
    /// The position among the items, counted from 1.
    pub number: u64,
    pub found: TaskDetail,
    /// The output of the last attempt.
    pub output: AttemptOutput,
    /// The folder of its own.
    pub folder: Option<String>,
}

impl JobResults {
    /// # Errors
    /// When the store cannot be read.
    pub async fn of(store: &dyn Store, job: JobId) -> Result<Self, OpsError> {
        let spec = by_id(store, job).await?.and_then(|record| JobSpec::of(&record));
        let folders = spec.and_then(|spec| spec.item_folders);
        let filter = Filter { queue: Some(queue_of(job)), ..Filter::default() };
        let (mut all, mut unnumbered) = (Vec::new(), Vec::new());
        let mut after = None;
        loop {
            let page = store.list(filter.clone(), after, PAGE).await?;
            for task in &page.tasks {
                match ItemPayload::of(&task.payload) {
                    Some(payload) => all.push((payload.number, task.id)),
                    None => unnumbered.push(task.id),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.sort_unstable();
        let numbered = all.last().map_or(0, |(number, _)| *number);
        // A program that uses the library has payloads of its own, and creates the ids in the order of the items.
        unnumbered.sort_unstable();
        all.extend((numbered + 1..).zip(unnumbered));
        let last = all.last().map_or(0, |(number, _)| *number);
        Ok(Self { left: all.into_iter(), last, folders })
    }

    /// The number of the last item.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The next result; `None` after the last one. A task that was removed since is left out.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<ItemResult>, OpsError> {
        for (number, id) in self.left.by_ref() {
            let Some(found) = store.show(TaskRef::Id(id)).await? else { continue };
            let output = AttemptOutput::of_last(store, &found).await?;
            let folder = self.folders.as_ref().map(|folders| folders.of(id));
            return Ok(Some(ItemResult { number, found, output, folder }));
        }
        Ok(None)
    }
}

impl ItemResult {
    #[must_use]
    pub fn view(&self) -> JobResultView {
        let payload = &self.found.task.payload;
        let item = ItemPayload::of(payload).map_or_else(|| payload.clone(), |payload| payload.item.shown());
        let AttemptOutput { stdout, files, .. } = &self.output;
        let view = JobResultView::new(self.number, item, &self.found, stdout, files.clone());
        JobResultView { folder: self.folder.clone(), ..view }
    }
}
