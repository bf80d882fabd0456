//! What readers of live streams cost the store: many as much as one, and none nothing.
//!
//! `OSTLER_ROUNDS=5` has five hundred readers of each stream, of which fifty never read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::TaskId;
use ostler_server::{ListenAddress, MetricsAccess, Server};
use ostler_store::Store;
use ostler_store::calls::Claimed;
use ostler_testkit::MAX_WAIT;
use tokio::time::Instant;

use crate::counting::CountingStore;
use crate::world::{Client, FULL, World, line, on_each_store, parts};

on_each_store!(
    many_readers_cost_the_store_as_much_as_one_and_none_costs_nothing,
    readers_that_share_nothing_are_noticed,
);

/// How long the calls are counted, and how often something changes meanwhile.
const WINDOW: Duration = Duration::from_secs(3);
const CHANGE_EVERY: Duration = Duration::from_millis(20);
/// Calls of the store for each change, however many read. If each of a hundred readers asked by itself, there would be a hundred and more.
const MAX_CALLS_OF_A_CHANGE: u64 = 4;
/// By how much the calls for many readers may exceed those for one.
const MAX_FACTOR: u64 = 2;
/// Of ten readers, this many do not read.
const ASLEEP_OF_TEN: usize = 1;

/// Whether the calls for these changes are those of one reader, about: how many changes a reading finds varies.
const fn is_shared((calls, changes): (u64, u64), (calls_of_one, changes_of_one): (u64, u64)) -> bool {
    calls <= MAX_CALLS_OF_A_CHANGE * changes && calls * changes_of_one <= MAX_FACTOR * calls_of_one * changes
}

fn rounds() -> usize {
    std::env::var("OSTLER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// A server whose store counts.
struct CountedServer {
    world: World,
    store: Arc<CountingStore>,
    server: Server,
    task: TaskId,
    claimed: Vec<Claimed>,
}

impl CountedServer {
    async fn of(world: World) -> Self {
        let store = CountingStore::around(Arc::clone(&world.store));
        let shared: Arc<dyn Store> = Arc::<CountingStore>::clone(&store);
        let (parts, _) = parts(shared, world.place.folder(), 903, MetricsAccess::Token);
        let bound = ListenAddress::Tcp(([127, 0, 0, 1], 0).into()).bind().await.expect("it listens");
        let server = Server::start(parts, bound).expect("it starts");
        let task = world.enqueue(1).await[0];
        let session = world.node().await;
        let claimed = world.claim(session, 1).await;
        Self { world, store, server, task, claimed }
    }

    /// Calls of the store in a window with a change every few milliseconds, which the server does not make, and the number of changes.
    async fn calls(&self) -> (u64, u64) {
        let (before, mut ticks) = (self.store.calls(), tokio::time::interval(CHANGE_EVERY));
        let mut changes = 0;
        let over = Instant::now() + WINDOW;
        while ticks.tick().await < over {
            let event = line("something new".to_owned());
            self.world.store.append(self.claimed[0].lease.as_ref(), vec![event]).await.expect("appended");
            changes += 1;
        }
        (self.store.calls() - before, changes)
    }

    /// Waits until nothing of the server holds the store but what held it without readers.
    async fn until_forgotten(&self, holders: usize) {
        let forgotten = async {
            while Arc::strong_count(&self.store) > holders || self.server.task_watchers() > 0 {
                // What is sent shows the server that its readers are gone.
                let event = line("a sign of life".to_owned());
                self.world.store.append(self.claimed[0].lease.as_ref(), vec![event]).await.expect("appended");
                self.world.enqueue(1).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, forgotten)
            .await
            .expect("the sampler and the watcher end with their readers");
    }
}

/// Opens streams at this path. One of ten does not read; what the others receive is counted.
async fn open(server: &Server, path: &str, count: usize, received: &Arc<AtomicU64>) -> Vec<StreamReader> {
    let (address, bearer) = (server.address().to_string(), format!("Bearer {FULL}"));
    let headers = [("host", address.as_str()), ("authorization", bearer.as_str())];
    let mut readers = Vec::new();
    for number in 0..count {
        let mut client = Client::connect(&address).await;
        client.raw("GET", path, &headers, "").await;
        assert_eq!(client.head().await.status, 200);
        if number % 10 < 10 - ASLEEP_OF_TEN {
            let received = Arc::clone(received);
            readers.push(StreamReader::Awake(tokio::spawn(async move {
                let mut rest = String::new();
                while client.event(&mut rest).await.is_some() {
                    received.fetch_add(1, Ordering::SeqCst);
                }
            })));
        } else {
            readers.push(StreamReader::Asleep(Box::new(client)));
        }
    }
    readers
}

enum StreamReader {
    Awake(tokio::task::JoinHandle<()>),
    Asleep(#[allow(dead_code, reason = "kept open")] Box<Client>),
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        match self {
            Self::Awake(reading) => reading.abort(),
            Self::Asleep(_) => {}
        }
    }
}

async fn many_readers_cost_the_store_as_much_as_one_and_none_costs_nothing(world: World) {
    let counted = CountedServer::of(world).await;
    let holders = Arc::strong_count(&counted.store);
    assert_eq!(counted.calls().await.0, 0, "no reader, no call");
    let many = 100 * rounds().min(5);
    for path in [format!("/api/v1/tasks/{}/events", counted.task), "/api/v1/live".to_owned()] {
        let mut for_one = None;
        for count in [1, many] {
            let received = Arc::new(AtomicU64::new(0));
            let readers = open(&counted.server, &path, count, &received).await;
            let begun = async {
                while received.load(Ordering::SeqCst) < count as u64 / 2 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(MAX_WAIT, begun).await.expect("they receive something");
            let (calls, changes) = counted.calls().await;
            println!(
                "{path}: {count} readers, {calls} calls for {changes} changes in {WINDOW:?}, {} events sent",
                received.load(Ordering::SeqCst)
            );
            let for_one = *for_one.get_or_insert((calls, changes));
            assert!(
                0 < calls && is_shared((calls, changes), for_one),
                "{path}: {count} readers, {calls} calls for {changes} changes; for one: {for_one:?}"
            );
            drop(readers);
            counted.until_forgotten(holders).await;
        }
        assert_eq!(counted.calls().await.0, 0, "{path}: without readers again");
    }
}

/// As a server would be that reads the store for each of its readers: one server for each of them.
async fn readers_that_share_nothing_are_noticed(world: World) {
    const ALONE: usize = 24;
    let counted = CountedServer::of(world).await;
    let shared: Arc<dyn Store> = Arc::<CountingStore>::clone(&counted.store);
    let mut servers = Vec::new();
    for number in 0..ALONE as u64 {
        let (parts, _) =
            parts(Arc::clone(&shared), counted.world.place.folder(), 910 + number, MetricsAccess::Token);
        let bound = ListenAddress::Tcp(([127, 0, 0, 1], 0).into()).bind().await.expect("it listens");
        servers.push(Server::start(parts, bound).expect("it starts"));
    }
    for path in [format!("/api/v1/tasks/{}/events", counted.task), "/api/v1/live".to_owned()] {
        let received = Arc::new(AtomicU64::new(0));
        let mut readers = open(&counted.server, &path, 1, &received).await;
        let for_one = counted.calls().await;
        for server in &servers {
            readers.extend(open(server, &path, 1, &received).await);
        }
        let apart = counted.calls().await;
        println!(
            "{path}: {ALONE} more readers, each with its own server: {apart:?} calls and changes, {for_one:?} for one"
        );
        assert!(!is_shared(apart, for_one), "{path}: {apart:?}, {for_one:?} for one");
    }
}
