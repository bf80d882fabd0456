//! Long-lived workers: what they receive, what they send, and how they end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ostler_core::{ErrorClass, EventBody, Level, LogStream};
use ostler_exec::{
    AttemptResult, Control, Executor, Served, StepError, StepLookup, StepStore, Steps, Work, WorkerFate,
    event_channel,
};
use ostler_process::{ProcessPolicy, Recycle};
use serde_json::{Value, json};

use crate::bench::{SOON, children_of, failure, runs, until};
use crate::desk::{Desk, GRACE, heard, lines, output, policy, task};

fn value(ended: AttemptResult) -> Value {
    serde_json::from_str(&output(ended)).expect("an output is JSON")
}

#[tokio::test]
async fn a_task_comes_as_the_protocol_says() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let work = Work { attempt: 2, token: 7, folder: Some("/tmp".into()), ..task("frame", "{\"a\":\n1}") };
    let frame = value(desk.run(worker, work.clone()).await.0);
    assert_eq!(
        frame,
        json!({
            "type": "task", "id": work.task.to_string(), "token": 7, "attempt": 2, "kind": "k",
            "payload": {"do": "frame", "how": {"a": 1}}, "timeout_ms": 60_000, "folder": "/tmp",
            "previous_session": null, "steps": {},
        })
    );
}

#[tokio::test]
async fn one_process_runs_many_tasks_one_after_the_other() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let pid = value(desk.run(worker, task("pid", "null")).await.0);
    for _ in 0..50 {
        assert_eq!(value(desk.run(worker, task("pid", "null")).await.0), pid);
    }
    let vitals = desk.process.vitals(worker);
    assert_eq!(vitals.pid.map(Value::from), Some(pid.clone()));
    assert!(vitals.memory_bytes.is_some_and(|bytes| bytes > 1 << 20), "{vitals:?}");
    desk.process.close(worker).await;
    assert!(!runs(u32::try_from(pid.as_u64().expect("a pid")).expect("a pid")));
    assert_eq!(desk.process.vitals(worker).pid, None);
}

#[tokio::test]
async fn a_worker_that_is_starting_has_a_pid() {
    let desk = Desk::of(policy("silent")).await;
    let worker = desk.name();
    let opening = tokio::spawn({
        let process = Arc::clone(&desk.process);
        async move { process.open(worker).await }
    });
    until("it was started", || desk.process.vitals(worker).pid.is_some()).await;
    assert!(desk.process.vitals(worker).pid.is_some_and(runs));
    opening.abort();
    let _ = opening.await;
    desk.process.abandon(worker);
    assert_eq!(desk.process.vitals(worker).pid, None);
}

#[tokio::test]
async fn a_worker_has_its_socket_and_nothing_else_of_the_node() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    // Three pipes, the socket, and the folder that is listed.
    assert_eq!(value(desk.run(worker, task("descriptors", "null")).await.0), json!([0, 1, 2, 3, 4]));
    let env = value(desk.run(worker, task("env", "null")).await.0);
    assert_eq!(env["OSTLER_FD"], "3");
    assert!(env.get("OSTLER_TEST_ROLE").is_none(), "{env}");
}

/// The well-known test vector of SHA-256.
const SUM_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[tokio::test]
async fn what_it_says_and_writes_is_kept_with_its_task() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("report.pdf"), "abc").expect("a file");
    let in_folder = Work { folder: folder.path().to_str().map(Into::into), ..task("tell", "null") };
    let (ended, notes) = desk.run(worker, in_folder).await;
    assert_eq!(ended, AttemptResult::success(None));
    let log = |level, message: &str| EventBody::Log { level, stream: LogStream::Log, text: message.into() };
    assert_eq!(
        heard(&notes),
        [
            EventBody::Progress { done: 40, total: Some(100), note: Some("so far".into()) },
            EventBody::warning("the step \"comment\" failed: no comment"),
            EventBody::File { path: "report.pdf".into(), size: 3, sha256: SUM_OF_ABC.into() },
            EventBody::warning("the file \"../secret\" is not in the task's folder"),
            log(Level::Warn, "mind this"),
        ]
    );
    for _ in 0..10 {
        let (_, notes) = desk.run(worker, task("print", "null")).await;
        let mut lines = lines(&notes);
        lines.sort();
        assert_eq!(lines, ["no end of line", "to stderr", "to stdout"], "all of it, before the answer");
    }
}

