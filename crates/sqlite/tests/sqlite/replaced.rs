//! A file renamed, replaced or deleted under an open store. Later writes would be lost: they are refused, never
//! acknowledged, and a file that is now at the path is not touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_core::Outcome;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Enqueued, Fenced, Kinds, QueueChange, Report};
use ostler_store::views::TaskRef;
use ostler_store::{Error, ErrorKind, Store, SystemClock};
use ostler_testkit::{Ids, scratch};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Arc::new(SystemClock), Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The operation on the file.
type Fate = fn(&Path, &Path);

const FATES: [(&str, Fate); 4] = [
    ("renamed", |path, aside| std::fs::rename(path, aside).expect("a rename")),
    ("deleted", |path, _| std::fs::remove_file(path).expect("a removal")),
    ("replaced by a text", |path, aside| {
        std::fs::rename(path, aside).expect("a rename");
        std::fs::write(path, "not a store").expect("a file");
    }),
    ("replaced by another store", |path, aside| {
        let other = path.with_file_name("other.db");
        drop(open(&other));
        std::fs::rename(path, aside).expect("a rename");
        std::fs::rename(other, path).expect("a rename");
    }),
];

fn replaced<T: std::fmt::Debug>(what: &str, path: &Path, answer: Result<T, Error>) {
    let error = answer.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Replaced, "{what}: {error}");
    assert!(!error.is_transient(), "{what}: trying again does not help");
    assert!(error.to_string().contains(&path.display().to_string()), "{what}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_into_the_void() {
    for (what, fate) in FATES {
        let folder = scratch();
        let (path, aside): (PathBuf, PathBuf) =
            (folder.path().join("ostler.db"), folder.path().join("aside"));
        let store = Arc::new(open(&path));
        let ids = Ids::new(1);
        let node = ids.new_session("here", Duration::from_secs(60));
        let session = node.id;
        assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
        let before = ids.new_task("mail", "send");
        let kept = before.id;
        assert_eq!(store.enqueue(vec![before]).await, Ok(vec![Enqueued::Created(kept)]));
        let asks = Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 1 };
        let ClaimAnswer::Tasks { tasks: mut claimed, .. } =
            store.claim(asks.clone()).await.expect("claim answers")
        else {
            panic!("the session is over")
        };

        fate(&path, &aside);
        let there = std::fs::read(&path).ok();

        // One caller alone, then many in one commit; repeated calls stay refused.
        replaced(what, &path, store.enqueue(ids.new_tasks(1, "mail", "send")).await);
        let callers = (0..20).map(|_| {
            let (store, tasks) = (Arc::clone(&store), ids.new_tasks(1, "mail", "send"));
            tokio::spawn(async move { store.enqueue(tasks).await })
        });
        for caller in callers.collect::<Vec<_>>() {
            replaced(what, &path, caller.await.expect("the caller ends"));
        }
        replaced(what, &path, store.claim(asks).await);
        replaced(what, &path, store.configure("mail", vec![QueueChange::Resume]).await);
        replaced(what, &path, store.leave(session).await);
        let lease = claimed.remove(0).lease;
        let report = Report { lease, ran: None, outcome: Outcome::Success, output: None, reading: None };
        let unwritten = store.finish(vec![report]).await.expect_err(what);
        assert_eq!(unwritten.error.kind(), ErrorKind::Replaced, "{what}");
        assert_eq!(unwritten.reports.len(), 1, "{what}: the report comes back");
        drop(store);

        assert_eq!(
            std::fs::read(&path).ok(),
            there,
            "{what}: what is at the path now is as it was put there"
        );
        assert!(there.is_some() || !path.exists(), "{what}: no file was made");
    }
}

#[tokio::test]
async fn what_was_acknowledged_before_is_in_the_file_that_was_put_aside() {
    let folder = scratch();
    let (path, aside) = (folder.path().join("ostler.db"), folder.path().join("aside.db"));
    let store = open(&path);
    let ids = Ids::new(1);
    let task = ids.new_task("mail", "send");
    let kept = task.id;
    store.enqueue(vec![task]).await.expect("enqueue answers");
    drop(store);
    // With the store closed, everything is in the one file.
    std::fs::rename(&path, &aside).expect("a rename");
    let store = open(&aside);
    assert!(store.show(TaskRef::Id(kept)).await.expect("show answers").is_some());
    let new = open(&path);
    assert!(new.show(TaskRef::Id(kept)).await.expect("show answers").is_none(), "the other one begins empty");
}

/// A path that cannot be inspected says nothing about the file behind it.
#[tokio::test]
async fn a_path_that_cannot_be_looked_at_for_a_while_is_not_a_file_that_was_replaced() {
    let folder = scratch();
    // A symlink to itself cannot be followed, not even by root.
    let (inner, aside) = (folder.path().join("inner"), folder.path().join("aside"));
    std::fs::create_dir(&inner).expect("a folder");
    let path = inner.join("ostler.db");
    let store = open(&path);
    let ids = Ids::new(1);
    store.enqueue(ids.new_tasks(1, "mail", "send")).await.expect("enqueue answers");

    std::fs::rename(&inner, &aside).expect("a rename");
    std::os::unix::fs::symlink(&inner, &inner).expect("a link");
    let error = store.enqueue(ids.new_tasks(1, "mail", "send")).await.expect_err("it cannot be looked at");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_transient() && error.to_string().contains("cannot be examined"), "{error}");

    std::fs::remove_file(&inner).expect("the link goes");
    std::fs::rename(&aside, &inner).expect("the folder is back");
    store.enqueue(ids.new_tasks(1, "mail", "send")).await.expect("it goes on");
}
