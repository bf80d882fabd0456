//! Results of actions: cancel, retry, drop, pause, drain, and store maintenance (check, migrate, backup, restore, move, prune).

use std::collections::BTreeMap;

use ostler_core::{SessionId, StateName, TaskId, Timestamp, WorkerId};
use ostler_store::calls::{CancelAnswer, Pruned, ReplayAnswer};
use ostler_store::node_commands::{NodeCommand, RecycleAnswer};
use ostler_store::transfer::{MovePlan, MoveSummary, Table};
use serde::{Deserialize, Serialize};

use crate::time::TimeView;
use crate::word::{self, Word};

/// The result of an action on one task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActionView {
    pub id: String,
    /// What was done, or why nothing was done.
    pub result: ActionResult,
    /// The task's state, if it is the reason that nothing was done.
    #[serde(deserialize_with = "word::read_option")]
    pub state: Option<Word>,
    /// The id of the copy, if one was enqueued.
    pub copy: Option<String>,
    /// The task that holds the unique key, if that is the reason that nothing was done.
    pub holder: Option<String>,
}

/// What was done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActionResult {
    Cancelled,
    /// The worker was asked to stop.
    Requested,
    Requeued,
    /// The task was waiting for its `run_at` and is due now.
    Hastened,
    /// The task was already queued, and not waiting for a time.
    Unchanged,
    /// A copy was enqueued.
    Copied,
    /// Its retry or timeout settings were changed.
    Amended,
    /// The task was removed.
    Dropped,
    /// Nothing: the state of the task does not allow it.
    Refused,
    /// Nothing: there is no such task.
    NotFound,
}

impl ActionView {
    fn new(id: TaskId, result: ActionResult) -> Self {
        Self { id: id.to_string(), result, state: None, copy: None, holder: None }
    }

    #[must_use]
    pub fn cancelled(id: TaskId, answer: CancelAnswer) -> Self {
        match answer {
            CancelAnswer::Cancelled | CancelAnswer::Ended(StateName::Cancelled) => {
                Self::new(id, ActionResult::Cancelled)
            }
            CancelAnswer::Requested => Self::new(id, ActionResult::Requested),
            CancelAnswer::Ended(state) => Self::refused(id, state),
            CancelAnswer::NotFound => Self::not_found(id),
        }
    }

    #[must_use]
    pub fn replayed(id: TaskId, answer: ReplayAnswer) -> Self {
        match answer {
            ReplayAnswer::Requeued => Self::new(id, ActionResult::Requeued),
            ReplayAnswer::Hastened => Self::new(id, ActionResult::Hastened),
            ReplayAnswer::Refused(state @ StateName::Queued) => {
                Self { state: Some(state.name()), ..Self::new(id, ActionResult::Unchanged) }
            }
            ReplayAnswer::Refused(state) => Self::refused(id, state),
            ReplayAnswer::KeyTaken { holder } => {
                Self { holder: Some(holder.to_string()), ..Self::new(id, ActionResult::Refused) }
            }
            ReplayAnswer::NotFound => Self::not_found(id),
        }
    }

    #[must_use]
    pub fn copied(id: TaskId, copy: TaskId) -> Self {
        Self { copy: Some(copy.to_string()), ..Self::new(id, ActionResult::Copied) }
    }

    #[must_use]
    pub fn amended(id: TaskId) -> Self {
        Self::new(id, ActionResult::Amended)
    }

    #[must_use]
    pub fn dropped(id: TaskId) -> Self {
        Self::new(id, ActionResult::Dropped)
    }

    #[must_use]
    pub fn refused(id: TaskId, state: StateName) -> Self {
        Self { state: Some(state.name()), ..Self::new(id, ActionResult::Refused) }
    }

    #[must_use]
    pub fn not_found(id: TaskId) -> Self {
        Self::new(id, ActionResult::NotFound)
    }
}

/// What a bulk action would take.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BulkPreview {
    /// `cancel`, `retry`, `replay` or `drop`.
    #[serde(deserialize_with = "word::read")]
    pub action: Word,
    /// The number of tasks that match now.
    pub tasks: u64,
    /// Pass it on to start the action: tasks that begin to match later are not touched.
    pub cutoff: TimeView,
}

/// A bulk action.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BulkProgress {
    /// The same for the same action, filter and cut-off.
    pub id: String,
    #[serde(deserialize_with = "word::read")]
    pub action: Word,
    pub cutoff: TimeView,
    pub state: BulkState,
    /// Tasks that were acted on so far.
    pub done: u64,
    /// The same, by result.
    pub results: BTreeMap<ActionResult, u64>,
    /// Why it failed.
    pub error: Option<String>,
}

impl BulkPreview {
    #[must_use]
    pub fn new(action: &'static str, tasks: usize, cutoff: Timestamp) -> Self {
        Self { action, tasks: tasks as u64, cutoff: cutoff.into() }
    }
}

impl BulkProgress {
    /// An action that begins.
    #[must_use]
    pub fn begun(id: String, action: &'static str, cutoff: Timestamp) -> Self {
        Self {
            id,
            action,
            cutoff: cutoff.into(),
            state: BulkState::Running,
            done: 0,
            results: BTreeMap::new(),
            error: None,
        }
    }

    /// Adds what became of some tasks.
    pub fn add(&mut self, acted: &[ActionView]) {
        self.done += acted.len() as u64;
        for view in acted {
            *self.results.entry(view.result).or_default() += 1;
        }
    }
}

/// How far a bulk action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BulkState {
    Running,
    Done,
    /// On request. To go on, start it again with the same cut-off.
    Stopped,
    Failed,
}

