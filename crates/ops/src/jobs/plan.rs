//! The plan of a map job: a template and its items, their tasks, and how they are enqueued. The same plan finds its earlier run.

use std::sync::Arc;

use ostler_core::{JobId, OnFailed, TaskId};
use ostler_store::Store;
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::jobs::{JobChange, NewJob, queue_of};
use ostler_wire::bytes::ByteString;
use serde_json::{Map, Value, json};

use super::find::existing;
use super::fingerprint::{ItemDigest, ItemOrder, fingerprint, marks, task_of};
use super::item::Item;
use super::pilot;
use super::placeholder::{ItemShape, asks_for_parts};
use super::spec::{ItemFolders, ItemPayload, JobPool, JobSpec, ServedBy};
use super::template::{CommandTemplate, DEFAULT_SHELL, ItemData, TemplateError};
use crate::error::OpsError;

/// The kind of the tasks of a map job that runs a command.
pub const ITEM_KIND: &str = "item";
/// Tasks enqueued in one batch.
const BATCH: usize = 1_000;
/// The maximum size of the payloads of such a batch, unless it is a single task.
const BATCH_BYTES: usize = 16 << 20;

/// What a plan is made from.
pub struct PlanRequest {
    pub name: String,
    pub work: ItemWork,
    /// The items in order.
    pub items: Vec<Item>,
    /// The names of the columns of the items.
    pub columns: Vec<String>,
    /// The working folder.
    pub folder: String,
    /// Where each item has a folder of its own.
    pub item_folders: Option<ItemFolders>,
    /// The shell for a command of one string; `None`: sh, where the string needs one.
    pub shell: Option<String>,
    /// The timeout of an item in milliseconds.
    pub timeout_ms: Option<u128>,
    /// How many items run before the others are approved.
    pub pilot: Option<u64>,
    /// The number of items that the job had before these, if they are added to it.
    pub before: u64,
}

/// What is run for each item.
pub enum ItemWork {
    /// A command: the words of its template.
    Command(Vec<Vec<u8>>),
    /// A task for the executor of a pool.
    Pool(PoolWork),
}

/// Tasks for the executor of a pool.
pub struct PoolWork {
    pub pool: JobPool,
    /// Renders the template of the pool's prompts, if it has one.
    pub prompt: Option<RenderPrompt>,
    /// The maximum size of a payload in bytes.
    pub payload_bytes: usize,
}

/// A prompt template that was read.
pub struct RenderPrompt {
    /// The prompt for an item with this number, counted from 1, of this many.
    pub render: RenderItem,
    pub order: ItemOrder,
}

/// Renders the prompt for an item, by its number and the number of all items. The error is a sentence.
pub type RenderItem = Arc<dyn Fn(&Item, u64, u64) -> Result<String, String> + Send + Sync>;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// An item that is neither a number nor a name, where a shell computes.
    #[error("item {number}: \"{value}\" is no number, as $(( )) in the command needs it")]
    NotNumeric { number: u64, value: String },
    /// The prompt of an item cannot be rendered.
    #[error("item {number}: {why}")]
    Prompt { number: u64, why: String },
    /// The payload of an item is too large.
    #[error("item {number} makes a payload of {bytes} bytes; at most {most} are accepted")]
    TooLarge { number: u64, bytes: usize, most: usize },
}

pub struct JobPlan {
    request: PlanRequest,
    /// The template of the command, if there is one.
    template: Option<CommandTemplate>,
    marks: Vec<ItemDigest>,
}

impl JobPlan {
    /// Checks each item, before anything is stored.
    ///
    /// # Errors
    /// When the template asks for something that an item does not have, or a payload is too large.
    pub fn new(request: PlanRequest) -> Result<Self, PlanError> {
        let template = match &request.work {
            ItemWork::Command(words) => {
                let shape = ItemShape { fields: &request.columns, parts: parts(&request.items) };
                Some(CommandTemplate::parse(words, request.shell.as_deref(), shape)?)
            }
            ItemWork::Pool(_) => None,
        };
        for (number, item) in (request.before + 1..).zip(&request.items) {
            if let Some(value) = template.as_ref().and_then(|template| template.not_numeric(item, number)) {
                let value = String::from_utf8_lossy(&value).into_owned();
                return Err(PlanError::NotNumeric { number, value });
            }
        }
        let marks = marks(&request.items);
        let plan = Self { request, template, marks };
        if let ItemWork::Pool(PoolWork { payload_bytes: most, .. }) = &plan.request.work {
            for (number, item) in (plan.request.before + 1..).zip(&plan.request.items) {
                let bytes = plan.payload(number, item)?.len();
                if bytes > *most {
                    return Err(PlanError::TooLarge { number, bytes, most: *most });
                }
            }
        }
        Ok(plan)
    }

