//! Leftovers: what executors keep on disk for tasks beyond their attempts, such as conversations and worktrees, until the tasks are pruned.
//!
//! An executor knows nothing of stores, so it cannot tell when that is. It marks what it keeps with the store that its tasks are in. The
//! program lists what bears the mark of its store, asks the store which of the tasks are gone, and lets the owner of the files remove theirs.

use std::fmt;
use std::path::{Path, PathBuf};

use ostler_core::TaskId;

/// Identifies a store among those whose tasks keep files in the same folder: a digest. The program passes it on as a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreMark(pub String);

/// Something that is kept for tasks of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub path: PathBuf,
    /// The tasks that used it. It may go when none of them exists any more.
    pub tasks: Vec<TaskId>,
}

/// Why a leftover was not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyKept {
    /// An attempt uses it right now.
    InUse,
    /// Removing it would lose work, or failed: what is in the way, and what to do.
    Blocked { why: String, advice: String },
}

/// Owns a folder in which things are kept for tasks. All calls block: they read and change files, and may run programs for a while.
pub trait LeftoverKeeper: fmt::Debug + Send + Sync {
    /// The folder. Two owners of one folder are the same.
    fn folder(&self) -> &Path;

    /// What is kept for tasks of this store alone.
    fn leftovers(&self, mark: &StoreMark) -> Vec<Leftover>;

    /// Why this could not be removed now; `None`: it could. Changes nothing.
    fn obstacle(&self, leftover: &Leftover) -> Option<WhyKept>;

    /// Removes it, if nothing is in the way.
    ///
    /// # Errors
    /// When it is kept.
    fn remove(&self, leftover: &Leftover) -> Result<(), WhyKept>;
}
