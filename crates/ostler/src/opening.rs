//! Opening a store: an SQLite file, a PostgreSQL database, or, for tests, a store that is gone with the program.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "postgres")]
use ostler_postgres::{Address, Postgres};
#[cfg(feature = "sqlite")]
use ostler_sqlite::{Options, Sqlite};
use ostler_store::Store;
#[cfg(feature = "sqlite")]
use ostler_store::SystemClock;

use crate::error::OpenError;
use crate::store_url::{StoreUrl, StoreUrlError};

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("a store is needed: choose the feature \"sqlite\", the feature \"postgres\", or both");

/// The store to use.
pub(crate) enum StoreSource {
    /// An SQLite file, already open.
    #[cfg(feature = "sqlite")]
    Embedded(Arc<Sqlite>),
    /// A PostgreSQL database, not contacted yet.
    #[cfg(feature = "postgres")]
    Shared(Address),
    /// An SQLite file in a folder that is removed at the end.
    #[cfg(feature = "testing")]
    Temporary(Arc<Sqlite>, tempfile::TempDir),
}

/// An open store, embedded or shared.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    /// The same store, if it accepts tasks within a transaction of the caller.
    #[cfg(feature = "postgres")]
    pub(crate) postgres: Option<Arc<Postgres>>,
    /// Removed after the store is closed, or with the last handle on it.
    #[cfg(feature = "testing")]
    pub(crate) folder: Option<tempfile::TempDir>,
}

impl StoreSource {
    /// Opens a file; checks the URL of a server, and does not contact it.
    pub(crate) fn at(place: &Path) -> Result<Self, OpenError> {
        match place.to_str().map(StoreUrl::parse) {
            Some(Ok(StoreUrl::Sqlite(path))) => Self::embedded(&path),
            #[cfg(feature = "postgres")]
            Some(Ok(StoreUrl::Postgres(address))) => Ok(Self::Shared(address)),
            Some(Err(StoreUrlError::Postgres(error))) => Err(error.into()),
            Some(Err(error)) => Err(OpenError::Url(error)),
            // Not UTF-8, hence not a URL, but it may be a file name.
            None => Self::embedded(place),
        }
    }

    #[cfg(feature = "sqlite")]
    fn embedded(path: &Path) -> Result<Self, OpenError> {
        let store = Sqlite::open(path, Arc::new(SystemClock), Options::default())?;
        Ok(Self::Embedded(Arc::new(store)))
    }

    #[cfg(not(feature = "sqlite"))]
    fn embedded(_path: &Path) -> Result<Self, OpenError> {
        Err(OpenError::Url(StoreUrlError::LeftOut("sqlite")))
    }

    /// A new store in a folder of its own: in memory, where the system has a folder for that.
    #[cfg(feature = "testing")]
    pub(crate) fn temporary() -> Result<Self, OpenError> {
        const IN_MEMORY: &str = "/dev/shm";
        let named = || {
            let mut folder = tempfile::Builder::new();
            folder.prefix("ostler-");
            folder
        };
        let folder =
            named().tempdir_in(IN_MEMORY).or_else(|_| named().tempdir()).map_err(OpenError::Folder)?;
        let store = Sqlite::open(folder.path().join("ostler.db"), Arc::new(SystemClock), Options::default())?;
        Ok(Self::Temporary(Arc::new(store), folder))
    }

    pub(crate) async fn open(self) -> Result<OpenStore, OpenError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Embedded(store) => Ok(OpenStore::of(store)),
            #[cfg(feature = "postgres")]
            Self::Shared(address) => {
                let options = ostler_postgres::Options::default();
                let store = Arc::new(Postgres::open(address.secret(), options).await?);
                Ok(OpenStore { postgres: Some(Arc::clone(&store)), ..OpenStore::of(store) })
            }
            #[cfg(feature = "testing")]
            Self::Temporary(store, folder) => Ok(OpenStore { folder: Some(folder), ..OpenStore::of(store) }),
        }
    }
}

impl OpenStore {
    fn of(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            #[cfg(feature = "postgres")]
            postgres: None,
            #[cfg(feature = "testing")]
            folder: None,
        }
    }
}
