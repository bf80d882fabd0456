//! Order of a busy queue: claims continue from where the last one left off, and still miss no task.

use std::time::Duration;

use ostler_core::{Id, Outcome, Priority, SessionId, TaskId, WorkerId};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Kinds, NewSession, NewTask, Ran, Report, Start,
};
use ostler_store::{MAX_BATCH, MAX_CLAIM, Store};
use ostler_testkit::PrivatePostgres;

const QUEUE: &str = "mail";
const SESSION: SessionId = SessionId(Id::from_bytes([9; 16]));
/// More than are claimed before claims continue from where the last one left off.
const MANY: usize = 3_000;

async fn open(schema: &str) -> Postgres {
    let options = Options { schema: schema.to_owned(), ..Options::default() };
    let store = Postgres::open(&PrivatePostgres::shared().url(), options).await.expect("the store opens");
    let ttl = Duration::from_secs(3_600);
    let (name, version, settings) = ("n".to_owned(), "1".to_owned(), String::new());
    let node = NewSession { id: SESSION, name, host: "stable-1".to_owned(), pid: 1, version, ttl, settings };
    store.join(node).await.expect("the node joins");
    store
}

fn task(number: usize, priority: i64) -> NewTask {
    let id = TaskId(Id::from_bytes((number as u128 + 1).to_be_bytes()));
    let mut task = NewTask::new(id, QUEUE, "send", "{}");
    task.priority = Priority::new(priority).expect("a priority");
    task
}

async fn claim(store: &Postgres, limit: usize) -> Vec<Claimed> {
    let claim = Claim { session: SESSION, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await.expect("claimed") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        ClaimAnswer::SessionEnded => panic!("the session is live"),
    }
}

/// A queue from which many tasks were claimed, with as many left.
async fn busy(schema: &str) -> Postgres {
    let store = open(schema).await;
    let tasks = (0..2 * MANY).map(|number| task(number, 0)).collect();
    store.enqueue(tasks).await.expect("enqueued");
    for _ in 0..MANY / 500 {
        assert_eq!(claim(&store, 500).await.len(), 500);
    }
    store
}

#[tokio::test]
async fn in_a_busy_queue_a_task_of_higher_priority_is_claimed_next() {
    let store = busy("order_priority").await;
    store.enqueue(vec![task(9_000, 100)]).await.expect("enqueued");
    assert_eq!(claim(&store, 1).await[0].lease.task(), task(9_000, 100).id);
}

#[tokio::test]
async fn in_a_busy_queue_what_is_handed_back_is_claimed_next() {
    let store = busy("order_back").await;
    let mut claimed = claim(&store, 2).await;
    let (first, _) = (claimed.remove(0), claimed);
    let id = first.lease.task();
    let report =
        Report { lease: first.lease, ran: None, outcome: Outcome::HandedBack, output: None, reading: None };
    store.finish(vec![report]).await.expect("handed back");
    assert_eq!(claim(&store, 1).await[0].lease.task(), id);
}

#[tokio::test]
async fn a_claim_that_asks_for_more_than_there_is_behind_also_gets_what_another_process_put_in_front() {
    let (store, other) = (busy("order_other").await, open("order_other").await);
    other.enqueue(vec![task(9_000, 100)]).await.expect("enqueued");
    let mut claimed = Vec::new();
    for _ in 0..MANY / 500 + 1 {
        claimed.extend(claim(&store, 500).await.into_iter().map(|task| task.lease.task()));
    }
    assert_eq!(claimed.len(), MANY + 1);
    assert!(claimed.contains(&task(9_000, 100).id));
}

#[tokio::test]
async fn many_begin_in_one_call_and_each_is_answered_for_itself() {
    let store = open("order_starts").await;
    store.enqueue((0..5).map(|number| task(number, 0)).collect()).await.expect("enqueued");
    let mut claimed = claim(&store, 5).await;
    let worker = WorkerId(Id::from_bytes([3; 16]));
    let gone = claimed.remove(2);
    let lost = gone.lease.as_ref();
    let ran = Some(Ran { worker, took: Duration::ZERO });
    let report = Report { lease: gone.lease, ran, outcome: Outcome::Success, output: None, reading: None };
    store.finish(vec![report]).await.expect("finished");
    let mut starts: Vec<Start> =
        claimed.iter().map(|task| Start { lease: task.lease.as_ref(), worker }).collect();
    starts.insert(2, Start { lease: lost, worker });
    starts.push(starts[0]);
    let answers = store.start(starts).await.expect("started");
    let recorded = Fenced::Recorded;
    assert_eq!(answers, [recorded, recorded, Fenced::Lost, recorded, recorded, recorded]);
    let survey = store.survey().await.expect("surveyed");
    assert_eq!((survey.lanes[0].counts.running, survey.lanes[0].counts.completed), (4, 1));
}

#[tokio::test]
async fn ten_thousand_tasks_of_one_call_are_created_and_claimed_in_their_order() {
    let store = open("order_batch").await;
    let tasks: Vec<NewTask> = (0..MAX_BATCH).map(|number| task(number, 0)).collect();
    let expected: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let created: Vec<Enqueued> = expected.iter().map(|id| Enqueued::Created(*id)).collect();
    assert!(store.enqueue(tasks).await == Ok(created), "each is created, and answered in its place");
    let mut claimed = Vec::new();
    while claimed.len() < MAX_BATCH {
        let some = claim(&store, MAX_CLAIM).await;
        assert!(!some.is_empty(), "only {} are there", claimed.len());
        claimed.extend(some.iter().map(|task| task.lease.task()));
    }
    assert!(claimed == expected, "they are claimed in the order in which they were given");
}
