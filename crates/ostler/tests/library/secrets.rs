//! Secrets of a pool: handlers have their values, and the store does not.

use std::path::Path;
use std::time::Duration;

use ostler::{Context, ErrorClass, Overrides, StateName, TaskError};
use ostler_testkit::{MAX_WAIT, scratch};

const VALUE: &str = "sk-9f8e7d6c5b4a/\"x\"";

/// Whether a value is in one of the files of a store.
fn is_stored(folder: &Path, value: &str) -> bool {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let mut contents = files.filter_map(|file| std::fs::read(file.ok()?.path()).ok());
    contents.any(|bytes| bytes.windows(value.len()).any(|part| part == value.as_bytes()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_has_its_secrets_and_nothing_that_is_stored_has_them() {
    let folder = scratch();
    let handler = |how: String, ctx: Context| async move {
        let value = ctx.secret("API_KEY")?.to_owned();
        assert_eq!(value, VALUE);
        ctx.log(format!("using {value}"));
        ctx.prompt(format!("Call it with {value}.")).await;
        ctx.message(ostler::Role::Assistant, &value[..7]).await;
        ctx.message(ostler::Role::Assistant, &value[7..]).await;
        match how.as_str() {
            "panic" => panic!("no luck with {value}"),
            "fail" => Err(TaskError::permanent(format!("{value} was refused")).details(format!("{value:?}"))),
            _ => Ok(value),
        }
    };
    let once = Overrides { attempts: Some(2), base: Some(Duration::from_millis(5)), ..Overrides::NONE };
    let builder = ostler::open(folder.path().join("jobs.db")).expect("the store opens").defaults(once);
    let builder = builder.secret("API_KEY", VALUE).redact_output().handle("work", handler);
    let pool = builder.start().await.expect("the pool starts");
    for (how, state, text) in [
        ("panic", StateName::Failed, "the handler panicked: no luck with [secret API_KEY]"),
        ("fail", StateName::Failed, "[secret API_KEY] was refused"),
        ("return", StateName::Completed, "\"[secret API_KEY]\""),
    ] {
        let id = pool.submit("work", &how).await.expect("it is taken");
        let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").expect("it ends");
        assert_eq!(done.state.name(), state);
        let said = done.last_failure.map(|failure| failure.message).or(done.output);
        assert_eq!(said.as_deref(), Some(text));
        let events = pool.events(id, 0, 100).await.expect("events are read");
        let texts: Vec<&str> = events.iter().filter_map(|event| event.body.text()).collect();
        assert!(texts.contains(&"using [secret API_KEY]"), "{texts:?}");
        assert!(texts.contains(&"Call it with [secret API_KEY]."), "{texts:?}");
    }
    assert!(!is_stored(folder.path(), VALUE) && !is_stored(folder.path(), &VALUE[3..14]));
    pool.drain(MAX_WAIT).await;
    assert!(!is_stored(folder.path(), &VALUE[3..14]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_missing_stops_the_queue_and_an_invalid_one_the_start() {
    let folder = scratch();
    let open = || ostler::open(folder.path().join("jobs.db")).expect("the store opens");
    let handler = |(): (), ctx: Context| async move { ctx.secret("OTHER").map(str::to_owned) };
    let pool = open().handle("work", handler).start().await.expect("the pool starts");
    let id = pool.submit("work", &()).await.expect("it is taken");
    let look = async {
        loop {
            let found = pool.show(id).await.expect("it is there");
            if let Some(failure) = found.task.last_failure {
                return failure;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let failure = tokio::time::timeout(MAX_WAIT, look).await.expect("it fails");
    assert_eq!(failure.class, ErrorClass::QueueStop);
    assert_eq!(failure.message, "the pool has no secret \"OTHER\"");
    pool.drain(MAX_WAIT).await;
    for (name, value) in [("A-B", VALUE), ("A", ""), ("A", "hunter2-\0hunter2")] {
        let error = open().secret(name, value).start().await.err().expect("it is refused").to_string();
        assert!(error.contains("secret") && !error.contains("hunter2"), "{error}");
    }
}
