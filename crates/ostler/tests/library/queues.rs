//! Several queues in one pool program, and handlers of both sorts in one queue.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ostler::{Context, Filter, Overrides, StateName, TaskError, ThreadPolicy};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::{Store as _, SystemClock};
use ostler_testkit::{MAX_WAIT, Signal, scratch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_program_serves_several_queues_each_with_its_own_workers_and_settings() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let (emits, goes) = (began.clone(), go.clone());
    let slow = move |(): (), _: Context| {
        let (began, go) = (emits.clone(), goes.clone());
        async move {
            began.emit();
            go.wait().await;
            Ok("slow")
        }
    };
    let fails = |(): (), _: Context| async { Err::<(), _>(TaskError::transient("no")) };
    let pool = ostler::open(&path)
        .unwrap()
        .name("worker_1")
        .queue("slow")
        .handle("work", slow)
        .workers(1)
        .and_queue("quick")
        .handle("work", |(): (), _: Context| async { Ok("quick") })
        .handle("fail", fails)
        .defaults(Overrides { attempts: Some(1), ..Overrides::NONE })
        .workers(2)
        .start()
        .await
        .unwrap();
    let held = pool.submit("work", &()).await.unwrap();
    began.wait().await;
    let quick = pool.on("quick");
    let id = quick.submit("work", &()).await.unwrap();
    assert_eq!(quick.wait_as::<String>(id).await.unwrap(), "quick", "a busy queue does not delay another");
    let failed = quick.wait(quick.submit("fail", &()).await.unwrap()).await.unwrap();
    assert_eq!((failed.state.name(), failed.runs), (StateName::Failed, 1), "the setting is of that queue");
    // The worker of a failed attempt is free as soon as it knows that the failure is stored.
    let one_left = async {
        while pool.running_here().await != 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, one_left).await.expect("only the slow one runs");
    assert_eq!(pool.submit_if_free("work", &()).await.unwrap(), None, "the worker of this queue is busy");
    let free = quick.submit_if_free("work", &()).await.unwrap().expect("those of the other are not");
    quick.wait(free).await.unwrap();

    let store = Sqlite::open(&path, Arc::new(SystemClock), Options::default()).unwrap();
    let nodes = store.survey().await.unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["worker_1"]);
    go.emit();
    assert_eq!(pool.wait_as::<String>(held).await.unwrap(), "slow");
    pool.drain(MAX_WAIT).await;
    assert!(quick.submit("work", &()).await.is_err(), "the whole pool drains");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn async_handlers_and_those_that_are_not_send_are_in_one_queue_together() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .handle("async", |number: u32, _: Context| async move {
            assert!(!std::thread::current().name().unwrap_or_default().starts_with("ostler-thread"));
            Ok(number + 1)
        })
        .handle_local("local", |number: u32, _: Context| async move {
            let number = Rc::new(number);
            tokio::task::yield_now().await;
            assert!(std::thread::current().name().unwrap_or_default().starts_with("ostler-thread"));
            Ok(*number + 2)
        })
        .threads(ThreadPolicy::for_cores(2))
        .start()
        .await
        .unwrap();
    let mut expected = Vec::new();
    for number in 0..20 {
        expected.push((pool.submit("async", &number).await.unwrap(), number + 1));
        expected.push((pool.submit("local", &number).await.unwrap(), number + 2));
    }
    for (id, output) in expected {
        let task = pool.wait(id).await.unwrap();
        assert_eq!((task.output, task.token), (Some(output.to_string()), 1), "run once, and not handed back");
    }
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_queue_twice_is_refused() {
    let folder = scratch();
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().and_queue("default");
    let refused = builder.start().await.err().expect("it is refused").to_string();
    assert!(refused.contains("one pool per queue"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_keeps_as_many_finished_tasks_as_it_is_told() {
    const KEPT: usize = 3;
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .handle("noop", |_: usize, _: Context| async { Ok(()) })
        .keep_for(Duration::from_secs(86_400), Duration::from_secs(86_400))
        .keep_most(KEPT as u64)
        .start()
        .await
        .unwrap();
    pool.submit_many("noop", &(0..20).collect::<Vec<usize>>()).await.unwrap();
    pool.wait_idle().await.unwrap();
    assert_eq!(pool.prune().await.unwrap(), 20 - KEPT);
    assert_eq!(pool.list(Filter::default(), None, 100).await.unwrap().tasks.len(), KEPT);
    assert_eq!(pool.stats().await.unwrap().totals.completed, 20, "and counted all the same");
    pool.drain(MAX_WAIT).await;
}
