//! Plans: what is said about a task beyond "run this": that it comes once, and that it may try more often after all.

use std::time::Duration;

use ostler_core::{OnConflict, StateName};

/// A key that one task of a queue has at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// The key, compared byte by byte.
    pub key: String,
    /// How long the task has it, from when it is enqueued; `None`: for as long as the task is kept.
    pub hold: Option<Duration>,
    /// What happens if another task has it.
    pub on_conflict: OnConflict,
}

impl Unique {
    /// A key that its task has for as long as it is kept. Whoever comes later is answered with that task.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), hold: None, on_conflict: OnConflict::Keep }
    }
}

/// What became of a wish to amend a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amended {
    /// It holds from now on, also for the end of an attempt that runs.
    Done,
    /// The task had ended before, and stays as it is.
    Ended(StateName),
    /// There is no such task.
    NotFound,
}
