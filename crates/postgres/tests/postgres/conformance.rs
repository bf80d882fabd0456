//! The PostgreSQL store passes the conformance suite.

#![cfg(feature = "conformance")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_conformance::{Constructor, Fixture, note, races, reference, sequences, switches, topics};
use ostler_core::{SessionId, Timestamp};
use ostler_postgres::{Listening, Options, Postgres};
use ostler_store::{Checks, Clock, Store};
use ostler_testkit::{ManualClock, PrivatePostgres};
use tokio::sync::OnceCell;

/// A schema of the shared server, with one or two stores open on it.
struct InSchema {
    clock: ManualClock,
    options: Options,
    first: Arc<Postgres>,
    second: OnceCell<Arc<Postgres>>,
}

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

impl InSchema {
    async fn new(checks: Checks, listening: Listening) -> Self {
        let clock = ManualClock::new();
        let number = SCHEMAS.fetch_add(1, Ordering::SeqCst);
        let options = Options {
            schema: format!("case_{number}"),
            connections: 2,
            listening,
            clock: Some(Arc::new(clock.clone())),
            checks,
            ..Options::default()
        };
        let first = open(&options).await;
        Self { clock, options, first, second: OnceCell::new() }
    }

    /// An empty store that another case has used before, or a new one.
    async fn again(used: &Used, checks: Checks, listening: Listening) -> Self {
        let fits = |used: &Self| used.is_without(checks);
        let found = {
            let mut used = used.lock().expect("no test panicked here");
            used.iter().position(fits).map(|at| used.swap_remove(at))
        };
        match found {
            Some(used) => {
                used.first.clear().await.expect("the store is emptied");
                used.clock.step_wall(ManualClock::new().now());
                used
            }
            None => Self::new(checks, listening).await,
        }
    }

    /// Whether the same check is disabled, or none.
    fn is_without(&self, checks: Checks) -> bool {
        format!("{:?}", self.options.checks) == format!("{checks:?}")
    }

    /// Whether the next case cannot receive notifications of this one. A store does not receive its own.
    fn is_quiet(&self) -> bool {
        self.options.listening == Listening::Off || !self.second.initialized()
    }
}

async fn open(options: &Options) -> Arc<Postgres> {
    let url = PrivatePostgres::shared().url();
    Arc::new(Postgres::open(&url, options.clone()).await.expect("the store opens"))
}

/// Stores used by cases of one test. Creating one takes longer than a case does.
type Used = Arc<Mutex<Vec<InSchema>>>;

/// A store that may be used again.
struct Lent {
    used: Used,
    lent: Option<InSchema>,
}

impl Lent {
    fn schema(&self) -> &InSchema {
        self.lent.as_ref().expect("it is given back when this is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let lent = self.lent.take().filter(InSchema::is_quiet);
        self.used.lock().expect("no test panicked here").extend(lent);
    }
}

#[async_trait]
impl Fixture for InSchema {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.first) as Arc<dyn Store>
    }

    async fn second(&self) -> Arc<dyn Store> {
        let second = self.second.get_or_init(|| open(&self.options)).await;
        Arc::clone(second) as Arc<dyn Store>
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn kill(&self, session: SessionId) {
        self.first.kill(session).await.expect("the node is killed");
    }
}

#[async_trait]
impl Fixture for Lent {
    fn store(&self) -> Arc<dyn Store> {
        self.schema().store()
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.schema().second().await
    }

    fn advance(&self, by: Duration) {
        self.schema().advance(by);
    }

    fn now(&self) -> Timestamp {
        self.schema().now()
    }

    async fn kill(&self, session: SessionId) {
        self.schema().kill(session).await;
    }
}

fn constructor(listening: Listening) -> Constructor {
    let used = Used::default();
    Arc::new(move |checks| {
        let used = Arc::clone(&used);
        Box::pin(async move {
            let lent = Some(InSchema::again(&used, checks, listening).await);
            Box::new(Lent { used, lent }) as Box<dyn Fixture>
        })
    })
}

/// Fewer than for the SQLite store, which needs no other process: each operation is a few round trips.
const SEQUENCES: usize = 300;
const OPS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_topic_holds() {
    let cases = topics::run(&constructor(Listening::On)).await;
    note(&format!("postgres: {cases} cases"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_missing_check_is_found() {
    let switches = switches::run(&constructor(Listening::On)).await;
    note(&format!("postgres: {switches} switches found"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_answer_as_the_reference_does() {
    let start = ManualClock::new().now();
    let report = sequences::run(&constructor(Listening::Off), &reference(start), SEQUENCES, OPS, 1).await;
    note(&format!("postgres: {} sequences, {} operations", report.sequences, report.operations));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_race_has_one_winner() {
    let rounds = races::run(&constructor(Listening::On), 200).await;
    note(&format!("postgres: {rounds} interleavings"));
}
