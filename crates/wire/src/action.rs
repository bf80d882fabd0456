//! What became of a request: cancel, retry, drop, pause, drain, and the care of the store.

use serde::Serialize;

/// What became of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActionView {
    /// The task.
    pub id: String,
    /// What was done, or why nothing was.
    pub result: ActionResult,
    /// Where the task stood, if that is why nothing was done.
    pub state: Option<&'static str>,
    /// The copy, if one was made.
    pub copy: Option<String>,
}

/// What was done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionResult {
    /// It is cancelled.
    Cancelled,
    /// Its worker is asked to stop.
    Requested,
    /// It is queued again.
    Requeued,
    /// It waited for a moment, and does not any more.
    Hastened,
    /// It was queued, and not for want of time.
    Unchanged,
    /// A copy of it is enqueued.
    Copied,
    /// Its rules are others now.
    Amended,
    /// It is removed.
    Dropped,
    /// Nothing: its state does not allow it.
    Refused,
    /// Nothing: there is no such task.
    NotFound,
}

/// A queue that was paused or resumed.
#[derive(Clone, Debug, Serialize)]
pub struct QueueActionView {
    /// Its name.
    pub queue: String,
    /// Why it is paused; `null`: it is served.
    pub paused: Option<String>,
}

/// A node that was asked to do something.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCommandView {
    /// The node.
    pub node: String,
    /// What it was asked to do.
    pub command: &'static str,
}

/// Workers that were to be replaced.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecycledView {
    /// Those that go, because they had nothing to do.
    pub recycled: Vec<String>,
    /// Those that stay, because they are busy.
    pub busy: Vec<String>,
}

/// How a store's file is.
#[derive(Clone, Debug, Serialize)]
pub struct StoreHealthView {
    /// The file.
    pub store: String,
    /// Whether nothing is wrong with it.
    pub ok: bool,
    /// The version of its tables.
    pub version: i64,
    /// The version that this program reads and writes.
    pub newest: i64,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// A store that was brought up to date, or would be.
#[derive(Clone, Debug, Serialize)]
pub struct Migrated {
    /// The file.
    pub store: String,
    /// The version that was found; `null`: there was no store.
    pub from: Option<i64>,
    /// The version that this program reads and writes.
    pub to: i64,
    /// Whether there is, or would be, anything to do.
    pub pending: bool,
}

/// A copy of a store.
#[derive(Clone, Debug, Serialize)]
pub struct BackedUp {
    /// The copy.
    pub file: String,
    /// How large it is.
    pub bytes: u64,
}

/// A store that was replaced by a backup.
#[derive(Clone, Debug, Serialize)]
pub struct RestoredStore {
    /// The store.
    pub store: String,
    /// The backup.
    pub backup: String,
    /// The version of its tables.
    pub version: i64,
    /// How large it is.
    pub bytes: u64,
    /// Under which name the file is kept that was there before; `null`: there was none.
    pub former: Option<String>,
}

/// A store that was moved to another place.
#[derive(Clone, Debug, Serialize)]
pub struct MovedStore {
    /// The old place.
    pub from: String,
    /// The new one, without a password.
    pub to: String,
    /// How many tasks it has.
    pub tasks: u64,
    /// How many rows, in all tables.
    pub rows: u64,
    /// Every table that was compared; none when the move had ended before.
    pub tables: Vec<MovedTable>,
}

/// A table that is the same in both places.
#[derive(Clone, Debug, Serialize)]
pub struct MovedTable {
    /// Its name.
    pub table: String,
    /// Its rows.
    pub rows: u64,
    /// The sum over all that is in them.
    pub sha256: String,
}

/// A store whose move was given up.
#[derive(Clone, Debug, Serialize)]
pub struct StayedStore {
    /// The store.
    pub store: String,
    /// Where it was going.
    pub target: String,
}

/// Ended tasks that were removed.
#[derive(Clone, Debug, Serialize)]
pub struct PrunedTasks {
    /// How many.
    pub tasks: usize,
    /// Rows that belonged to no task.
    pub strays: usize,
}
