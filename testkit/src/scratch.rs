//! Temporary folders, and temporary stores.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_sqlite::{Options, Sqlite};
use ostler_store::{Clock, SystemClock};
use tempfile::TempDir;

use crate::ManualClock;

/// An in-memory file system, where available.
const MEMORY: &str = "/dev/shm";

/// A temporary folder, in memory where possible. A killed process leaves the same files there as on a disk, only
/// faster; a power loss is not covered.
///
/// # Panics
/// When no folder can be created.
#[must_use]
pub fn scratch() -> TempDir {
    tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).expect("a temporary folder can be made")
}

/// A store in its own temporary folder.
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

    /// An empty store with the system clock.
    #[must_use]
    pub fn real() -> Self {
        Self::new(Arc::new(SystemClock), Options::default())
    }

    /// An empty store with a manual clock, and the clock.
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

    /// Opens the file once more.
    ///
    /// # Panics
    /// When the file cannot be opened.
    #[must_use]
    pub fn second(&self) -> Arc<Sqlite> {
        let opened = Sqlite::open(self.path(), Arc::clone(&self.clock), self.options);
        Arc::new(opened.unwrap_or_else(|error| panic!("the store opens: {error}")))
    }

    /// Closes the store, unless it is in use elsewhere, and opens it again.
    pub fn reopen(&mut self) -> Arc<Sqlite> {
        self.close();
        self.store = Some(self.second());
        self.store()
    }

    /// Closes the store, unless it is in use elsewhere.
    pub fn close(&mut self) {
        self.store = None;
    }

    /// The store's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("ostler.db")
    }

    /// The folder of the file.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
