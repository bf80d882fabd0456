//! SDK workers, and those in examples/, run by the executor itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use ostler_core::{ErrorClass, EventBody, Level, LogStream, Outcome};
use ostler_exec::conformance::run;
use ostler_exec::{
    AttemptResult, Control, EventReceiver, Executor, OutputRedaction, Secret, Secrets, Served, StepError,
    StepStore, Steps, Work, event_channel,
};
use ostler_process::ProcessPolicy;

use crate::bench::{SOON, failure, supervisor};
use crate::desk::{Desk, GRACE, heard, lines, output, task};
use crate::worker_suite::told;
use crate::workers::Book;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The folder with the workers of these tests.
pub(crate) const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process");

/// The policy of a worker by an SDK.
pub(crate) fn sdk_policy(program: &str, script: impl Into<String>) -> ProcessPolicy {
    let argv = [program.to_owned(), script.into()];
    let mut policy = ProcessPolicy { grace: GRACE, ready_timeout: SOON, ..ProcessPolicy::new("docs", argv) };
    for (name, value) in
        [("PYTHONPATH", format!("{ROOT}/sdk/python")), ("PYTHONDONTWRITEBYTECODE", "1".into())]
    {
        policy.environment.set.push((name.to_owned(), value));
    }
    policy
}

fn python() -> ProcessPolicy {
    sdk_policy("python3", format!("{TESTS}/sdk_worker.py"))
}

fn javascript() -> ProcessPolicy {
    sdk_policy("node", format!("{TESTS}/sdk_worker.mjs"))
}

/// Runs an attempt on a new worker, with steps stored in the book; returns the result and the notes.
async fn with_steps(desk: &Desk, book: &Arc<Book>, work: Work) -> (AttemptResult, EventReceiver) {
    let (sender, heard) = event_channel();
    let steps = Steps::kept(Arc::clone(book) as Arc<dyn StepStore>);
    let ended = desk.run_with(desk.open().await, work, Control { steps, ..Control::new(sender) }).await;
    (ended, heard)
}

