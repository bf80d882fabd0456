//! Durable steps: the result of a step is stored, and a later attempt does not repeat it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler::{Context, ErrorClass, Overrides, Pool, StateName, TaskError};
use ostler_testkit::{MAX_WAIT, scratch};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

async fn pool<P, O, F, R>(folder: &Path, handler: F) -> Pool
where
    P: DeserializeOwned + Send + 'static,
    O: Serialize,
    F: Fn(P, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, TaskError>> + Send + 'static,
{
    let quick = Overrides { base: Some(Duration::from_millis(5)), ..Overrides::NONE };
    let builder = ostler::open(folder.join("jobs.db")).expect("the store opens").defaults(quick);
    builder.handle("work", handler).start().await.expect("the pool starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_was_done_is_not_repeated_by_the_next_attempt() {
    #[derive(Serialize, Deserialize)]
    struct Page {
        text: String,
    }
    let folder = scratch();
    let fetched = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&fetched);
    let handler = move |url: String, ctx: Context| {
        let counts = Arc::clone(&counts);
        async move {
            let page = ctx
                .step("fetched", || async {
                    counts.fetch_add(1, Ordering::SeqCst);
                    Ok(Page { text: format!("the text of {url}") })
                })
                .await?;
            ctx.step("moved", || async {
                if ctx.attempt() < 3 { Err(TaskError::transient("the folder is locked")) } else { Ok(()) }
            })
            .await?;
            Ok(page.text)
        }
    };
    let pool = pool(folder.path(), handler).await;
    let id = pool.submit("work", &"a.html").await.unwrap();
    let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.unwrap().unwrap();
    assert_eq!((done.state.name(), done.runs), (StateName::Completed, 3));
    assert_eq!(done.output.as_deref(), Some("\"the text of a.html\""));
    assert_eq!(fetched.load(Ordering::SeqCst), 1, "it was fetched once");
    let failure = done.last_failure.expect("it failed at first");
    assert_eq!((failure.step.as_deref(), failure.class), (Some("moved"), ErrorClass::Transient));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partial_failure_keeps_its_steps_and_goes_on_at_the_one_that_failed() {
    let folder = scratch();
    let story = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tells = Arc::clone(&story);
    let handler = move |(): (), ctx: Context| {
        let tells = Arc::clone(&tells);
        async move {
            let does = |step: &str| {
                tells.lock().unwrap().push(format!("{step} in attempt {}", ctx.attempt()));
                Ok::<_, TaskError>(())
            };
            ctx.step("fetched", || async { does("fetch") }).await?;
            ctx.step("moved", || async {
                does("move")?;
                match ctx.attempt() {
                    1 => Err(TaskError::partial("moved", "the folder is locked")),
                    _ => Ok(()),
                }
            })
            .await?;
            ctx.step("told", || async { does("tell") }).await
        }
    };
    let pool = pool(folder.path(), handler).await;
    let id = pool.submit("work", &()).await.unwrap();
    let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.unwrap().unwrap();
    assert_eq!((done.state.name(), done.runs, done.failures), (StateName::Completed, 2, 1));
    let failure = done.last_failure.expect("it failed at first");
    assert_eq!((failure.class, failure.step.as_deref()), (ErrorClass::Partial, Some("moved")));
    let expected = ["fetch in attempt 1", "move in attempt 1", "move in attempt 2", "tell in attempt 2"];
    assert_eq!(*story.lock().unwrap(), expected);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_the_task_can_do_without_fails_as_a_warning() {
    let folder = scratch();
    let handler = |(): (), ctx: Context| async move {
        let comment: Option<String> = ctx
            .step_or_warn("comment", || async { Err(TaskError::permanent("comments are closed")) })
            .await?;
        Ok(comment.is_none())
    };
    let pool = pool(folder.path(), handler).await;
    let id = pool.submit("work", &()).await.unwrap();
    let done = pool.wait(id).await.unwrap();
    assert_eq!((done.output.as_deref(), done.failures), (Some("true"), 0));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_a_step_is_a_permanent_failure_that_says_why() {
    let folder = scratch();
    let handler = |what: String, ctx: Context| async move {
        match what.as_str() {
            "twice" => {
                ctx.step("same", || async { Ok(1) }).await?;
                ctx.step("same", || async { Ok(2) }).await
            }
            "large" => ctx.step("large", || async { Ok("x".repeat(2 << 20)) }).await.map(|text| text.len()),
            _ => ctx.step(&"n".repeat(1_000), || async { Ok(3) }).await,
        }
    };
    let pool = pool(folder.path(), handler).await;
    for (what, words) in [("twice", "done twice"), ("large", "step value"), ("name", "step")] {
        let id = pool.submit("work", &what).await.unwrap();
        let failed = pool.wait(id).await.unwrap();
        let failure = failed.last_failure.expect("it failed");
        assert_eq!(failure.class, ErrorClass::Permanent, "{failure:?}");
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_attempt_gets_the_session_that_an_earlier_one_reported() {
    let folder = scratch();
    let handler = |(): (), ctx: Context| async move {
        let previous = ctx.previous_session().await?;
        match ctx.attempt() {
            1 => ctx.session("s-1").await?,
            // One that reports none does not hide the one before.
            2 => {}
            _ => {
                ctx.session("s-3").await?;
                assert_eq!(ctx.previous_session().await?, previous, "its own is not an earlier one");
                return Ok(previous);
            }
        }
        Err(TaskError::transient(format!("{previous:?}")))
    };
    let pool = pool(folder.path(), handler).await;
    let id = pool.submit("work", &()).await.unwrap();
    let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.unwrap().unwrap();
    assert_eq!((done.output.as_deref(), done.runs), (Some("\"s-1\""), 3));
    let attempts = pool.show(id).await.unwrap().attempts;
    let failure =
        |at: usize| attempts[at].end.as_ref().and_then(|end| end.failure.clone()).expect("it failed");
    assert_eq!((failure(0).message.as_str(), failure(1).message.as_str()), ("None", "Some(\"s-1\")"));
    pool.drain(MAX_WAIT).await;
}
