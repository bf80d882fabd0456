//! Results of actions: cancel, retry, drop, pause, drain, and store maintenance (check, migrate, backup, restore, move, prune).

use serde::Serialize;

/// The result of an action on one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActionView {
    pub id: String,
    /// What was done, or why nothing was done.
    pub result: ActionResult,
    /// The task's state, if it is the reason that nothing was done.
    pub state: Option<&'static str>,
    /// The id of the copy, if one was enqueued.
    pub copy: Option<String>,
}

/// What was done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// A queue that was paused or resumed.
#[derive(Clone, Debug, Serialize)]
pub struct QueueActionView {
    pub queue: String,
    /// The reason for the pause; `null` if the queue is not paused.
    pub paused: Option<String>,
}

/// A command sent to a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCommandView {
    pub node: String,
    pub command: &'static str,
}

/// The outcome of `recycle`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecycledView {
    /// Workers that are being replaced because they were idle.
    pub recycled: Vec<String>,
    /// Workers that stay because they are busy.
    pub busy: Vec<String>,
}

/// The result of an integrity check of a store.
#[derive(Clone, Debug, Serialize)]
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

/// A store that was migrated, or would be.
#[derive(Clone, Debug, Serialize)]
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

/// A backup of a store.
#[derive(Clone, Debug, Serialize)]
pub struct BackedUp {
    pub file: String,
    pub bytes: u64,
}

/// A store that was replaced by a backup.
#[derive(Clone, Debug, Serialize)]
pub struct RestoredStore {
    pub store: String,
    pub backup: String,
    /// The schema version.
    pub version: i64,
    pub bytes: u64,
    /// The new path of the file that was there before; `null` if there was none.
    pub former: Option<String>,
}

/// A store that was moved.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
pub struct MovedTable {
    pub table: String,
    pub rows: u64,
    /// The checksum of all rows.
    pub sha256: String,
}

/// A store whose move was abandoned.
#[derive(Clone, Debug, Serialize)]
pub struct StayedStore {
    pub store: String,
    /// The address it was being moved to.
    pub target: String,
}

/// The outcome of `prune`.
#[derive(Clone, Debug, Serialize)]
pub struct PrunedTasks {
    /// Finished tasks that were removed.
    pub tasks: usize,
    /// Orphaned rows that were removed.
    pub strays: usize,
}