/// All cases that apply to a worker: it can always be killed, and gets only the kinds that it has announced.
async fn passes(policy: ProcessPolicy) {
    let supervisor = supervisor().await;
    let report = run(|| told(&supervisor, policy.clone())).await;
    let left_out = [
        "a_kind_without_a_handler_is_a_permanent_failure",
        "what_blocks_its_thread_is_given_up_and_the_next_attempt_runs",
    ];
    assert_eq!(report.left_out, left_out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_by_the_python_sdk_pass_the_suite_of_executors() {
    passes(python()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_by_the_javascript_sdk_pass_the_suite_of_executors() {
    passes(javascript()).await;
}

#[tokio::test]
async fn what_a_handler_says_and_prints_is_kept_and_its_steps_are_durable() {
    for policy in [python(), javascript()] {
        let desk = Desk::of(policy).await;
        let book = Arc::new(Book { done: [("old".into(), "\"kept\"".into())].into(), ..Book::default() });
        let (ended, notes) = with_steps(&desk, &book, task("steps", "[\"old\",\"new\"]")).await;
        assert_eq!(output(ended), "[\"kept\",\"did new\"]");
        let saved = book.saved.lock().expect("no test panicked").clone();
        assert_eq!(saved, [("new".into(), "\"did new\"".into()), ("extra".into(), "null".into())]);
        let received = heard(&notes);
        let printed =
            EventBody::Log { level: Level::Info, stream: LogStream::Stdout, text: "beginning".into() };
        assert!(received.contains(&printed), "{received:?}");
        assert!(
            received.contains(&EventBody::Progress { done: 1, total: Some(2), note: Some("so far".into()) }),
            "{received:?}"
        );
        let warned = |note: &EventBody| matches!(note, EventBody::Warning { text } if text.contains("the step \"extra\" failed"));
        assert!(received.iter().any(warned), "{received:?}");
    }
}

#[tokio::test]
async fn a_handler_has_the_secrets_of_its_pool_and_the_session_to_resume() {
    for policy in [python(), javascript()] {
        let secret = Secret::new("API_KEY", "sk-Zq7-4711").expect("it is valid");
        let secrets = Secrets::new(vec![secret], OutputRedaction::Off).expect("they are valid");
        let desk = Desk::of(ProcessPolicy { secrets, ..policy }).await;
        let (ended, notes) = desk.run(desk.open().await, task("secret", "\"API_KEY\"")).await;
        let failure = failure(ended);
        assert_eq!(failure.class, ErrorClass::QueueStop);
        assert_eq!(failure.message, "the pool has no secret \"MISSING\"");
        let said = lines(&notes);
        assert!(said.contains(&"its value is [secret API_KEY]".to_owned()), "{said:?}");
        assert!(
            said.contains(&"value sk-Zq7-4711".to_owned()),
            "the guard of a pool redacts frames: {said:?}"
        );
        for (session, expected) in [(Some("s-1".to_owned()), "\"s-1\""), (None, "null")] {
            let book = Arc::new(Book { session, ..Book::default() });
            let ended = with_steps(&desk, &book, task("previous-session", "null")).await.0;
            assert_eq!(ended.output.as_deref().unwrap_or("null"), expected);
        }
    }
}

#[tokio::test]
async fn a_step_that_is_not_kept_does_not_go_on() {
    for policy in [python(), javascript()] {
        let desk = Desk::of(policy).await;
        for (refuses, class) in
            [(StepError::Refused("too many".into()), Some(ErrorClass::Permanent)), (StepError::Lost, None)]
        {
            let book = Arc::new(Book { refuses: Some(refuses), ..Book::default() });
            let (ended, _) = with_steps(&desk, &book, task("steps", "[\"a\",\"b\"]")).await;
            match class {
                Some(class) => {
                    let failure = failure(ended);
                    assert_eq!((failure.class, failure.step.as_deref()), (class, Some("a")));
                }
                None => assert_eq!(ended.outcome, Outcome::Cancelled),
            }
        }
    }
}

#[tokio::test]
async fn an_async_handler_is_cancelled_and_cleans_up_and_its_worker_goes_on() {
    for policy in [python(), javascript()] {
        let desk = Desk::of(policy).await;
        let worker = desk.open().await;
        let kind = || Arc::from("k-async");
        let (sender, notes) = event_channel();
        let control = Control::new(sender);
        let cancel = control.cancel.clone();
        let work = Work { grace: SOON, kind: kind(), ..task("wait", "null") };
        let stopped = async {
            let _ = notes.recv().await;
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(desk.run_with(worker, work, control), stopped);
        assert_eq!(ended, AttemptResult::cancelled());
        assert_eq!(lines(&notes), ["cleaned up"]);
        let next = desk.run(worker, Work { kind: kind(), ..task("echo", "7") }).await.0;
        assert_eq!(output(next), "7", "it is the same worker");
    }
}

#[tokio::test]
async fn the_reason_of_a_javascript_worker_that_dies_is_its_error_and_not_the_version_of_node() {
    let desk = Desk::of(javascript()).await;
    for (what, says) in [("throw-later", "RangeError: later"), ("reject-later", "TypeError: never awaited")] {
        let failure = failure(desk.once(what, "null").await);
        assert_eq!(failure.class, ErrorClass::Crash);
        assert_eq!(failure.message, format!("the worker exited with code 1 before it gave a result: {says}"));
        assert!(
            failure.details.is_some_and(|details| details.contains("Node.js v")),
            "the details have all of it"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("broken.mjs");
    fs::write(&script, "import 'no-such-module';\n").expect("a file");
    let refused = Desk::of(sdk_policy("node", script.to_str().expect("text"))).await.refused().await;
    assert!(refused.message.contains("Cannot find package 'no-such-module'"), "{}", refused.message);
}

#[tokio::test]
async fn the_workers_in_the_examples_run() {
    // As after `npm install ./sdk/js`.
    let folder = tempfile::tempdir().expect("a folder");
    let modules = folder.path().join("node_modules");
    fs::create_dir(&modules).expect("a folder can be made");
    symlink(format!("{ROOT}/sdk/js"), modules.join("ostler")).expect("a link can be made");
    let script = folder.path().join("worker.mjs");
    fs::copy(format!("{ROOT}/examples/worker.mjs"), &script).expect("the example is there");
    for policy in [
        sdk_policy("bash", format!("{ROOT}/examples/worker.sh")),
        sdk_policy("python3", format!("{ROOT}/examples/worker.py")),
        sdk_policy("node", script.to_str().expect("the path is text")),
    ] {
        let shown = policy.argv[0].clone();
        let desk = Desk::of(policy).await;
        let count =
            |payload: &str| Work { kind: "count".into(), payload: payload.into(), ..task("", "null") };
        let worker = desk.open().await;
        assert_eq!(desk.process.served(), Served::Only(vec!["count".into()]), "{shown}");
        let book = Arc::new(Book::default());
        let (ended, notes) = with_steps(&desk, &book, count("{\"text\":\"to be\\nor not\"}")).await;
        assert_eq!(output(ended), "{\"words\":4}", "{shown}");
        let saved = book.saved.lock().expect("no test panicked").clone();
        assert_eq!(saved, [("split".into(), "[\"to\",\"be\",\"or\",\"not\"]".into())], "{shown}");
        assert!(
            heard(&notes).iter().any(|note| matches!(note, EventBody::Progress { done: 4, .. })),
            "{shown}"
        );
        let failure = failure(desk.run(worker, count("{}")).await.0);
        assert_eq!(
            (failure.class, failure.message.as_str()),
            (ErrorClass::Permanent, "the payload has no text")
        );
        desk.process.close(worker).await;
    }
}
