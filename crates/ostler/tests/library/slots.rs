//! Free workers: submissions that need one, and waits for what the pool runs.

use std::pin::pin;
use std::time::Duration;

use ostler::{Context, Pool, StateName, Submission, SubmitError};
use ostler_testkit::{MAX_WAIT, Signal, scratch};

use crate::pool::is_over;

/// Callers that compete for a worker.
const CALLERS: usize = 50;
const WORKERS: u64 = 4;

/// A pool whose handler signals its start and waits for `go`.
async fn held(path: &std::path::Path, began: &Signal, go: &Signal, workers: usize) -> Pool {
    let (began, go) = (began.clone(), go.clone());
    let handler = move |(): (), _: Context| {
        let (began, go) = (began.clone(), go.clone());
        async move {
            began.emit();
            go.wait().await;
            Ok(())
        }
    };
    ostler::open(path).unwrap().handle("wait", handler).workers(workers).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_callers_for_the_last_worker_one_gets_it_and_the_other_stores_nothing() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let pool = held(&folder.path().join("jobs.db"), &began, &go, 1).await;
    let (one, other) = tokio::join!(pool.submit_if_free("wait", &()), pool.submit_if_free("wait", &()));
    let taken: Vec<_> = [one.unwrap(), other.unwrap()].into_iter().flatten().collect();
    assert_eq!(taken.len(), 1);
    began.wait().await;
    assert_eq!(pool.submit_if_free("wait", &()).await.unwrap(), None, "the only worker is busy");
    assert_eq!(pool.stats().await.unwrap().totals.submitted, 1);
    go.emit();
    pool.wait(taken[0]).await.unwrap();
    pool.wait_for_slot().await.unwrap();
    let again = pool.submit_if_free("wait", &()).await.unwrap().expect("the worker is free again");
    pool.wait(again).await.unwrap();
    pool.drain(MAX_WAIT).await;
    assert!(matches!(pool.submit_if_free("wait", &()).await, Err(SubmitError::Draining)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_at_once_get_as_many_workers_as_there_are() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let pool = held(&folder.path().join("jobs.db"), &began, &go, 4).await;
    let callers = (0..CALLERS).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.submit_if_free("wait", &()).await.unwrap() })
    });
    let mut taken = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        taken.extend(caller.await.unwrap());
    }
    assert_eq!(taken.len() as u64, WORKERS);
    assert_eq!(pool.stats().await.unwrap().totals.submitted, WORKERS);
    began.wait_for(WORKERS).await;
    go.emit();
    pool.wait_for_completion().await;
    for id in taken {
        assert_eq!(pool.get(id).await.unwrap().state.name(), StateName::Completed);
    }
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_completion_is_for_what_this_pool_runs_and_not_for_what_waits() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let pool = held(&path, &began, &go, 1).await;
    let later = Some(pool.now().after(Duration::from_secs(86_400)));
    let tomorrow =
        pool.submit_with("wait", &(), Submission { run_at: later, ..Submission::default() }).await.unwrap();
    pool.wait_for_completion().await;
    let running = pool.submit_if_free("wait", &()).await.unwrap().expect("a worker is free");
    let mut waiting = pin!(pool.wait_for_completion());
    assert!(!is_over(waiting.as_mut()).await, "a task is running");
    began.wait().await;
    go.emit();
    tokio::time::timeout(MAX_WAIT, waiting).await.expect("nothing runs any more");
    assert_eq!(pool.get(running).await.unwrap().state.name(), StateName::Completed);
    assert_eq!(pool.get(tomorrow).await.unwrap().state.name(), StateName::Queued);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserved_worker_is_free_again_when_its_task_is_cancelled_before_it_starts() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let pool = held(&folder.path().join("jobs.db"), &began, &go, 1).await;
    pool.pause("no task starts").await.unwrap();
    let id = pool.submit_if_free("wait", &()).await.unwrap().expect("a worker is free");
    assert_eq!(pool.submit_if_free("wait", &()).await.unwrap(), None, "it is reserved");
    assert_eq!(pool.cancel(id).await.unwrap(), StateName::Queued);
    tokio::time::timeout(MAX_WAIT, pool.wait_for_slot()).await.expect("it is free again").unwrap();
    pool.drain(MAX_WAIT).await;
}
