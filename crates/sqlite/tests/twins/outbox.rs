//! Outbox: every entry is delivered at least once, even if the process is killed between the commit and the call.

#![cfg(feature = "crash-points")]

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{EndKind, ErrorClass, Failure, Outcome, SessionId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Fenced, Kinds, QueueChange, Ran, Report};
use ostler_store::outbox::{OutboxAnswer, OutboxEntry, OutboxFilter, Subscription};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, Twin, scratch};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const CRASH_AT: &str = "OSTLER_CRASH_AT";
const QUEUE: &str = "mail";
const TTL: Duration = Duration::from_secs(60);

fn open(folder: &Path) -> Sqlite {
    let path = folder.join("ostler.db");
    Sqlite::open(path, Arc::new(SystemClock), Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

async fn join(store: &dyn Store, ids: &Ids) -> SessionId {
    let node = ids.new_session("node", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

async fn hear(store: &dyn Store, session: SessionId) -> Vec<OutboxEntry> {
    match store.take_outbox(session, QUEUE, "callbacks", 10).await.expect("take_outbox answers") {
        OutboxAnswer::Entries(entries) => entries,
        OutboxAnswer::SessionEnded => panic!("the session is over, and should not be"),
    }
}

/// The point of the kill, and the outbox entries left for the next node.
const KILLS: [(&str, &[EndKind]); 10] = [
    ("finish.begun", &[]),
    ("finish.written", &[]),
    ("finish.committed", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("finish.answered", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("take_outbox.begun", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("take_outbox.committed", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("take_outbox.answered", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("ack_outbox.begun", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("ack_outbox.written", &[EndKind::Completed, EndKind::Failed, EndKind::Retry]),
    ("ack_outbox.committed", &[EndKind::Retry]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_leaves_what_was_not_told_to_the_next_node() {
    for (at, expected) in KILLS {
        let folder = scratch();
        let twin = Twin::start(
            "outbox::telling_node",
            &[(FOLDER, folder.path().as_os_str()), (CRASH_AT, OsStr::new(at))],
        );
        let status = twin.wait();
        assert_eq!(status.signal(), Some(9), "{at}: it is killed there, not {status}");

        let store = open(folder.path());
        let next = join(&store, &Ids::new(2)).await;
        let expired = store.expire(100).await.expect("expire answers");
        assert_eq!(expired.sessions.len(), 1, "{at}: its death is known at once");
        let left: Vec<EndKind> = hear(&store, next).await.into_iter().map(|entry| entry.what).collect();
        assert_eq!(left, expected, "{at}");
    }
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn telling_node() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store = open(&folder);
    let ids = Ids::new(1);
    store
        .configure(
            QUEUE,
            vec![QueueChange::Subscribe(Subscription {
                name: "callbacks".to_owned(),
                wants: OutboxFilter::ALL,
            })],
        )
        .await
        .expect("configure answers");
    store.enqueue(ids.new_tasks(3, QUEUE, "send")).await.expect("enqueue answers");
    let session = join(&store, &ids).await;
    let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: 3 };
    let ClaimAnswer::Tasks { tasks: claimed, .. } = store.claim(claim).await.expect("claim answers") else {
        panic!("the session is over, and should not be")
    };
    let failed = |class| Outcome::Failed(Failure::new(class, "the post office is closed"));
    let outcomes = [Outcome::Success, failed(ErrorClass::Permanent), failed(ErrorClass::Transient)];
    let ran = Some(Ran { worker: ids.worker(), took: Duration::from_millis(1) });
    let reports = claimed
        .into_iter()
        .zip(outcomes)
        .map(|(claimed, outcome)| Report { lease: claimed.lease, ran, outcome, output: None, reading: None })
        .collect();
    store.finish(reports).await.expect("finish answers");
    let heard = hear(&store, session).await;
    let deliveries = heard.iter().take(2).map(|entry| entry.number.into()).collect();
    store.ack_outbox(session, deliveries).await.expect("told answers");
}
