//! Jobs: tasks that are made together and run by the handlers of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler::{Client, Context, Cost, Filter, JobId, OpenError, Overrides, StateName, TaskError, Usage};
use ostler_testkit::{MAX_WAIT, scratch};
use tokio::sync::{mpsc, oneshot};

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
    let found = Client::open(&path).await.unwrap().find_job("doubles").await.unwrap();
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
    let job = client.find_job(&id.to_string()).await.unwrap();
    assert_eq!(job.cancel().await.unwrap(), ITEMS as usize);
    assert_eq!(job.wait().await.unwrap().counts.cancelled, u64::from(ITEMS));
    assert!(client.find_job("no such job").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pilot_of_a_job_runs_alone_and_callbacks_get_its_items_and_its_end() {
    let folder = scratch();
    let handler = |number: u32, ctx: Context| async move {
        ctx.usage(Usage { cost: Cost::from_usd(0.25), ..Usage::default() }).await;
        Ok(number * 2)
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("double", handler);
    let pool = builder.start().await.unwrap();
    let (items, mut ended) = mpsc::channel(10);
    let (over, done) = oneshot::channel();
    let job = pool
        .job("doubles")
        .items("double", &[1, 2, 3, 4])
        .pilot(1)
        .workers(2)
        .on_item(move |ended| {
            let items = items.clone();
            async move { items.send(ended.task.output).await.unwrap() }
        })
        .on_done(|record| async move { over.send(record.counts.completed).unwrap() })
        .start()
        .await
        .unwrap();
    let pilot = tokio::time::timeout(MAX_WAIT, job.wait_for_pilot()).await.unwrap().unwrap();
    assert_eq!((pilot.items, pilot.rest, pilot.cost_of_rest()), (1, 3, Cost::from_usd(0.75)));
    assert_eq!(ended.recv().await.unwrap().as_deref(), Some("2"));
    assert_eq!(job.record().await.unwrap().counts.queued, 3, "the others wait");
    assert_eq!(job.approve().await.unwrap(), 3);
    let mut outputs = Vec::new();
    for _ in 0..3 {
        outputs.push(ended.recv().await.unwrap().unwrap());
    }
    outputs.sort_unstable();
    assert_eq!(outputs, ["4", "6", "8"]);
    assert_eq!(tokio::time::timeout(MAX_WAIT, done).await.unwrap(), Ok(4));
    assert_eq!(job.totals().await.unwrap().cost, Cost::from_usd(1.0));
    assert!(job.reject().await.is_err(), "nothing waits");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_pilot_leaves_the_other_items_cancelled() {
    let folder = scratch();
    let handler = |number: u32, _: Context| async move { Ok(number) };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("same", handler);
    let pool = builder.start().await.unwrap();
    let job = pool.job("same").items("same", &[1, 2, 3]).pilot(1).start().await.unwrap();
    tokio::time::timeout(MAX_WAIT, job.wait_for_pilot()).await.unwrap().unwrap();
    assert_eq!(job.reject().await.unwrap(), 2);
    let counts = job.wait().await.unwrap().counts;
    assert_eq!((counts.completed, counts.cancelled), (1, 2));
    pool.drain(MAX_WAIT).await;
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
