//! The SQLite store passes the conformance suite.

#![cfg(feature = "conformance")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_conformance::{Constructor, Fixture, note, races, reference, sequences, switches, topics};
use ostler_core::{SessionId, Timestamp};
use ostler_sqlite::{Durability, Options, Sqlite};
use ostler_store::{Checks, Clock, Store};
use ostler_testkit::ManualClock;
use tempfile::TempDir;

/// One file in its own folder, opened as often as the suite requires.
struct OnDisk {
    folder: TempDir,
    clock: ManualClock,
    options: Options,
    first: Arc<Sqlite>,
    others: Mutex<Vec<Arc<Sqlite>>>,
}

impl OnDisk {
    fn new(checks: Checks) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = ManualClock::new();
        // The suite does not test durability against loss of power.
        let options = Options { durability: Durability::Relaxed, checks, ..Options::default() };
        let first = Arc::new(open(&folder, &clock, options));
        Self { folder, clock, options, first, others: Mutex::default() }
    }
}

fn open(folder: &TempDir, clock: &ManualClock, options: Options) -> Sqlite {
    Sqlite::open(folder.path().join("ostler.db"), Arc::new(clock.clone()), options).expect("the store opens")
}

#[async_trait]
impl Fixture for OnDisk {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.first) as Arc<dyn Store>
    }

    async fn second(&self) -> Arc<dyn Store> {
        let another = Arc::new(open(&self.folder, &self.clock, self.options));
        self.others.lock().expect("no test panicked here").push(Arc::clone(&another));
        another
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn kill(&self, session: SessionId) {
        self.first.kill(session);
        for other in self.others.lock().expect("no test panicked here").iter() {
            other.kill(session);
        }
    }
}

fn constructor() -> Constructor {
    Arc::new(|checks| Box::pin(async move { Box::new(OnDisk::new(checks)) as Box<dyn Fixture> }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_topic_holds() {
    let cases = topics::run(&constructor()).await;
    note(&format!("sqlite: {cases} cases"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_missing_check_is_found() {
    let switches = switches::run(&constructor()).await;
    note(&format!("sqlite: {switches} switches found"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_answer_as_the_reference_does() {
    let start = OnDisk::new(Checks::default()).now();
    let report = sequences::run(&constructor(), &reference(start), 1_000, 60, 1).await;
    note(&format!("sqlite: {} sequences, {} operations", report.sequences, report.operations));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_race_has_one_winner() {
    let rounds = races::run(&constructor(), 200).await;
    note(&format!("sqlite: {rounds} interleavings"));
}
