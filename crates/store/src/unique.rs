//! Unique keys of new tasks.

use ostler_core::{KeyHold, OnConflict};

/// A key that one task of a queue has at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// Compared byte by byte.
    pub key: String,
    /// How long the task holds the key; `None`: as its queue says.
    pub hold: Option<KeyHold>,
    /// What happens if another task has the key.
    pub on_conflict: OnConflict,
}

impl Unique {
    /// A key that its task holds as long as its queue says. A later caller gets that task.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), hold: None, on_conflict: OnConflict::Keep }
    }
}
