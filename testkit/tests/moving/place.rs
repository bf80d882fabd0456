//! The move source and move target of the tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::Id;
use ostler_postgres::{Listening, Options, Postgres, PostgresTarget};
use ostler_sqlite::{Durability, Sqlite, SqliteSource};
use ostler_store::Error;
use ostler_store::transfer::{self, MovePlan, MoveStep, MoveSummary};
use ostler_testkit::{ManualClock, PrivatePostgres};

/// The variable with the server's URL, for another process of a test.
pub(crate) const URL: &str = "OSTLER_TEST_URL";

/// Small, so that tables take several batches.
const ROWS: usize = 10;

static SCHEMAS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(1);

/// A SQLite file and an empty schema.
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) schema: String,
    pub(crate) clock: ManualClock,
}

impl Place {
    /// With a schema that no other test uses.
    pub(crate) fn new(folder: &Path) -> Self {
        Self::with(folder, &format!("moved_{}", SCHEMAS.fetch_add(1, Ordering::SeqCst)), ManualClock::new())
    }

    pub(crate) fn with(folder: &Path, schema: &str, clock: ManualClock) -> Self {
        Self { file: folder.join("ostler.db"), schema: schema.to_owned(), clock }
    }

    /// The URL of the server: of this process, or of the test that started it.
    pub(crate) fn url(&self) -> String {
        std::env::var(URL).unwrap_or_else(|_| PrivatePostgres::shared().url())
    }

    pub(crate) fn old(&self) -> Result<Sqlite, Error> {
        let options = ostler_sqlite::Options { durability: Durability::Relaxed, ..Default::default() };
        Sqlite::open(&self.file, Arc::new(self.clock.clone()), options)
    }

    pub(crate) async fn new_store(&self) -> Result<Postgres, Error> {
        Postgres::open(&self.url(), self.options()).await
    }

    fn options(&self) -> Options {
        Options {
            schema: self.schema.clone(),
            connections: 2,
            listening: Listening::Off,
            clock: Some(Arc::new(self.clock.clone())),
            ..Options::default()
        }
    }

    pub(crate) fn plan(&self, patience: Duration) -> MovePlan {
        MovePlan {
            id: Id::from_bits(
                u128::from(std::process::id()) << 64 | u128::from(MOVES.fetch_add(1, Ordering::SeqCst)),
            ),
            from: self.file.display().to_string(),
            to: format!("postgres://there/{}", self.schema),
            patience,
            rows: ROWS,
        }
    }

    pub(crate) fn leaving(&self) -> SqliteSource {
        SqliteSource::open(&self.file, Arc::new(self.clock.clone())).expect("the old store opens")
    }

    pub(crate) async fn arrival(&self) -> PostgresTarget {
        PostgresTarget::reach(&format!("{}?schema={}", self.url(), self.schema))
            .await
            .expect("the database opens")
    }

    /// Moves without waiting for running tasks.
    pub(crate) async fn carry(&self) -> Result<MoveSummary, Error> {
        self.carry_told(Duration::ZERO, &|_| {}).await
    }

    pub(crate) async fn carry_told(
        &self,
        patience: Duration,
        tell: &(dyn Fn(MoveStep) + Sync),
    ) -> Result<MoveSummary, Error> {
        transfer::run(&self.leaving(), &self.arrival().await, &self.plan(patience), tell).await
    }

    pub(crate) async fn abandon(&self) -> Result<transfer::Departure, Error> {
        transfer::abandon(&self.leaving(), Some(&self.arrival().await)).await
    }
}
