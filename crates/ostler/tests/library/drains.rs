//! Drains that are taken back: of the durable pool, and of the pool of threads for closures.

use std::rc::Rc;
use std::time::Duration;

use ostler::{
    Context, DrainEnd, Drained, NodeState, Pool, ResumeAnswer, SubmitError, TaskError, ThreadPolicy,
    ThreadPool, ThreadPoolError,
};
use ostler_testkit::{MAX_WAIT, Signal, scratch};

/// Poll interval for conditions that have no signal.
const LOOK: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_taken_back_while_it_waits_and_the_pool_takes_work_again() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let (emits, waits) = (began.clone(), go.clone());
    let handler = move |number: u32, _: Context| {
        emits.emit();
        let waits = waits.clone();
        async move {
            waits.wait().await;
            Ok(number)
        }
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("number", handler);
    let pool = builder.workers(1).start().await.unwrap();
    assert_eq!(pool.cancel_drain(), ResumeAnswer::NotDraining);
    let running = pool.submit("number", &1).await.unwrap();
    began.wait().await;
    let mut both = std::pin::pin!(async { tokio::join!(pool.drain(MAX_WAIT), pool.drain(MAX_WAIT)) });
    // Both callers wait before it is taken back.
    tokio::select! {
        biased;
        drained = &mut both => panic!("a task runs: {drained:?}"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(pool.state(), NodeState::Draining);
    assert!(matches!(pool.submit("number", &2).await, Err(SubmitError::Draining)));
    assert_eq!(pool.cancel_drain(), ResumeAnswer::Resumed);
    assert_eq!(both.await, (Drained::default(), Drained::default()));
    assert_eq!(pool.state(), NodeState::Running);
    let next = pool.submit("number", &2).await.unwrap();
    go.emit();
    assert_eq!(pool.wait_as::<u32>(running).await.unwrap(), 1);
    assert_eq!(pool.wait_as::<u32>(next).await.unwrap(), 2);
    pool.drain(MAX_WAIT).await;
    assert_eq!(pool.state(), NodeState::Ended);
}

async fn until_draining(pool: &Pool) {
    let mut looks = tokio::time::interval(LOOK);
    while pool.state() != NodeState::Draining {
        looks.tick().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_of_the_drain_that_gives_up_leaves_the_pool_draining() {
    let folder = scratch();
    let began = Signal::new("began");
    let emits = began.clone();
    let handler = move |(): (), context: Context| {
        emits.emit();
        async move {
            context.cancelled().await;
            Err::<(), _>(TaskError::transient("cancelled"))
        }
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("wait", handler).workers(1);
    let pool = builder.grace(Duration::from_secs(1)).start().await.unwrap();
    let running = pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    tokio::select! {
        biased;
        drained = pool.drain(MAX_WAIT) => panic!("a task runs: {drained:?}"),
        () = until_draining(&pool) => {}
    }
    assert!(matches!(pool.submit("wait", &()).await, Err(SubmitError::Draining)));
    assert_eq!(pool.cancel_drain(), ResumeAnswer::Resumed);
    pool.submit("wait", &()).await.unwrap();
    pool.cancel(running).await.unwrap();
    began.wait_for(2).await;
    pool.stop_now().await;
    assert_eq!(pool.cancel_drain(), ResumeAnswer::Stopping);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closures_on_threads_are_drained_and_taken_again_after_a_resume() {
    let pool = ThreadPool::start(ThreadPolicy::for_cores(2)).unwrap();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let (emits, waits) = (began.clone(), go.clone());
    let running = tokio::spawn({
        let pool = pool.clone();
        async move {
            pool.run(move || async move {
                let number = Rc::new(41);
                emits.emit();
                waits.wait().await;
                *number + 1
            })
            .await
        }
    });
    began.wait().await;
    let drain = tokio::spawn({
        let pool = pool.clone();
        async move { pool.drain().await }
    });
    let mut looks = tokio::time::interval(LOOK);
    while !pool.is_draining() {
        looks.tick().await;
    }
    assert_eq!(pool.run(|| async {}).await, Err(ThreadPoolError::Draining));
    go.emit();
    assert_eq!(drain.await.unwrap(), DrainEnd::Drained);
    assert_eq!((running.await.unwrap(), pool.occupied()), (Ok(42), 0));
    pool.resume();
    assert_eq!(pool.run(|| async { "again" }).await, Ok("again"));
}
