//! Watchers of changes: processes that do not listen otherwise, and what is sent while none watches.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use ostler_core::{Id, TaskId};
use ostler_postgres::tokio_postgres::{AsyncMessage, NoTls, connect};
use ostler_postgres::{Listening, Options, Postgres};
use ostler_store::calls::NewTask;
use ostler_store::{Changes, LAST_POLL, Store, Woken};
use ostler_testkit::{MAX_WAIT, PrivatePostgres};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A hint that is late counts as lost, so each change is repeated, up to this often.
const ROUNDS: u128 = 20;

async fn open(schema: &str, listening: Listening) -> Arc<Postgres> {
    let options = Options { schema: schema.to_owned(), listening, ..Options::default() };
    Arc::new(Postgres::open(&PrivatePostgres::shared().url(), options).await.expect("the store opens"))
}

/// Enqueues a task and cancels it: a change.
async fn change(store: &Postgres, number: u128) {
    let id = TaskId(Id::from_bits(number));
    store.enqueue(vec![NewTask::new(id, "mail", "send", "{}")]).await.expect("enqueue answers");
    store.cancel(vec![id]).await.expect("cancel answers");
}

/// Waits until polls are rare: by then other processes know of the watcher.
async fn settled(changes: &mut Changes) {
    loop {
        let began = Instant::now();
        if changes.wait().await == Woken::Poll && began.elapsed() >= LAST_POLL / 2 {
            return;
        }
    }
}

async fn is_told(changes: &mut Changes, writer: &Postgres) -> bool {
    settled(changes).await;
    for number in 1..=ROUNDS {
        change(writer, number).await;
        if changes.wait().await == Woken::Hint {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_does_not_listen_is_told_of_changes_while_it_watches() {
    let (node, watcher) =
        (open("told_brief", Listening::On).await, open("told_brief", Listening::Brief).await);
    assert!(is_told(&mut watcher.changes(), &node).await, "no change was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_brief_process_tells_those_who_watch() {
    let (watcher, brief) =
        (open("brief_tells", Listening::On).await, open("brief_tells", Listening::Brief).await);
    assert!(is_told(&mut watcher.changes(), &brief).await, "no change was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_notified_only_while_a_watcher_is_announced() {
    const SCHEMA: &str = "unwatched";
    let node = open(SCHEMA, Listening::On).await;
    let (client, mut connection) =
        connect(&PrivatePostgres::shared().url(), NoTls).await.expect("a connection");
    let (sender, mut notices) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notice) = message {
                let _ = sender.send(notice.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("LISTEN \"ostler {SCHEMA}\"")).await.expect("it listens");
    for number in 1..=5 {
        change(&node, number).await;
    }
    // Sent after all that the node may have sent about these.
    let mark = format!("SELECT pg_sleep(0.2); NOTIFY \"ostler {SCHEMA}\", 'mark'");
    client.batch_execute(&mark).await.expect("it notifies");
    let mut before = Vec::new();
    loop {
        let notice =
            timeout(MAX_WAIT, notices.recv()).await.expect("it comes").expect("the connection lives");
        if notice == "mark" {
            break;
        }
        before.push(notice);
    }
    assert!(before.iter().any(|notice| notice.contains("ready")), "new tasks are told of: {before:?}");
    assert!(!before.iter().any(|notice| notice.contains("changed")), "no one watches: {before:?}");
    let watcher = open(SCHEMA, Listening::On).await;
    let mut changes = watcher.changes();
    settled(&mut changes).await;
    change(&node, 6).await;
    let told = async { while !notices.recv().await.expect("the connection lives").contains("changed") {} };
    timeout(MAX_WAIT, told).await.expect("a change is notified while a watcher is announced");
}
