//! The plan of a map job: a template and its items, their tasks, and how they are enqueued. The same plan finds its earlier run.

use ostler_core::{JobId, TaskId};
use ostler_store::Store;
use ostler_store::calls::NewTask;
use ostler_store::jobs::{NewJob, queue_of};
use ostler_wire::bytes::ByteString;

use super::find::existing;
use super::fingerprint::{ItemDigest, ItemOrder, fingerprint, marks, task_of};
use super::item::Item;
use super::spec::{ItemPayload, JobSpec, ServedBy};
use super::template::{CommandTemplate, ItemData, UnknownPlaceholder};
use crate::error::OpsError;

/// The kind of the tasks of a map job.
pub const ITEM_KIND: &str = "item";
/// Tasks enqueued in one batch.
const BATCH: usize = 1_000;

/// What a plan is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    pub name: String,
    /// The words of the command.
    pub words: Vec<Vec<u8>>,
    /// The items in order.
    pub items: Vec<Item>,
    /// The names of the columns of the items.
    pub columns: Vec<String>,
    /// The working folder.
    pub folder: String,
    /// The timeout of an item in milliseconds.
    pub timeout_ms: Option<u128>,
}

pub struct JobPlan {
    request: PlanRequest,
    template: CommandTemplate,
    marks: Vec<ItemDigest>,
}

impl JobPlan {
    /// # Errors
    /// When the command has a placeholder for a column that the items do not have.
    pub fn new(request: PlanRequest) -> Result<Self, UnknownPlaceholder> {
        let template = CommandTemplate::parse(&request.words, &request.columns)?;
        let marks = marks(&request.items);
        Ok(Self { request, template, marks })
    }

    /// The items in order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.request.items
    }

    /// The words of the command, each with how much of it is data from items. A shell command line has none.
    pub fn data(&self) -> impl Iterator<Item = (&[u8], ItemData)> {
        self.request.words.iter().map(Vec::as_slice).zip(self.template.data())
    }

    /// The digest of everything the job is made from.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let order = if self.template.counts() { ItemOrder::Matters } else { ItemOrder::Free };
        let timeout = self.request.timeout_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let mut texts: Vec<&[u8]> = vec![self.request.folder.as_bytes(), timeout.as_bytes()];
        texts.extend(self.request.words.iter().map(Vec::as_slice));
        fingerprint(&texts, &self.marks, order)
    }

    /// The command for the `number`-th item, counted from 1.
    #[must_use]
    pub fn argv(&self, number: u64, item: &Item) -> Vec<Vec<u8>> {
        self.template.argv(item, number)
    }

    #[must_use]
    pub fn spec(&self, served_by: ServedBy, jobs: u32, attempts: u32) -> JobSpec {
        JobSpec {
            command: self.request.words.iter().cloned().map(ByteString).collect(),
            folder: self.request.folder.clone(),
            served_by,
            jobs,
            attempts,
            timeout_ms: self.request.timeout_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        }
    }

    pub(super) fn job(&self, id: JobId, spec: &JobSpec) -> NewJob {
        NewJob {
            id,
            name: self.request.name.clone(),
            fingerprint: self.fingerprint(),
            spec: serde_json::to_string(spec).expect("a spec is JSON"),
            items: self.request.items.len() as u64,
        }
    }

    /// The task of the item at index `place`.
    fn task(&self, job: JobId, place: usize) -> NewTask {
        let (item, number) = (&self.request.items[place], place as u64 + 1);
        let payload = ItemPayload {
            number,
            item: ByteString(item.bytes.clone()),
            argv: self.argv(number, item).into_iter().map(ByteString).collect(),
        };
        let payload = serde_json::to_string(&payload).expect("a payload is JSON");
        let task = NewTask::new(self.task_id(job, place), queue_of(job), ITEM_KIND, payload);
        NewTask { folder: Some(self.request.folder.clone()), ..task }
    }

    /// The id of that task: the same whenever the plan is.
    #[must_use]
    pub fn task_id(&self, job: JobId, place: usize) -> TaskId {
        task_of(job, self.marks[place])
    }
}

/// Enqueues the items. Existing ones are not changed; a cancelled job gets no more.
///
/// # Errors
/// When the job was removed, or the store cannot be written. Repeating it goes on where it was.
pub async fn enqueue(store: &dyn Store, plan: &JobPlan, job: JobId) -> Result<u64, OpsError> {
    let places: Vec<usize> = (0..plan.items().len()).collect();
    for some in places.chunks(BATCH) {
        if existing(store, job).await?.cancelled_at.is_some() {
            break;
        }
        store.enqueue(some.iter().map(|place| plan.task(job, *place)).collect()).await?;
    }
    Ok(plan.items().len() as u64)
}
