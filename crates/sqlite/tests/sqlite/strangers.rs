//! Foreign locks: a database tool or a backup has the file locked. Writers wait and then continue; no caller gets a
//! "database is locked" error, and no node loses a lease.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_core::{Outcome, StateName};
use ostler_store::calls::{Claim, ClaimAnswer, Enqueued, Fenced, Finished, Kinds, Renewed, Report};
use ostler_store::views::{Filter, TaskRef};
use ostler_store::{Clock, Store};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};
use rusqlite::Connection;

/// Longer than any lease would last by itself.
const TTL: Duration = Duration::from_secs(60);

/// A plain connection that has the file locked until it is released.
struct Stranger {
    let_go: Sender<()>,
    thread: JoinHandle<()>,
}

impl Stranger {
    async fn lock(path: PathBuf, statement: &'static str) -> Self {
        let (let_go, released) = channel();
        let locked = Signal::new("the stranger has the file locked");
        let has = locked.clone();
        let thread = std::thread::spawn(move || {
            let conn = Connection::open(path).expect("the file opens");
            conn.busy_timeout(MAX_WAIT).expect("it can wait");
            conn.execute_batch(statement).expect("it gets its lock");
            has.emit();
            released.recv_timeout(MAX_WAIT).expect("the test lets it go");
            conn.execute_batch("COMMIT").expect("it lets go");
        });
        locked.wait().await;
        Self { let_go, thread }
    }

    fn let_go(self) {
        self.let_go.send(()).expect("it listens");
        self.thread.join().expect("it ends well");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_wait_for_a_stranger_and_no_node_loses_a_lease() {
    let (here, clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let ids = Ids::new(1);
    let node = ids.new_session("here", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    store.enqueue(ids.new_tasks(2, "mail", "send")).await.expect("enqueue answers");
    let asks = Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 2 };
    let ClaimAnswer::Tasks { tasks: mut claimed, .. } = store.claim(asks).await.expect("claim answers")
    else {
        panic!("the session is over")
    };
    let held: Vec<_> = claimed.iter().map(|claimed| claimed.lease.as_ref()).collect();

    for statement in ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE; DELETE FROM worker"] {
        let stranger = Stranger::lock(here.path(), statement).await;
        let wrote = Signal::new("a writer went on");
        let writers: Vec<_> = [&store, &store, &other]
            .into_iter()
            .map(|store| {
                let (store, task, wrote) = (Arc::clone(store), ids.new_task("mail", "send"), wrote.clone());
                tokio::spawn(async move {
                    let id = task.id;
                    assert_eq!(store.enqueue(vec![task]).await, Ok(vec![Enqueued::Created(id)]));
                    wrote.emit();
                })
            })
            .collect();
        // Two TTLs pass, with a heartbeat every quarter of one. Heartbeats do not need the database, and reads continue.
        for _ in 0..8 {
            clock.advance(TTL / 4);
            let renewed = store.renew(session, &held).await;
            assert_eq!(
                renewed,
                Ok(Renewed::Held { cancelled: vec![], lost: vec![], unnamed: vec![], commands: vec![] }),
                "{statement}"
            );
            let expired = other.expire(100).await.expect("expire answers");
            assert_eq!((expired.sessions, expired.tasks), (vec![], 0), "{statement}");
        }
        assert!(store.show(TaskRef::Id(held[0].task)).await.expect("show answers").is_some());
        assert_eq!(store.list(Filter::default(), None, 100).await.expect("list answers").next, None);
        assert_eq!(store.survey().await.expect("survey answers").nodes.len(), 1);
        assert_eq!(
            wrote.count(),
            0,
            "{statement}: no writer can have written while the stranger has the file"
        );
        stranger.let_go();
        for writer in writers {
            writer.await.expect("it was let in, without a word about a lock");
        }
    }

    let lease = claimed.remove(0).lease;
    let report = Report { lease, ran: None, outcome: Outcome::Success, output: None, reading: None };
    let finished = store.finish(vec![report]).await.expect("finish answers");
    assert_eq!(finished, [Finished::Recorded(StateName::Completed)], "the lease held, at {}", clock.now());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_opened_and_closed_beside_a_stranger() {
    let mut here = TempStore::real();
    let stranger = Stranger::lock(here.path(), "BEGIN IMMEDIATE; DELETE FROM worker").await;
    let (second, path) = (here.second(), here.path());
    assert_eq!(second.survey().await.expect("survey answers").nodes, []);
    drop(second);
    here.close();
    stranger.let_go();
    let store = here.reopen();
    store.enqueue(Ids::new(1).new_tasks(1, "mail", "send")).await.expect("enqueue answers");
    assert_eq!(store.path(), path.canonicalize().expect("it is there"));
}

/// A reader that never ends blocks checkpoints, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_reads_stops_no_writer() {
    let here = TempStore::real();
    let store = here.store();
    let stranger = Stranger::lock(here.path(), "BEGIN; SELECT count(*) FROM task").await;
    let ids = Ids::new(1);
    for _ in 0..50 {
        store.enqueue(ids.new_tasks(100, "mail", "send")).await.expect("enqueue answers");
    }
    stranger.let_go();
    assert_eq!(store.survey().await.expect("survey answers").lanes[0].counts.queued, 5_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_writes_stops_no_reader() {
    let here = TempStore::real();
    let store = here.store();
    let tasks = Ids::new(1).new_tasks(3, "mail", "send");
    let id = tasks[0].id;
    store.enqueue(tasks).await.expect("enqueue answers");
    let stranger = Stranger::lock(here.path(), "BEGIN IMMEDIATE; DELETE FROM task").await;
    let reads = async {
        let queued = store.survey().await.expect("survey answers").lanes[0].counts.queued;
        (queued, store.show(TaskRef::Id(id)).await.expect("show answers").is_some())
    };
    let read = tokio::time::timeout(MAX_WAIT, reads).await.expect("readers do not wait for a writer");
    assert_eq!(read, (3, true), "they see what is committed");
    stranger.let_go();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_beside_a_stranger_lives_from_when_it_could_act() {
    let (here, clock) = TempStore::manual();
    let store = here.store();
    let node = Ids::new(2).new_session("here", TTL);
    let session = node.id;
    let stranger = Stranger::lock(here.path(), "BEGIN EXCLUSIVE").await;
    let joining = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.join(node).await }
    });
    // The lock file is complete once it has the first heartbeat; from then on the node waits for the foreign lock.
    let mut file = here.path().into_os_string();
    file.push(format!(".nodes/{session}.node"));
    let begun = async {
        while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, begun).await.expect("it begins");
    clock.advance(TTL * 2);
    stranger.let_go();
    assert_eq!(joining.await.expect("it ends well"), Ok(Fenced::Recorded));
    assert!(matches!(store.renew(session, &[]).await, Ok(Renewed::Held { .. })), "it is alive");
    assert_eq!(store.expire(100).await.expect("expire answers").sessions, [], "and not taken for dead");
}
