//! Liveness lock of a session: while any process holds a duplicate of it, the node does not count as dead, and no other
//! node starts its tasks while its child processes are still running.
//!
//! A program of its own: one test starts a child, which has copies of all descriptors of its parent until it execs, and other tests of
//! the store find out which locks are free.

#![cfg(feature = "conformance")]

use std::process::{Command, Stdio};
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::Store;
use ostler_store::calls::{Expired, Fenced};
use ostler_store::views::Liveness;
use ostler_testkit::{Ids, TempStore};

const TTL: Duration = Duration::from_secs(60);

/// A child process has copies of all descriptors of its parent until it execs. So no test may start one while another
/// checks which locks are held.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn join(store: &dyn Store) -> SessionId {
    let node = Ids::new(1).new_session("node", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

async fn life(store: &dyn Store) -> Vec<Liveness> {
    store.survey().await.expect("survey answers").nodes.iter().map(|node| node.liveness).collect()
}

async fn expire(store: &dyn Store) -> Vec<SessionId> {
    store.expire(100).await.expect("expire answers").sessions
}

#[tokio::test]
async fn a_child_with_the_tether_keeps_the_death_of_its_node_from_being_known() {
    let _alone = ALONE.lock().await;
    let (here, _clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let session = join(&*store).await;
    let liveness_lock =
        store.liveness_lock(session).expect("it answers").expect("the session is of this process");
    let mut child =
        Command::new("sleep").arg("600").stdin(Stdio::from(liveness_lock)).spawn().expect("a child starts");

    store.kill(session);
    for looking in [&store, &other] {
        assert_eq!(expire(&**looking).await, [], "the child still holds it");
        assert_eq!(life(&**looking).await, [Liveness::Alive]);
    }
    child.kill().expect("the child is killed");
    child.wait().expect("the child ends");
    assert_eq!(life(&*other).await, [Liveness::Overdue]);
    assert_eq!(expire(&*other).await, [session], "and now at once, without a TTL");
}

#[tokio::test]
async fn the_last_copy_of_a_tether_counts() {
    let _alone = ALONE.lock().await;
    let (here, _clock) = TempStore::manual();
    let store = here.store();
    let session = join(&*store).await;
    let liveness_lock =
        store.liveness_lock(session).expect("it answers").expect("the session is of this process");
    let copy = liveness_lock.try_clone().expect("a copy");
    store.kill(session);
    drop(liveness_lock);
    assert_eq!(expire(&*store).await, []);
    drop(copy);
    assert_eq!(expire(&*store).await, [session]);
}

#[tokio::test]
async fn a_tether_does_not_hold_a_session_past_its_time() {
    let _alone = ALONE.lock().await;
    let (here, clock) = TempStore::manual();
    let store = here.store();
    let session = join(&*store).await;
    let _tether = store.liveness_lock(session).expect("it answers").expect("the session is of this process");
    store.kill(session);
    clock.advance(TTL);
    assert_eq!(expire(&*store).await, [], "its time is just not over");
    clock.advance(Duration::from_millis(1));
    assert_eq!(expire(&*store).await, [session]);
}

#[tokio::test]
async fn a_node_leaves_while_its_tether_is_held() {
    let _alone = ALONE.lock().await;
    let (here, _clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let session = join(&*store).await;
    let liveness_lock =
        store.liveness_lock(session).expect("it answers").expect("the session is of this process");
    assert_eq!(store.leave(session).await, Ok(Fenced::Recorded));
    for looking in [&store, &other] {
        assert_eq!(life(&**looking).await, []);
        assert_eq!(looking.expire(100).await, Ok(Expired::default()));
    }
    assert!(store.liveness_lock(session).is_ok_and(|it| it.is_none()), "there is no more of it");
    drop(liveness_lock);
    let files = std::fs::read_dir(here.folder().join("ostler.db.nodes")).expect("the folder of locks");
    let left = files.flatten().filter(|file| file.path().extension().is_some_and(|end| end == "node"));
    assert_eq!(left.count(), 0, "its file is gone");
}

#[tokio::test]
async fn only_the_process_of_a_session_gives_its_tether_away() {
    let _alone = ALONE.lock().await;
    let (here, _clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let session = join(&*store).await;
    assert!(other.liveness_lock(session).expect("it answers").is_none());
    assert!(store.liveness_lock(Ids::new(9).new_session("unknown", TTL).id).expect("it answers").is_none());
    assert!(store.liveness_lock(session).expect("it answers").is_some());
    assert_eq!(expire(&*other).await, [], "a copy that was closed again let nothing go");
}