    /// The same over a pool that asks this of a model besides what is in the payloads.
    #[must_use]
    pub fn asking(mut self, question: Option<Map<String, Value>>) -> Self {
        match &mut self.request.work {
            ItemWork::Pool(work) => work.pool.asks(question),
            ItemWork::Command(_) => {}
        }
        self
    }

    /// The items in order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.request.items
    }

    /// The pool that runs the items; `None` if a command does.
    #[must_use]
    pub const fn pool(&self) -> Option<&JobPool> {
        match &self.request.work {
            ItemWork::Command(_) => None,
            ItemWork::Pool(work) => Some(&work.pool),
        }
    }

    /// Where each item has a folder of its own.
    #[must_use]
    pub const fn item_folders(&self) -> Option<&ItemFolders> {
        self.request.item_folders.as_ref()
    }

    /// The words of the command, each with how much of it is data from items. A shell command line has none.
    pub fn data(&self) -> impl Iterator<Item = (&[u8], ItemData)> {
        let words = match &self.request.work {
            ItemWork::Command(words) => words.as_slice(),
            ItemWork::Pool(_) => &[],
        };
        let data = self.template.as_ref().map(CommandTemplate::data).unwrap_or_default();
        words.iter().map(Vec::as_slice).zip(data)
    }

    /// The digest of everything the job is made from.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let timeout = self.request.timeout_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let mut texts: Vec<&[u8]> = vec![self.request.folder.as_bytes(), timeout.as_bytes()];
        let folders = self.request.item_folders.as_ref();
        let folders = folders.map(|folders| serde_json::to_string(folders).expect("folders are JSON"));
        let shell = self.request.shell.as_deref().filter(|shell| *shell != DEFAULT_SHELL);
        let shell = shell.map(|shell| format!("\0shell {shell}"));
        let (pool, order);
        match &self.request.work {
            ItemWork::Command(words) => {
                texts.extend(words.iter().map(Vec::as_slice));
                // No word of a command line has a NUL. Commands without these have the fingerprint that they always had.
                if asks_for_parts(words, parts(&self.request.items)) {
                    texts.push(b"\0parts");
                }
                if let Some(shell) = &shell {
                    texts.push(shell.as_bytes());
                }
                let counts = self.template.as_ref().is_some_and(CommandTemplate::counts);
                order = if counts { ItemOrder::Matters } else { ItemOrder::Free };
            }
            ItemWork::Pool(work) => {
                pool = serde_json::to_string(&work.pool).expect("a pool is JSON");
                texts.push(pool.as_bytes());
                order = work.prompt.as_ref().map_or(ItemOrder::Free, |prompt| prompt.order);
            }
        }
        texts.extend(folders.iter().map(String::as_bytes));
        fingerprint(&texts, &self.marks, order)
    }

    /// The command for the `number`-th item, counted from 1; `None` if a pool runs the items.
    #[must_use]
    pub fn argv(&self, number: u64, item: &Item) -> Option<Vec<Vec<u8>>> {
        self.template.as_ref().map(|template| template.argv(item, number))
    }

    /// The prompt for the `number`-th item; `None` if the job has no prompts.
    ///
    /// # Errors
    /// When it cannot be rendered.
    pub fn prompt(&self, number: u64, item: &Item) -> Result<Option<String>, PlanError> {
        let ItemWork::Pool(PoolWork { prompt: Some(prompt), .. }) = &self.request.work else {
            return Ok(None);
        };
        let total = self.request.before + self.request.items.len() as u64;
        let rendered = (prompt.render)(item, number, total);
        rendered.map(Some).map_err(|why| PlanError::Prompt { number, why })
    }

    /// The payload of the `number`-th item.
    ///
    /// # Errors
    /// When its prompt cannot be rendered.
    pub fn payload(&self, number: u64, item: &Item) -> Result<String, PlanError> {
        let text = ByteString(item.bytes.clone());
        Ok(match &self.request.work {
            ItemWork::Command(_) => {
                let argv = self.argv(number, item).unwrap_or_default();
                let argv = argv.into_iter().map(ByteString).collect();
                serde_json::to_string(&ItemPayload { number, item: text, argv }).expect("a payload is JSON")
            }
            ItemWork::Pool(work) => {
                let mut payload = Map::new();
                payload.insert("number".to_owned(), number.into());
                payload.insert("item".to_owned(), item.row().map_or_else(|| json!(text), Value::Object));
                payload.extend(work.pool.options.clone());
                if let Some(prompt) = self.prompt(number, item)? {
                    payload.insert("prompt".to_owned(), prompt.into());
                }
                Value::Object(payload).to_string()
            }
        })
    }

    /// The spec of the job. `jobs` items run at once, with this many attempts each; `None`: as the pool is set.
    #[must_use]
    pub fn spec(&self, served_by: ServedBy, jobs: Option<u32>, attempts: Option<u32>) -> JobSpec {
        let (command, pool) = match &self.request.work {
            ItemWork::Command(words) => (words.iter().cloned().map(ByteString).collect(), None),
            ItemWork::Pool(work) => (Vec::new(), Some(work.pool.clone())),
        };
        JobSpec {
            command,
            folder: self.request.folder.clone(),
            served_by,
            jobs,
            attempts,
            timeout_ms: self.request.timeout_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            pool,
            pilot: self.pilot(),
            item_folders: self.request.item_folders.clone(),
            shell: self.request.shell.clone(),
            parts: Some(parts(&self.request.items)).filter(|parts| *parts > 1),
            delay_ms: None,
        }
    }

    /// How many items run before the others are approved; `None` if that is all of them.
    fn pilot(&self) -> Option<u64> {
        self.request.pilot.filter(|pilot| *pilot < self.request.items.len() as u64)
    }

    pub(super) fn job(&self, id: JobId, spec: &JobSpec) -> NewJob {
        NewJob {
            id,
            name: self.request.name.clone(),
            fingerprint: self.fingerprint(),
            spec: serde_json::to_string(spec).expect("a spec is JSON"),
            items: self.request.items.len() as u64 + spec.more_tasks(),
        }
    }

    /// The task of the item at index `place`.
    fn task(&self, job: JobId, pilot: Option<u64>, place: usize) -> NewTask {
        let (item, number) = (&self.request.items[place], self.request.before + place as u64 + 1);
        let payload = self.payload(number, item).expect("the payload was made before");
        let kind = match &self.request.work {
            ItemWork::Command(_) => ITEM_KIND,
            ItemWork::Pool(work) => &work.pool.kind,
        };
        let task = NewTask::new(self.task_id(job, place), queue_of(job), kind, payload);
        let waits = pilot.is_some_and(|pilot| number > pilot);
        NewTask {
            folder: match self.request.item_folders {
                Some(_) => None,
                None => Some(self.request.folder.clone()),
            },
            after: if waits { vec![pilot::approval_of(job)] } else { Vec::new() },
            on_failed: OnFailed::Run,
            ..task
        }
    }

    /// The id of that task: the same whenever the plan is.
    #[must_use]
    pub fn task_id(&self, job: JobId, place: usize) -> TaskId {
        task_of(job, self.marks[place])
    }
}

