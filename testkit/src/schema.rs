//! A temporary PostgreSQL store: a schema of its own on the server that all tests of a process share. And stores by their address, for a
//! twin that opens the one of its test.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_postgres::{Options, Postgres};
use ostler_sqlite::Sqlite;
use ostler_store::{Store, SystemClock};
use tempfile::TempDir;

use crate::{PrivatePostgres, scratch};

/// A schema, with a folder for what a node keeps beside its store.
#[derive(Debug)]
pub struct TempSchema {
    url: String,
    folder: TempDir,
}

impl TempSchema {
    /// An empty schema.
    ///
    /// # Panics
    /// When no server can be started.
    #[must_use]
    pub fn make() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Few connections for each store: a server has a hundred for all tests.
        let url = format!("{}?schema=temp_{number}&connections=4", PrivatePostgres::shared().url());
        Self { url, folder: scratch() }
    }

    /// Opens the schema once more.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn second(&self) -> Arc<Postgres> {
        let opened = Postgres::open(&self.url, Options::default()).await;
        Arc::new(opened.unwrap_or_else(|error| panic!("the store opens: {error}")))
    }

    /// The URL of the store.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder for files beside the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Opens the store at this address, a URL of PostgreSQL or the path of a file, as another process does.
///
/// # Panics
/// When it cannot be opened.
pub async fn open_store(address: &str) -> Arc<dyn Store> {
    if address.starts_with("postgres:") {
        let opened = Postgres::open(address, Options::default()).await;
        return Arc::new(opened.unwrap_or_else(|error| panic!("the store opens: {error}")));
    }
    let opened = Sqlite::open(address, Arc::new(SystemClock), ostler_sqlite::Options::default());
    Arc::new(opened.unwrap_or_else(|error| panic!("the store opens: {error}")))
}
