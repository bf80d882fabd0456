//! Temporary folders, and stores in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_sqlite::{Options, Sqlite};
use ostler_store::{Clock, SystemClock};
use tempfile::TempDir;

use crate::ManualClock;

/// A file system in memory, where there is one.
const MEMORY: &str = "/dev/shm";

/// A temporary folder, in memory where that is possible. A killed process leaves the same files there as on a disk,
/// only faster; what the loss of power leaves is another question.
///
/// # Panics
/// When no folder can be made.
#[must_use]
pub fn scratch() -> TempDir {
    tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).expect("a temporary folder can be made")
}

/// A store in a temporary folder of its own.
pub struct TempStore {
    store: Option<Arc<Sqlite>>,
    clock: Arc<dyn Clock>,
    options: Options,
    folder: TempDir,
}

impl TempStore {
    /// An empty store with this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, options: Options) -> Self {
        let mut made = Self { store: None, clock, options, folder: scratch() };
        made.reopen();
        made
    }

    /// An empty store with the machine's clock.
    #[must_use]
    pub fn real() -> Self {
        Self::new(Arc::new(SystemClock), Options::default())
    }

    /// An empty store with a clock that stands still, and the clock.
    #[must_use]
    pub fn manual() -> (Self, ManualClock) {
        let clock = ManualClock::new();
        (Self::new(Arc::new(clock.clone()), Options::default()), clock)
    }

    /// The store.
    ///
    /// # Panics
    /// After [`close`](Self::close).
    #[must_use]
    pub fn store(&self) -> Arc<Sqlite> {
        Arc::clone(self.store.as_ref().expect("the store is open"))
    }

    /// The file opened once more.
    ///
    /// # Panics
    /// When it cannot be opened.
    #[must_use]
    pub fn second(&self) -> Arc<Sqlite> {
        let opened = Sqlite::open(self.path(), Arc::clone(&self.clock), self.options);
        Arc::new(opened.unwrap_or_else(|error| panic!("the store opens: {error}")))
    }

    /// Closes the store, if nobody else has it, and opens it again.
    pub fn reopen(&mut self) -> Arc<Sqlite> {
        self.close();
        self.store = Some(self.second());
        self.store()
    }

    /// Closes the store, if nobody else has it.
    pub fn close(&mut self) {
        self.store = None;
    }

    /// The store's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("ostler.db")
    }

    /// The folder that the file is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