/// The largest number of parts of an item.
fn parts(items: &[Item]) -> usize {
    items.iter().map(|item| item.arguments().len()).max().unwrap_or_default()
}

/// Enqueues the items. Existing ones are not changed; a cancelled job gets no more.
///
/// # Errors
/// When the job was removed, or the store cannot be written. Repeating it goes on where it was.
pub async fn enqueue(store: &dyn Store, plan: &JobPlan, job: JobId) -> Result<u64, OpsError> {
    enqueue_new(store, plan, job).await?;
    Ok(plan.items().len() as u64)
}

/// Adds the items of a plan to an existing job. Those that it has already are left out. Returns the number of the others.
///
/// # Errors
/// As for [`enqueue`].
pub async fn add(store: &dyn Store, plan: &JobPlan, job: JobId) -> Result<u64, OpsError> {
    let items = existing(store, job).await?.job.items;
    store.change_job(job, JobChange::Reopen).await?;
    let added = enqueue_new(store, plan, job).await?;
    let submitted = existing(store, job).await?.counts.submitted();
    store.change_job(job, JobChange::Grow(submitted.max(items + added))).await?;
    Ok(added)
}

/// Enqueues the items, and returns how many were not there before.
async fn enqueue_new(store: &dyn Store, plan: &JobPlan, job: JobId) -> Result<u64, OpsError> {
    let mut created = 0;
    let pilot = pilot::to_enqueue(store, &existing(store, job).await?).await?;
    let mut place = 0;
    while place < plan.items().len() {
        if existing(store, job).await?.cancelled_at.is_some() {
            break;
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while place < plan.items().len() && batch.len() < BATCH && bytes < BATCH_BYTES {
            let task = plan.task(job, pilot, place);
            bytes += task.payload.len();
            batch.push(task);
            place += 1;
        }
        let answers = store.enqueue(batch).await?;
        created += answers.iter().filter(|answer| matches!(answer, Enqueued::Created(_))).count() as u64;
    }
    Ok(created)
}
