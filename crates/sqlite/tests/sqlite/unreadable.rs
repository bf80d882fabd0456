//! An unreadable lock file of a session says nothing about its node: only a whole TTL without a change does.

use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::SessionId;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Expired, Fenced, Renewed};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, TempStore, scratch};

const TTL: Duration = Duration::from_secs(60);
/// Another user and group; the number does not matter.
const USER: u32 = 65_534;

async fn join(store: &dyn Store) -> SessionId {
    let node = Ids::new(1).new_session("node", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

fn lock_file(here: &TempStore, session: SessionId) -> PathBuf {
    here.folder().join(format!("ostler.db.nodes/{session}.node"))
}

/// Sends heartbeats until the file system's clock, which ticks every few milliseconds, has advanced.
async fn liveness(store: &dyn Store, session: SessionId, lock: &Path) {
    let changed = || {
        let file = std::fs::metadata(lock).expect("it is there");
        (file.mtime(), file.mtime_nsec())
    };
    let (before, until) = (changed(), Instant::now() + MAX_WAIT);
    while changed() == before {
        assert!(Instant::now() < until, "a beat changes the file");
        assert!(matches!(store.renew(session, &[]).await, Ok(Renewed::Held { .. })));
    }
}

async fn expired(store: &dyn Store) -> Vec<SessionId> {
    store.expire(100).await.expect("expire answers").sessions
}

#[tokio::test]
async fn a_node_whose_file_cannot_be_read_lives_for_as_long_as_the_file_changes() {
    let (here, clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let session = join(&*store).await;
    let lock = lock_file(&here, session);
    File::options().write(true).open(&lock).and_then(|file| file.set_len(10)).expect("it is cut short");
    assert_eq!(expired(&*other).await, [], "it was seen for the first time");
    for _ in 0..4 {
        clock.advance(TTL * 3 / 4);
        liveness(&*store, session, &lock).await;
        assert_eq!(expired(&*other).await, [], "it has changed since");
    }
    clock.advance(TTL);
    assert_eq!(expired(&*other).await, [], "its time is just not over");
    clock.advance(Duration::from_millis(1));
    assert_eq!(expired(&*other).await, [session], "it has been silent for longer than its TTL");
}

#[tokio::test]
async fn a_file_that_is_readable_again_says_what_it_says() {
    let (here, clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let session = join(&*store).await;
    let lock = lock_file(&here, session);
    let whole = std::fs::read(&lock).expect("it can be read");
    std::fs::write(&lock, b"short").expect("it is cut short");
    assert_eq!(other.expire(100).await, Ok(Expired::default()));
    std::fs::write(&lock, whole).expect("it is whole again");
    clock.advance(TTL + Duration::from_millis(1));
    assert_eq!(expired(&*other).await, [session], "its last beat is too old, whenever the file was changed");
}

#[tokio::test]
async fn the_files_beside_a_store_belong_to_the_owner_of_the_store() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    let open = || Sqlite::open(&path, Arc::new(SystemClock), Options::default()).expect("the store opens");
    drop(open());
    std::fs::remove_dir_all(folder.path().join("ostler.db.nodes")).expect("the folder is removed");
    // Only root may change the owner. For other users the files are already theirs.
    if rustix::process::geteuid().is_root() {
        chown(&path, Some(USER), Some(USER)).expect("root gives it away");
    }
    let owner = |path: &Path| {
        let file = std::fs::metadata(path).expect("it is there");
        (file.uid(), file.gid())
    };
    let store = open();
    let session = join(&store).await;
    let locks = folder.path().join("ostler.db.nodes");
    for name in [".", "main.lock", "next.lock", &format!("{session}.node")] {
        assert_eq!(owner(&locks.join(name)), owner(&path), "{name}");
    }
}
