//! A client without a node: it submits, waits and looks.

use std::time::Duration;

use ostler::{
    Client, Context, EventBody, Filter, Replay, StateName, Submission, SubmitError, TaskError, TextRef,
    WaitError,
};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::{Store as _, SystemClock};
use ostler_testkit::{MAX_WAIT, Signal, scratch};

/// The number of tasks that one call takes.
const MOST: usize = 10_000;

async fn publish(title: String, ctx: Context) -> Result<usize, TaskError> {
    ctx.log(format!("publishing {title}"));
    ctx.progress(1, Some(2));
    if ctx.attempt() == 1 {
        return Err(TaskError::transient("the press is cold"));
    }
    ctx.step("printed", || async { Ok(title.len()) }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_submits_and_sees_everything_and_is_no_node() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let client = Client::open(&path).await.unwrap().on("press");
    let id = client.submit("publish", &"a book").await.unwrap();
    assert_eq!(client.get(id).await.unwrap().state.name(), StateName::Queued, "no pool is up");
    let store = Sqlite::open(&path, std::sync::Arc::new(SystemClock), Options::default()).unwrap();
    assert_eq!(store.survey().await.unwrap().nodes, [], "a client has no heartbeat");

    let soon = ostler::Overrides { base: Some(Duration::from_millis(1)), ..ostler::Overrides::NONE };
    let builder = ostler::open(&path).unwrap().queue("press").handle("publish", publish).defaults(soon);
    let pool = builder.start().await.unwrap();
    assert_eq!(client.wait_as::<usize>(id).await.unwrap(), 6);

    let detail = client.show(id).await.unwrap();
    assert_eq!((detail.attempts.len(), detail.steps.len()), (2, 1));
    let failure = detail.attempts[0].end.as_ref().and_then(|end| end.failure.as_ref());
    assert_eq!(failure.map(|failure| failure.message.as_str()), Some("the press is cold"));
    assert_eq!((detail.steps[0].name.as_str(), detail.steps[0].value.as_str()), ("printed", "6"));
    let events = client.events(id, 0, 100).await.unwrap();
    let lines = events
        .iter()
        .filter(|event| matches!(&event.body, EventBody::Log { text, .. } if text == "publishing a book"));
    assert_eq!(lines.count(), 2, "one for each attempt: {events:?}");
    let has_progress = |event: &ostler::Event| matches!(event.body, EventBody::Progress { done: 1, .. });
    assert!(events.iter().any(has_progress), "{events:?}");
    assert_eq!(client.files(id).await.unwrap(), []);
    let output = client.read_text(id, TextRef::Output, 0, 10).await.unwrap();
    assert!(output.is_none_or(|text| text.bytes == b"6"));
    let stats = client.stats().await.unwrap();
    assert_eq!((stats.tasks.completed, stats.totals.retried), (1, 1));
    pool.drain(MAX_WAIT).await;
    assert!(!client.gone_workers().await.unwrap().is_empty(), "the workers of the pool left their records");
    assert!(client.submit("publish", &"more").await.is_ok(), "the client outlives the pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tasks_are_taken_in_one_call_and_one_more_is_refused_whole() {
    let folder = scratch();
    let client = Client::open(folder.path().join("jobs.db")).await.unwrap();
    let payloads: Vec<usize> = (0..=MOST).collect();
    assert!(client.submit_many("count", &payloads).await.is_err());
    assert_eq!(client.stats().await.unwrap().totals.submitted, 0, "nothing of it is stored");
    let answers = client.submit_many("count", &payloads[1..]).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), MOST);
    assert_eq!(client.stats().await.unwrap().tasks.queued, MOST as u64);
    let last = answers.into_iter().next_back().unwrap().unwrap();
    assert_eq!(client.get(last).await.unwrap().payload, MOST.to_string(), "the answers are in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_match_are_cancelled_replayed_and_dropped() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let client = Client::open(&path).await.unwrap();
    let other = client.on("other").submit("a", &()).await.unwrap();
    for kind in ["a", "a", "b"] {
        client.submit(kind, &()).await.unwrap();
    }
    let of = |kind: &str| Filter { kind: Some(kind.to_owned()), ..Filter::default() };
    assert_eq!(client.cancel_all(of("a")).await.unwrap(), 2);
    let tasks = client.stats().await.unwrap().tasks;
    assert_eq!((tasks.queued, tasks.cancelled), (1, 2));
    assert_eq!(
        client.get(other).await.unwrap().state.name(),
        StateName::Queued,
        "another queue is left alone"
    );
    assert_eq!(client.replay_all(of("a"), Replay::default()).await.unwrap(), 2);

    let handler = |(): (), _: Context| async { Err::<(), _>(TaskError::permanent("never")) };
    let pool = ostler::open(&path).unwrap().handle("a", handler).start().await.unwrap();
    let failed = Filter { state: Some(StateName::Failed), ..Filter::default() };
    for task in client.list(of("a"), None, 10).await.unwrap().tasks {
        client.wait(task.id).await.unwrap();
    }
    assert_eq!(client.list(failed.clone(), None, 10).await.unwrap().tasks.len(), 2);
    assert_eq!(client.drop_all(failed.clone()).await.unwrap(), 2);
    assert_eq!(client.list(failed, None, 10).await.unwrap().tasks, []);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_is_bounded_in_time_says_whether_the_task_is_in() {
    /// Passes while the store is locked, however slow the machine.
    const SHORT: Duration = Duration::from_millis(50);
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let client = Client::open(&path).await.unwrap();
    let in_time = client.submit("mail", &0).within(MAX_WAIT).await.unwrap();
    assert_eq!(client.get(in_time).await.unwrap().payload, "0");

    let other_tool = rusqlite::Connection::open(&path).unwrap();
    other_tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let asked = client.new_id();
    let about = Submission { id: Some(asked), ..Submission::default() };
    let unknown = loop {
        match client.submit_with("mail", &1, about.clone()).within(SHORT).await {
            // On a slow machine its time was over before its turn came.
            Err(SubmitError::TimedOut) => {}
            answer => break answer,
        }
    };
    assert!(matches!(unknown, Err(SubmitError::Unknown(id)) if id == asked), "{unknown:?}");
    let not_stored = client.submit("mail", &2).within(SHORT).await;
    assert!(matches!(not_stored, Err(SubmitError::TimedOut)), "{not_stored:?}");
    other_tool.execute_batch("ROLLBACK").unwrap();

    assert_eq!(client.submit_with("mail", &1, about).within(MAX_WAIT).await.unwrap(), asked);
    let tasks = client.list(Filter::default(), None, 10).await.unwrap().tasks;
    let payloads: Vec<&str> = tasks.iter().map(|task| task.payload.as_str()).collect();
    assert_eq!(payloads, ["1", "0"], "the first one once, and the second one not at all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_does_not_find_it_says() {
    let folder = scratch();
    let client = Client::open(folder.path().join("jobs.db")).await.unwrap();
    let unknown = client.new_id();
    assert!(matches!(client.wait(unknown).await, Err(WaitError::NotFound(id)) if id == unknown));
    assert!(matches!(client.cancel(unknown).await, Err(WaitError::NotFound(_))));
    let error = Client::open("redis://cache").await.err().expect("no such store").to_string();
    assert!(error.contains("unknown store"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cancels_what_another_process_runs() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let began = Signal::new("began");
    let emits = began.clone();
    let handler = move |(): (), context: Context| {
        emits.emit();
        async move {
            context.cancelled().await;
            Err::<(), _>(TaskError::transient("told to stop"))
        }
    };
    let pool = ostler::open(&path).unwrap().handle("wait", handler).start().await.unwrap();
    let client = Client::open(&path).await.unwrap();
    let id = client.submit("wait", &()).await.unwrap();
    began.wait().await;
    assert_eq!(client.cancel(id).await.unwrap(), StateName::Running);
    assert!(matches!(client.wait_as::<()>(id).await, Err(ostler::ResultError::Cancelled(_))));
    pool.drain(MAX_WAIT).await;
}
