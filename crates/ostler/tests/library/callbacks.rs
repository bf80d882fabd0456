//! Callbacks: called after the commit, at least once, without delaying work.

use std::path::Path;
use std::time::Duration;

use ostler::{AttemptEnded, Builder, Context, ErrorClass, Overrides, StateName, TaskError, TaskId};
use ostler_testkit::{MAX_WAIT, Twin, Voice, scratch};
use tokio::sync::mpsc;

const FOLDER: &str = "OSTLER_TEST_FOLDER";

/// Succeeds or fails depending on its payload.
async fn obey(word: String, ctx: Context) -> Result<String, TaskError> {
    ctx.session(format!("obey {}", ctx.attempt())).await?;
    match (word.as_str(), ctx.attempt()) {
        ("flaky", 1) => Err(TaskError::transient("the network was away")),
        ("broken", _) => Err(TaskError::permanent("it has no text")),
        _ => Ok(word),
    }
}

fn builder(folder: &Path) -> Builder {
    let quick = Overrides { base: Some(Duration::from_millis(5)), ..Overrides::NONE };
    ostler::open(folder.join("jobs.db"))
        .expect("the store opens")
        .handle("obey", obey)
        .defaults(quick)
        .workers(2)
}

fn channel() -> (
    impl Fn(AttemptEnded) -> std::future::Ready<()> + Send + Sync + 'static,
    mpsc::UnboundedReceiver<AttemptEnded>,
) {
    let (calls, called) = mpsc::unbounded_channel();
    let callback = move |ended| {
        let _ = calls.send(ended);
        std::future::ready(())
    };
    (callback, called)
}

async fn next(called: &mut mpsc::UnboundedReceiver<AttemptEnded>) -> AttemptEnded {
    tokio::time::timeout(MAX_WAIT, called.recv()).await.expect("it is called").expect("the pool is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_is_told_to_its_own_callback_with_the_task() {
    let folder = scratch();
    let (on_completed, mut completed) = channel();
    let (on_failed, mut failed) = channel();
    let (on_retry, mut retried) = channel();
    let pool = builder(folder.path())
        .on_completed(on_completed)
        .on_failed(on_failed)
        .on_retry(on_retry)
        .start()
        .await
        .unwrap();
    let flaky = pool.submit("obey", &"flaky").await.unwrap();
    let retry = next(&mut retried).await;
    assert_eq!((retry.task.id, retry.attempt), (flaky, 1));
    assert_eq!(retry.failure.map(|failure| failure.message), Some("the network was away".to_owned()));
    assert!(retry.next_try.is_some());
    let done = next(&mut completed).await;
    assert_eq!((done.task.id, done.attempt, done.failure, done.earlier), (flaky, 2, None, 0));
    let record = done.record.expect("it ran");
    assert_eq!(record.number, 2);
    assert!(record.took().is_some(), "its duration is known");
    assert_eq!(record.conversation.session.as_deref(), Some("obey 2"));
    assert_eq!(
        (done.task.state.name(), done.task.output.as_deref()),
        (StateName::Completed, Some("\"flaky\""))
    );
    let broken = pool.submit("obey", &"broken").await.unwrap();
    let dead = next(&mut failed).await;
    assert_eq!((dead.task.id, dead.task.state.name()), (broken, StateName::Failed));
    assert_eq!(dead.failure.map(|failure| failure.class), Some(ErrorClass::Permanent));
    pool.drain(MAX_WAIT).await;
    assert!(completed.try_recv().is_err() && failed.try_recv().is_err() && retried.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_that_start_at_the_same_time_do_not_lose_each_others_callbacks() {
    let folder = scratch();
    for round in 0..20 {
        let queue = format!("queue {round}");
        let pool = || builder(folder.path()).queue(queue.as_str());
        let (on_completed, mut completed) = channel();
        let (on_failed, mut failed) = channel();
        let (one, other) =
            tokio::join!(pool().on_completed(on_completed).start(), pool().on_failed(on_failed).start());
        let (one, other) = (one.unwrap(), other.unwrap());
        let well = one.submit("obey", &"well").await.unwrap();
        let broken = one.submit("obey", &"broken").await.unwrap();
        assert_eq!(next(&mut completed).await.task.id, well, "round {round}");
        assert_eq!(next(&mut failed).await.task.id, broken, "round {round}");
        tokio::join!(one.drain(MAX_WAIT), other.drain(MAX_WAIT));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_hangs_or_panics_holds_up_no_work_and_no_other_callback() {
    let folder = scratch();
    let (calls, mut called) = mpsc::unbounded_channel();
    let callback = move |ended: AttemptEnded| {
        let _ = calls.send(ended.task.output.clone().unwrap_or_default());
        async move {
            match ended.task.output.as_deref() {
                Some("\"hang\"") => std::future::pending().await,
                Some("\"panic\"") => panic!("the callback panics"),
                _ => {}
            }
        }
    };
    let pool = builder(folder.path()).on_completed(callback).start().await.unwrap();
    let words = ["hang", "panic", "well", "fine"];
    for word in words {
        pool.submit("obey", &word).await.unwrap();
    }
    tokio::time::timeout(MAX_WAIT, pool.wait_idle()).await.expect("the work goes on").unwrap();
    let mut heard = Vec::new();
    while heard.len() < words.len() {
        let word = tokio::time::timeout(MAX_WAIT, called.recv()).await.expect("all are called").unwrap();
        heard.push(word);
    }
    heard.sort();
    assert_eq!(heard, ["\"fine\"", "\"hang\"", "\"panic\"", "\"well\""]);
    pool.stop_now().await;
}

#[test]
#[ignore = "the other process of the test below"]
fn killed_before_it_could_tell() {
    let folder = std::env::var_os(FOLDER).expect("the test says where");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let callback = |ended: AttemptEnded| {
            Voice::say(&ended.task.id.to_string());
            std::future::pending()
        };
        let pool = builder(Path::new(&folder)).on_completed(callback).start().await.expect("it starts");
        pool.submit("obey", &"well").await.expect("it is submitted");
        std::future::pending::<()>().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_did_not_tell_is_told_after_the_restart() {
    let folder = scratch();
    let mut twin =
        Twin::start("callbacks::killed_before_it_could_tell", &[(FOLDER, folder.path().as_os_str())]);
    let id: TaskId = twin.hear().parse().expect("it says which task was completed");
    twin.kill();
    let (callback, mut called) = channel();
    let pool = builder(folder.path()).on_completed(callback).start().await.unwrap();
    let told = next(&mut called).await;
    assert_eq!((told.task.id, told.task.runs), (id, 1), "the work itself is not repeated");
    pool.drain(MAX_WAIT).await;
}
