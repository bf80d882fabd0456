//! Jobs: tasks that are made together and run by the handlers of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler::{Client, Context, Filter, JobId, OpenError, Overrides, StateName, TaskError};
use ostler_testkit::{MAX_WAIT, scratch};

/// More than one batch.
const ITEMS: u32 = 10_001;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_run_by_the_handlers_of_a_pool_and_has_its_own_totals() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let mended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&mended);
    let handler = move |number: u32, _: Context| {
        let seen = Arc::clone(&seen);
        async move {
            if number == 3 && !seen.load(Ordering::Relaxed) {
                return Err(TaskError::permanent("not three"));
            }
            Ok(number * 2)
        }
    };
    let once = Overrides { attempts: Some(1), ..Overrides::NONE };
    let pool = ostler::open(&path).unwrap().handle("double", handler).defaults(once).start().await.unwrap();
    let items: Vec<u32> = (0..10).collect();
    let job = pool.create_job("doubles", "double", &items).await.unwrap();
    assert_eq!(job.record().await.unwrap().counts.queued, 10, "nothing runs before it is asked for");
    pool.run_job(&job).await.unwrap();
    let ended = job.wait().await.unwrap();
    assert_eq!((ended.counts.completed, ended.counts.failed, ended.job.items), (9, 1, 10));
    assert_eq!(pool.stats().await.unwrap().totals.submitted, 0, "it has a queue of its own");
    let failed = Filter { state: Some(StateName::Failed), ..Filter::default() };
    assert_eq!(job.tasks().list(failed, None, 10).await.unwrap().tasks[0].payload, "3");

    mended.store(true, Ordering::Relaxed);
    let found = Client::open(&path).await.unwrap().job("doubles").await.unwrap();
    assert_eq!(found.id(), job.id());
    assert_eq!(found.retry_failed().await.unwrap(), 1);
    // The pool of the first run is removed once it has noticed that the job was over.
    let again = async {
        while matches!(pool.run_job(&found).await, Err(OpenError::Job(_))) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, again).await.expect("the job can be run again");
    assert_eq!(found.wait().await.unwrap().counts.completed, 10);
    assert_eq!(pool.jobs(10).await.unwrap().len(), 1);
    pool.drain(MAX_WAIT).await;
    found.remove().await.unwrap();
    assert!(found.record().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_id_of_the_callers_is_made_once_however_often_it_is_repeated() {
    let folder = scratch();
    let client = Client::open(folder.path().join("jobs.db")).await.unwrap();
    let (id, items): (JobId, Vec<u32>) = (JobId(ostler::ids().unwrap()()), (0..ITEMS).collect());
    // As if the program was killed after a part of it.
    client.create_job_as(id, "many", "double", &items[..7]).await.unwrap();
    for _ in 0..2 {
        let job = client.create_job_as(id, "many", "double", &items).await.unwrap();
        assert_eq!(job.record().await.unwrap().counts.queued, u64::from(ITEMS));
    }
    let job = client.job(&id.to_string()).await.unwrap();
    assert_eq!(job.cancel().await.unwrap(), ITEMS as usize);
    assert_eq!(job.wait().await.unwrap().counts.cancelled, u64::from(ITEMS));
    assert!(client.job("no such job").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_on_threads_are_refused_for_a_job() {
    let folder = scratch();
    let handler = |_: u32, _: Context| async { Ok(()) };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle_local("a", handler);
    let pool = builder.start().await.unwrap();
    let job = pool.create_job("threads", "a", &[1, 2]).await.unwrap();
    assert!(matches!(pool.run_job(&job).await, Err(OpenError::JobOnThreads)));
    pool.drain(MAX_WAIT).await;
}