#[tokio::test]
async fn what_one_task_wrote_stands_in_no_log_and_no_failure_of_another() {
    let desk = Desk::of(policy("noise")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    let later = json!({"text": "hunter2 later", "mark": mark}).to_string();
    for last in ["leave", "exit", "hang-politely", "garbage"] {
        let worker = desk.open().await;
        let (ended, notes) = desk.run(worker, task("say", "\"hunter2\"")).await;
        assert_eq!(ended, AttemptResult::success(None));
        assert_eq!(lines(&notes).len(), 2, "it is in the log of the task that wrote it");
        assert_eq!(desk.run(worker, task("say-later", &later)).await.0, AttemptResult::success(None));
        until("it has written", || mark.exists()).await;
        let work = Work { timeout: Duration::from_millis(500), ..task(last, "9") };
        let (ended, notes) = desk.run(worker, work).await;
        assert_eq!(ended.slot, WorkerFate::Dead, "{last}");
        let failure = failure(ended);
        let shown = format!("{failure:?} {:?}", lines(&notes));
        assert!(!shown.contains("hunter2") && !shown.contains("noise"), "{last}: {shown}");
        let expected = (last == "exit").then(|| "going down".to_owned());
        assert_eq!(failure.details, expected, "{last}");
        std::fs::remove_file(&mark).expect("it is there");
    }
}

#[tokio::test]
async fn a_worker_that_dies_between_tasks_says_its_own_last_words_and_not_those_of_a_task() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    assert_eq!(desk.run(worker, task("say", "\"hunter2\"")).await.0, AttemptResult::success(None));
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let how = json!({"text": "that was it", "go": go}).to_string();
    assert_eq!(desk.run(worker, task("last-words", &how)).await.0, AttemptResult::success(None));
    std::fs::write(&go, "").expect("a file");
    let failure = tokio::time::timeout(SOON, desk.process.ended(worker)).await.expect("it is known");
    assert_eq!(failure.details.as_deref(), Some("that was it"), "{failure:?}");
}

/// Keeps steps in memory, and may refuse.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) done: HashMap<String, String>,
    pub(crate) saved: Mutex<Vec<(String, String)>>,
    pub(crate) refuses: Option<StepError>,
    pub(crate) session: Option<String>,
}

#[async_trait]
impl StepStore for Book {
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError> {
        Ok(self.done.get(name).map_or(StepLookup::New, |value| StepLookup::Done(value.clone())))
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        Ok(self.done.clone().into_iter().collect())
    }

    async fn previous_session(&self) -> Result<Option<String>, StepError> {
        Ok(self.session.clone())
    }

    async fn save(&self, name: &str, value: &str) -> Result<(), StepError> {
        if let Some(error) = &self.refuses {
            return Err(error.clone());
        }
        self.saved.lock().expect("no test panicked").push((name.into(), value.into()));
        Ok(())
    }
}

async fn with_steps(desk: &Desk, book: &Arc<Book>, work: Work) -> AttemptResult {
    let (sender, _heard) = event_channel();
    let control =
        Control { steps: Steps::kept(Arc::clone(book) as Arc<dyn StepStore>), ..Control::new(sender) };
    desk.run_with(desk.open().await, work, control).await
}

#[tokio::test]
async fn steps_are_kept_before_they_are_answered_and_come_back_with_the_next_attempt() {
    let desk = Desk::well().await;
    let (done, session) = ([("old".into(), "[1]".into())].into(), Some("s-1".into()));
    let book = Arc::new(Book { done, session, ..Book::default() });
    let frame = value(with_steps(&desk, &book, task("frame", "null")).await);
    assert_eq!((&frame["steps"], &frame["previous_session"]), (&json!({"old": [1]}), &json!("s-1")));
    let work = task("steps", "[[\"a\",{\"n\":1}],[\"b\",null],[\"old\",2]]");
    assert_eq!(value(with_steps(&desk, &book, work).await), json!(["saved", "saved", "saved"]));
    let saved = book.saved.lock().expect("no test panicked").clone();
    assert_eq!(
        saved,
        [("a".into(), "{\"n\":1}".into()), ("b".into(), "null".into())],
        "what was done before stays"
    );
}