/// A queue that was paused or resumed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueActionView {
    pub queue: String,
    /// The reason for the pause; `null` if the queue is not paused.
    pub paused: Option<String>,
}

impl QueueActionView {
    #[must_use]
    pub fn new(queue: &str, paused: Option<String>) -> Self {
        Self { queue: queue.to_owned(), paused }
    }
}

/// A command sent to a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeCommandView {
    pub node: String,
    #[serde(deserialize_with = "word::read")]
    pub command: Word,
}

impl NodeCommandView {
    #[must_use]
    pub fn new(node: SessionId, command: &NodeCommand) -> Self {
        let command = match command {
            NodeCommand::Drain => "drain",
            NodeCommand::Resume => "resume",
            NodeCommand::Resize { .. } => "resize",
            NodeCommand::Recycle { .. } => "recycle",
        };
        Self { node: node.to_string(), command }
    }
}

/// A node whose drain was to be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResumedNodeView {
    pub node: String,
    /// What was done, or why nothing was done.
    pub result: NodeResumption,
}

/// What became of the drain of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeResumption {
    /// It was taken back: the node claims tasks again.
    Resumed,
    /// The node was not draining.
    NotDraining,
}

impl ResumedNodeView {
    #[must_use]
    pub fn new(node: SessionId, result: NodeResumption) -> Self {
        Self { node: node.to_string(), result }
    }
}

/// The outcome of `recycle`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecycledView {
    /// Workers that are being replaced because they were idle.
    pub recycled: Vec<String>,
    /// Workers that stay because they are busy.
    pub busy: Vec<String>,
}

impl RecycledView {
    /// Builds the view of the answers of nodes.
    #[must_use]
    pub fn new(answers: &[RecycleAnswer]) -> Self {
        let texts = |pick: fn(&RecycleAnswer) -> &Vec<WorkerId>| {
            answers.iter().flat_map(pick).map(WorkerId::to_string).collect()
        };
        Self { recycled: texts(|answer| &answer.recycled), busy: texts(|answer| &answer.busy) }
    }
}

/// The result of an integrity check of a store.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreHealthView {
    /// The path or address.
    pub store: String,
    /// Whether no problem was found.
    pub ok: bool,
    /// The schema version of the store.
    pub version: i64,
    /// The schema version that this program reads and writes.
    pub newest: i64,
    pub problems: Vec<String>,
}

impl StoreHealthView {
    #[must_use]
    pub fn new(store: String, version: i64, newest: i64, problems: Vec<String>) -> Self {
        Self { store, ok: problems.is_empty(), version, newest, problems }
    }
}

/// A store that was migrated, or would be.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Migrated {
    /// The path or address.
    pub store: String,
    /// The schema version that was found; `null` if there was no store.
    pub from: Option<i64>,
    /// The schema version that this program reads and writes.
    pub to: i64,
    /// Whether there is anything to migrate.
    pub pending: bool,
}

impl Migrated {
    #[must_use]
    pub fn new(store: String, from: Option<i64>, to: i64) -> Self {
        Self { store, from, to, pending: from != Some(to) }
    }
}

/// A backup of a store.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackedUp {
    pub file: String,
    pub bytes: u64,
}

impl BackedUp {
    #[must_use]
    pub fn new(file: String, bytes: u64) -> Self {
        Self { file, bytes }
    }
}

/// A store that was replaced by a backup.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestoredStore {
    pub store: String,
    pub backup: String,
    /// The schema version.
    pub version: i64,
    pub bytes: u64,
    /// The new path of the file that was there before; `null` if there was none.
    pub former: Option<String>,
}

impl RestoredStore {
    #[must_use]
    pub fn new(store: String, backup: String, version: i64, bytes: u64, former: Option<String>) -> Self {
        Self { store, backup, version, bytes, former }
    }
}

/// A store that was moved.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MovedStore {
    pub from: String,
    /// The new address, without a password.
    pub to: String,
    pub tasks: u64,
    /// Rows in all tables.
    pub rows: u64,
    /// The tables that were compared; empty if the move had already completed.
    pub tables: Vec<MovedTable>,
}

/// A table that is identical in both stores.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MovedTable {
    pub table: String,
    pub rows: u64,
    /// The checksum of all rows.
    pub sha256: String,
}

impl MovedStore {
    #[must_use]
    pub fn new(plan: &MovePlan, moved: &MoveSummary) -> Self {
        let tables: Vec<MovedTable> = moved
            .tables
            .iter()
            .map(|table| MovedTable {
                table: table.table.name().to_owned(),
                rows: table.rows,
                sha256: table.sum.clone(),
            })
            .collect();
        let tasks = moved.tables.iter().find(|table| table.table == Table::Task);
        let tasks = tasks.map_or(0, |table| table.rows);
        let rows = tables.iter().map(|table| table.rows).sum();
        Self { from: plan.from.clone(), to: plan.to.clone(), tasks, rows, tables }
    }
}

/// A store whose move was abandoned.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StayedStore {
    pub store: String,
    /// The address it was being moved to.
    pub target: String,
}

impl StayedStore {
    #[must_use]
    pub fn new(store: String, target: String) -> Self {
        Self { store, target }
    }
}

/// The outcome of `prune`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrunedTasks {
    /// Finished tasks that were removed.
    pub tasks: usize,
    /// Orphaned rows that were removed.
    pub strays: usize,
}

impl PrunedTasks {
    /// Adds what one batch removed.
    pub fn add(&mut self, batch: Pruned) {
        self.tasks += batch.tasks;
        self.strays += batch.orphans;
    }
}
