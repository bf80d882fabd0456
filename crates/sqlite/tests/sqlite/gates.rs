//! The gate state in the file is kept for as long as it is needed, and no longer.

use std::time::Duration;

use ostler_core::{Outcome, Rate, SessionId, TaskId};
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Fenced, Kinds, NewTask, Prune, QueueChange, Retention,
};
use ostler_store::{Lease, Store};
use ostler_testkit::{Ids, TempStore};
use rusqlite::Connection;

const QUEUE: &str = "mail";
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn join(store: &dyn Store, ids: &Ids) -> SessionId {
    let node = ids.new_session("node", DAY);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

async fn add(store: &dyn Store, ids: &Ids, key: &str) -> TaskId {
    let task = NewTask { limit_key: Some(key.to_owned()), ..ids.new_task(QUEUE, "send") };
    let id = task.id;
    store.enqueue(vec![task]).await.expect("enqueue answers");
    id
}

async fn claim(store: &dyn Store, session: SessionId) -> Vec<Lease> {
    let asks = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: 100 };
    match store.claim(asks).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks.into_iter().map(|Claimed { lease, .. }| lease).collect(),
        ClaimAnswer::SessionEnded => panic!("the session is over, and should not be"),
    }
}

fn number(here: &TempStore, sql: &str) -> i64 {
    let conn = Connection::open(here.path()).expect("the file opens");
    conn.query_row(sql, [], |row| row.get(0)).expect("a number")
}

#[tokio::test]
async fn keys_without_tasks_stay_until_their_gates_have_nothing_to_remember() {
    let (here, clock) = TempStore::manual();
    let (store, ids) = (here.store(), Ids::new(1));
    let session = join(&*store, &ids).await;
    let rate = Rate { amount: 1, per: SECOND, burst: 1 };
    store.configure(QUEUE, vec![QueueChange::KeyRate(vec![rate])]).await.expect("configure answers");
    for key in 0..20 {
        add(&*store, &ids, &format!("key {key}")).await;
    }
    let leases = claim(&*store, session).await;
    assert_eq!(leases.len(), 20);
    let done: Vec<TaskId> = leases.iter().map(Lease::task).collect();
    let report = |lease| ostler_store::calls::Report {
        lease,
        ran: None,
        outcome: Outcome::Success,
        output: None,
        reading: None,
    };
    store.finish(leases.into_iter().map(report).collect()).await.expect("finish answers");
    store.prune(Prune::Tasks(done)).await.expect("prune answers");
    assert_eq!(number(&here, "SELECT count(*) FROM limits"), 20, "each has used its token");

    let batch = Retention { batch: 8, ..Retention::default() };
    store.prune(Prune::Retention(batch)).await.expect("prune answers");
    assert_eq!(number(&here, "SELECT count(*) FROM limits"), 20);
    clock.advance(SECOND);
    for left in [12, 4, 0] {
        store.prune(Prune::Retention(batch)).await.expect("prune answers");
        assert_eq!(number(&here, "SELECT count(*) FROM limits"), left);
    }
    assert_eq!(number(&here, "SELECT count(*) FROM unused_key"), 0);
}

#[tokio::test]
async fn a_key_that_was_only_named_leaves_nothing_behind() {
    let (here, clock) = TempStore::manual();
    let store = here.store();
    let key = || "unused".to_owned();
    for change in [QueueChange::ResetKeyBreaker(key()), QueueChange::EndKeyHold(key())] {
        store.configure(QUEUE, vec![change.clone(), change]).await.expect("configure answers");
        assert_eq!(number(&here, "SELECT count(*) FROM limits"), 0);
    }
    let until = Some(ostler_store::Clock::now(&clock).after(SECOND));
    store
        .configure(QUEUE, vec![QueueChange::OpenKeyBreaker { key: key(), until }])
        .await
        .expect("configure answers");
    assert_eq!(store.survey().await.expect("survey answers").keys.len(), 1, "it is open");
    store.configure(QUEUE, vec![QueueChange::ResetKeyBreaker(key())]).await.expect("configure answers");
    assert_eq!(number(&here, "SELECT count(*) FROM limits"), 0);
}

#[tokio::test]
async fn gates_that_were_edited_by_hand_hold_no_task_back() {
    let (here, _clock) = TempStore::manual();
    let (store, ids) = (here.store(), Ids::new(1));
    let session = join(&*store, &ids).await;
    store.configure(QUEUE, vec![QueueChange::OpenBreaker(None)]).await.expect("configure answers");
    let open = QueueChange::OpenKeyBreaker { key: "k".to_owned(), until: None };
    store.configure(QUEUE, vec![open]).await.expect("configure answers");
    add(&*store, &ids, "k").await;
    assert!(claim(&*store, session).await.is_empty());
    {
        let conn = Connection::open(here.path()).expect("the file opens");
        conn.execute_batch(
            "UPDATE queue SET gate = '?'; UPDATE limits SET gate = '[7]', shut_why = 99, shut_until = 1",
        )
        .expect("it is edited");
    }
    assert_eq!(store.survey().await.expect("survey answers").keys.len(), 1);
    assert!(store.make_ready(100).await.is_ok());
    assert_eq!(claim(&*store, session).await.len(), 1);
}