#[tokio::test]
async fn a_step_that_is_not_kept_fails_the_task_or_says_that_the_lease_is_lost() {
    let desk = Desk::well().await;
    let of = |refuses| Arc::new(Book { refuses: Some(refuses), ..Book::default() });
    let steps = || task("steps", "[[\"a\",1]]");
    for (refuses, class) in [
        (StepError::Refused("too many".into()), ErrorClass::Permanent),
        (StepError::Away("the store is away".into()), ErrorClass::Transient),
    ] {
        let ended = with_steps(&desk, &of(refuses), steps()).await;
        assert_eq!(ended.slot, WorkerFate::Reusable, "it has heard of it, and is ready for the next");
        let failure = failure(ended);
        assert_eq!((failure.class, failure.step.as_deref()), (class, Some("a")), "{failure:?}");
    }
    let ended = with_steps(&desk, &of(StepError::Lost), steps()).await;
    assert_eq!(value(ended), json!(["lost"]), "whether that counts is for the store to say");
}

#[tokio::test]
async fn the_same_step_twice_in_one_attempt_is_a_permanent_failure() {
    let desk = Desk::well().await;
    let ended = with_steps(&desk, &Arc::default(), task("step-twice", "null")).await;
    assert_eq!(ended.slot, WorkerFate::Reusable);
    let failure = failure(ended);
    assert_eq!((failure.class, failure.step.as_deref()), (ErrorClass::Permanent, Some("one")));
    assert!(failure.message.contains("twice"), "{}", failure.message);
}

#[tokio::test]
async fn a_result_behind_a_step_counts_though_the_worker_died() {
    let desk = Desk::well().await;
    for _ in 0..10 {
        let book = Arc::new(Book::default());
        let ended = with_steps(&desk, &book, task("step-and-die", "null")).await;
        assert_eq!(output(ended), "\"after the step\"");
    }
}

#[tokio::test]
async fn a_worker_gets_only_the_kinds_that_it_has_named() {
    let desk = Desk::of(policy("picky")).await;
    assert_eq!(desk.process.served(), Served::Any, "it is not known yet");
    let worker = desk.open().await;
    assert_eq!(desk.process.served(), Served::Only(vec!["k".into()]));
    desk.still_works(worker).await;
    let other = desk.run(worker, Work { kind: "other".into(), ..task("echo", "1") }).await.0;
    assert_eq!(other, AttemptResult::handed_back(), "a worker that serves it may run it");
    desk.process.close(worker).await;
    assert_eq!(desk.process.served(), Served::Only(vec!["k".into()]), "it is remembered");
}

#[tokio::test]
async fn a_worker_is_spent_after_its_tasks_and_its_result_counts() {
    let recycle = Recycle { after_tasks: Some(3), above_memory: None };
    let desk = Desk::of(ProcessPolicy { recycle, ..policy("well") }).await;
    let worker = desk.open().await;
    for number in 1..=3 {
        let ended = desk.run(worker, task("echo", &number.to_string())).await.0;
        let expected = if number < 3 { WorkerFate::Reusable } else { WorkerFate::Spent };
        assert_eq!(ended.slot, expected);
        assert_eq!(output(ended), number.to_string());
    }
}

#[tokio::test]
async fn a_worker_is_spent_above_its_memory() {
    let recycle = Recycle { after_tasks: None, above_memory: Some(256 << 20) };
    let desk = Desk::of(ProcessPolicy { recycle, ..policy("well") }).await;
    let worker = desk.open().await;
    assert_eq!(desk.run(worker, task("echo", "1")).await.0.slot, WorkerFate::Reusable);
    let ended = desk.run(worker, task("grow", &(300 << 20).to_string())).await.0;
    // The memory is measured now and then: the next task sees it, if this one was too early.
    let mut slot = ended.slot;
    let began = Instant::now();
    while slot == WorkerFate::Reusable {
        assert!(began.elapsed() < SOON);
        slot = desk.run(worker, task("echo", "1")).await.0.slot;
    }
    assert_eq!(slot, WorkerFate::Spent);
}

