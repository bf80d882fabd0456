//! Typed kinds, typed results, shared state, and handlers of anyhow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler::{Client, Context, ErrorClass, Kind, Overrides, ResultError, Submission, TaskError};
use ostler_testkit::{MAX_WAIT, scratch};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Resize {
    width: u32,
}

impl Kind for Resize {
    const NAME: &'static str = "resize";
    type Output = u32;

    fn overrides() -> Overrides {
        Overrides {
            attempts: Some(2),
            base: Some(Duration::from_millis(1)),
            timeout: Some(Duration::from_secs(7)),
            ..Overrides::NONE
        }
    }
}

async fn resize(task: Resize, ctx: Context) -> Result<u32, TaskError> {
    assert!(ctx.time_left() <= Duration::from_secs(7), "the timeout of the kind applies");
    if task.width == 0 { Err(TaskError::transient("nothing to see")) } else { Ok(task.width * 2) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_type_brings_its_kind_its_output_its_retries_and_its_timeout() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let pool = ostler::open(&path).unwrap().handle_kind(resize).start().await.unwrap();
    let id = pool.submit_kind(&Resize { width: 21 }).await.unwrap();
    let output: u32 = pool.wait_kind::<Resize>(id).await.unwrap();
    assert_eq!((output, pool.get(id).await.unwrap().kind.as_str()), (42, "resize"));

    let failed = pool.submit_kind(&Resize { width: 0 }).await.unwrap();
    let error = pool.wait_kind::<Resize>(failed).await.unwrap_err();
    assert!(
        matches!(&error, ResultError::Failed { failure, .. } if failure.message == "nothing to see"),
        "{error}"
    );
    assert_eq!(pool.get(failed).await.unwrap().runs, 2, "as its kind has it");
    let once = Overrides { attempts: Some(1), ..Overrides::NONE };
    let about = Submission { overrides: once, ..Submission::default() };
    let one = pool.submit_kind_with(&Resize { width: 0 }, about).await.unwrap();
    assert_eq!(pool.wait(one).await.unwrap().runs, 1, "a submission has the last word");
    let plain = pool.submit("resize", &Resize { width: 0 }).await.unwrap();
    assert_eq!(pool.wait(plain).await.unwrap().runs, 2, "however the task is submitted");

    let mistaken = pool.wait_as::<Vec<String>>(id).await.unwrap_err();
    assert!(matches!(mistaken, ResultError::Output { id: of, .. } if of == id), "{mistaken}");
    pool.drain(MAX_WAIT).await;
    let client = Client::open(&path).await.unwrap().on("elsewhere");
    let id = client.submit_kind(&Resize { width: 1 }).await.unwrap();
    assert_eq!(client.get(id).await.unwrap().overrides, Resize::overrides(), "a client brings them too");
}

/// What handlers share.
struct Counter(AtomicUsize);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_of_all_queues_and_sorts_share_what_the_pool_has() {
    let folder = scratch();
    let count =
        |(): (), ctx: Context| async move { Ok(ctx.shared::<Counter>()?.0.fetch_add(1, Ordering::Relaxed)) };
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .share(Counter(AtomicUsize::new(0)))
        .handle("count", count)
        .handle_local("count_local", count)
        .handle("ask", |(): (), ctx: Context| async move { ctx.shared::<String>().cloned() })
        .and_queue("more")
        .handle("count", count)
        .start()
        .await
        .unwrap();
    let more = pool.on("more");
    let mut counts = Vec::new();
    for (client, kind) in [(&*pool, "count"), (&*more, "count"), (&*pool, "count_local")] {
        let id = client.submit(kind, &()).await.unwrap();
        counts.push(client.wait_as::<usize>(id).await.unwrap());
    }
    assert_eq!(counts, [0, 1, 2]);
    let id = pool.submit("ask", &()).await.unwrap();
    let failure = pool.wait(id).await.unwrap().last_failure.expect("there is no such value");
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("String"), "{}", failure.message);
    pool.drain(MAX_WAIT).await;
}

#[cfg(feature = "anyhow")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_returns_anyhow_is_classified_by_what_it_met() {
    async fn read(path: String, _: Context) -> anyhow::Result<usize> {
        if path == "limited" {
            Err(TaskError::permanent("not for you"))?;
        }
        Ok(std::fs::read(path)?.len())
    }
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let pool = ostler::open(&path).unwrap().handle_anyhow("read", read).start().await.unwrap();
    std::fs::write(folder.path().join("three"), "abc").unwrap();
    let three = folder.path().join("three").display().to_string();
    let id = pool.submit("read", &three).await.unwrap();
    assert_eq!(pool.wait_as::<usize>(id).await.unwrap(), 3);
    for (missing, message) in [("limited", "not for you"), ("/nonexistent/file", "No such file")] {
        let id = pool.submit("read", &missing).await.unwrap();
        let failure = pool.wait(id).await.unwrap().last_failure.expect("it failed");
        assert_eq!(failure.class, ErrorClass::Permanent);
        assert!(failure.message.contains(message), "{}", failure.message);
    }
    pool.drain(MAX_WAIT).await;
}
