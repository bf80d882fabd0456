//! Random sequences with a move in the middle: before and after, the store gives the same answers as the reference.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_conformance::{Constructor, Fixture, Halfway, note, reference, sequences};
use ostler_core::{SessionId, Timestamp};
use ostler_postgres::Postgres;
use ostler_sqlite::Sqlite;
use ostler_store::{Clock, Store};
use ostler_testkit::{ManualClock, scratch};
use tempfile::TempDir;

use crate::place::Place;

/// Sequences, and operations in each.
const SEQUENCES: usize = 24;
const OPERATIONS: usize = 60;

/// A store that is a file at first, and a schema after the move.
struct Moves {
    _folder: TempDir,
    place: Place,
    now: Mutex<Now>,
}

enum Now {
    Old([Arc<Sqlite>; 2]),
    New(Arc<Postgres>),
}

/// Used schemas, with a store open on each. Creating one takes longer than a sequence.
static USED: Mutex<Vec<(Arc<Postgres>, String)>> = Mutex::new(Vec::new());

impl Moves {
    async fn begin() -> Self {
        let used = USED.lock().expect("no test panicked here").pop();
        let folder = scratch();
        let place = match used {
            Some((store, schema)) => {
                store.clear().await.expect("the schema is emptied");
                Place::with(folder.path(), &schema, ManualClock::new())
            }
            None => Place::new(folder.path()),
        };
        let stores = [(); 2].map(|()| Arc::new(place.old().expect("the store opens")));
        Self { _folder: folder, place, now: Mutex::new(Now::Old(stores)) }
    }

    fn at(&self, which: usize) -> Arc<dyn Store> {
        match &*self.now.lock().expect("no test panicked here") {
            Now::Old(stores) => Arc::clone(&stores[which]) as Arc<dyn Store>,
            Now::New(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        if let (Ok(Now::New(store)), Ok(mut used)) = (self.now.get_mut(), USED.lock()) {
            used.push((Arc::clone(store), self.place.schema.clone()));
        }
    }
}

#[async_trait]
impl Fixture for Moves {
    fn store(&self) -> Arc<dyn Store> {
        self.at(0)
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.at(1)
    }

    fn advance(&self, by: Duration) {
        self.place.clock.advance(by);
    }

    fn now(&self) -> Timestamp {
        self.place.clock.now()
    }

    async fn kill(&self, session: SessionId) {
        let new = match &*self.now.lock().expect("no test panicked here") {
            Now::Old(stores) => {
                stores.iter().for_each(|store| store.kill(session));
                return;
            }
            Now::New(store) => Arc::clone(store),
        };
        new.kill(session).await.expect("the session dies");
    }

    async fn halfway(&self) -> Halfway {
        self.place.carry().await.expect("the store moves");
        let store = Arc::new(self.place.new_store().await.expect("the new store opens"));
        *self.now.lock().expect("no test panicked here") = Now::New(store);
        Halfway::Moved
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_moves_in_the_middle_answers_as_one_that_stayed() {
    let make: Constructor =
        Arc::new(|_| Box::pin(async { Box::new(Moves::begin().await) as Box<dyn Fixture> }));
    let start = ManualClock::new().now();
    let report = sequences::run(&make, &reference(start), SEQUENCES, OPERATIONS, 1).await;
    note(&format!("moving: {} sequences, {} operations", report.sequences, report.operations));
}