#[tokio::test]
async fn a_worker_goes_when_it_is_told_and_is_ended_when_it_does_not() {
    let desk = Desk::of(ProcessPolicy { grace: SOON, ..policy("well") }).await;
    let worker = desk.open().await;
    let began = Instant::now();
    desk.process.close(worker).await;
    assert!(began.elapsed() < SOON, "no grace is waited for: {:?}", began.elapsed());
    assert_eq!(children_of(desk.supervisor.pid()), 0);

    let grace = Duration::from_millis(200);
    let desk = Desk::of(ProcessPolicy { grace, ..policy("stubborn") }).await;
    let worker = desk.open().await;
    let began = Instant::now();
    desk.process.close(worker).await;
    assert!(began.elapsed() >= grace * 2 && began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(children_of(desk.supervisor.pid()), 0);
}

#[tokio::test]
async fn a_worker_that_is_abandoned_or_whose_opening_is_given_up_is_killed() {
    let desk = Desk::of(policy("stubborn")).await;
    let worker = desk.open().await;
    desk.process.abandon(worker);
    until("it is gone", || children_of(desk.supervisor.pid()) == 0).await;

    let desk = Arc::new(Desk::of(policy("silent")).await);
    let opening = tokio::spawn({
        let desk = Arc::clone(&desk);
        async move { desk.process.open(desk.name()).await }
    });
    until("it comes", || children_of(desk.supervisor.pid()) == 1).await;
    opening.abort();
    until("it is gone", || children_of(desk.supervisor.pid()) == 0).await;
}

#[tokio::test]
async fn a_worker_that_hears_of_a_cancel_is_free_for_the_next_task() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (sender, heard) = event_channel();
    let control = Control::new(sender);
    let cancel = control.cancel.clone();
    let running = desk.run_with(worker, Work { grace: GRACE * 10, ..task("stop", "null") }, control);
    let told = async {
        let _ = heard.recv().await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(running, told);
    assert_eq!(ended, AttemptResult::cancelled());
    desk.still_works(worker).await;
}

#[tokio::test]
async fn a_payload_that_is_no_json_or_too_large_never_reaches_a_worker() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    for payload in ["nonsense".to_owned(), format!("\"{}\"", "x".repeat(ostler_process::MAX_FRAME_BYTES))] {
        let ended = desk.run(worker, Work { payload, ..task("echo", "1") }).await.0;
        assert_eq!(ended.slot, WorkerFate::Reusable);
        assert_eq!(failure(ended).class, ErrorClass::Permanent);
    }
    desk.still_works(worker).await;
}

#[tokio::test]
async fn a_large_payload_and_output_go_through() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let text = format!("\"{}\"", "x".repeat(8 << 20));
    assert_eq!(output(desk.run(worker, task("echo", &text)).await.0).len(), text.len());
}

/// Not a test: measures how long a task that does nothing takes, by the executor alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures; run it by itself: cargo test --release -p ostler-process -- --ignored round_trip --nocapture"]
async fn round_trip() {
    const ROUNDS: u32 = 20_000;
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let process = Arc::clone(&desk.process);
    let measured = tokio::spawn(async move {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let (sender, _heard) = event_channel();
            let work = Work { worker, ..task("echo", "null") };
            let began = Instant::now();
            assert_eq!(process.run(work, Control::new(sender)).await.slot, WorkerFate::Reusable);
            times.push(began.elapsed());
        }
        times
    });
    let mut times = measured.await.expect("no panic");
    let total: Duration = times.iter().sum();
    times.sort();
    println!(
        "round trip: mean {:?}, p50 {:?}, p99 {:?}",
        total / ROUNDS,
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}
