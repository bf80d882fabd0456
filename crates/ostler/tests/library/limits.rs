//! Rate and concurrency limits, and the size of a pool, through the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ostler::{
    BreakerPolicy, Builder, Context, OpenError, Overrides, Pool, Rate, StateName, Submission, TaskError, Trip,
};
use ostler_testkit::{MAX_WAIT, Signal, scratch};
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// A pool that records the highest number of tasks that ran at once.
fn counting(path: &std::path::Path, most: &Arc<AtomicUsize>) -> Builder {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::clone(most));
    ostler::open(path).unwrap().handle("count", move |_: serde_json::Value, _: Context| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_spreads_what_begins_and_a_cost_counts() {
    let folder = scratch();
    let most = Arc::default();
    let builder = counting(&folder.path().join("jobs.db"), &most);
    let pool = builder
        .rate(Rate { amount: 20, per: SECOND, burst: 2 })
        .cost("payload.tokens")
        .start()
        .await
        .unwrap();
    let began = Instant::now();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(pool.submit("count", &json!({"tokens": 4})).await.unwrap());
    }
    let about = Submission { cost: Some(1), ..Submission::default() };
    ids.push(pool.submit_with("count", &json!({"tokens": 1_000_000}), about).await.unwrap());
    for id in ids {
        assert_eq!(pool.wait(id).await.unwrap().state.name(), StateName::Completed);
    }
    // 13 tokens in total: a cost above the burst is admitted when the bucket is full, and leaves a debt.
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_run_at_once_and_so_many_of_a_key() {
    let folder = scratch();
    for (name, key_limit, limit, expected) in [("keys.db", 1, 8, 2), ("all.db", 8, 1, 1)] {
        let most = Arc::default();
        let builder = counting(&folder.path().join(name), &most).limit_key("payload.tenant");
        let pool = builder.key_concurrency(key_limit).concurrency(limit).start().await.unwrap();
        let mut ids = Vec::new();
        for number in 0..40 {
            ids.push(pool.submit("count", &json!({"tenant": number % 2})).await.unwrap());
        }
        for id in ids {
            let task = pool.wait(id).await.unwrap();
            assert!(matches!(task.limit_key.as_deref(), Some("0" | "1")), "{:?}", task.limit_key);
        }
        assert!(most.load(Ordering::SeqCst) <= expected, "{name}: {most:?} at once");
        pool.drain(MAX_WAIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_of_a_key_stops_that_key() {
    let folder = scratch();
    let handler = |payload: serde_json::Value, _: Context| async move {
        if payload["tenant"] == "bad" { Err(TaskError::transient("no route")) } else { Ok(()) }
    };
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .handle("send", handler)
        .workers(1)
        .limit_key("payload.tenant")
        .key_breaker(BreakerPolicy { trip: Trip::Consecutive(1), reset: Duration::from_secs(3_600) })
        .defaults(Overrides { attempts: Some(1), ..Overrides::NONE })
        .start()
        .await
        .unwrap();
    let first = pool.submit("send", &json!({"tenant": "bad"})).await.unwrap();
    assert_eq!(pool.wait(first).await.unwrap().state.name(), StateName::Failed);
    let waits = pool.submit("send", &json!({"tenant": "bad"})).await.unwrap();
    let goes = pool.submit("send", &json!({"tenant": "good"})).await.unwrap();
    assert_eq!(pool.wait(goes).await.unwrap().state.name(), StateName::Completed);
    assert_eq!(pool.get(waits).await.unwrap().state.name(), StateName::Queued);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test]
async fn what_cannot_work_is_told_at_the_start() {
    let folder = scratch();
    let open = |name: &str| ostler::open(folder.path().join(name)).unwrap();
    let none = Rate { amount: 0, per: SECOND, burst: 1 };
    let never = BreakerPolicy { trip: Trip::Consecutive(0), reset: SECOND };
    for (builder, sentence) in [
        (open("a.db").limit_key("tenant"), "it looks like payload.tenant"),
        (open("b.db").cost(""), "it looks like payload.tenant"),
        (open("c.db").rate(none), "rate must be at least 1"),
        (open("d.db").key_rate(none), "rate must be at least 1"),
        (open("e.db").concurrency(0), "concurrency must be at least 1"),
        (open("f.db").breaker(never), "after at least 1 failure"),
        (open("g.db").rate(Rate::even(1, SECOND)).rate(none), "rate must be at least 1"),
    ] {
        let Err(error) = builder.start().await else { panic!("{sentence}: it started") };
        assert!(matches!(error, OpenError::Store(_) | OpenError::Start(_)), "{error:?}");
        assert!(error.to_string().contains(sentence), "{error}");
    }
}

/// Waits until the node, which reports its workers periodically, has reported this many.
async fn workers_become(pool: &Pool, count: u64) {
    let mut looks = tokio::time::interval(SECOND / 200);
    let reported = async {
        while pool.stats().await.unwrap().workers.total != count {
            looks.tick().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, reported).await.expect("the pool gets this size");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_grows_when_as_many_tasks_wait_as_was_said_and_shrinks_after_the_time_that_was_said() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let (emits, waits) = (began.clone(), go.clone());
    let handler = move |(): (), _: Context| {
        emits.emit();
        let waits = waits.clone();
        async move {
            waits.wait().await;
            Ok(())
        }
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("wait", handler);
    let builder = builder.workers_between(1, 4).scale_up_at(5).idle_timeout(SECOND / 20);
    let pool = builder.start().await.unwrap();
    let mut looks = tokio::time::interval(SECOND / 200);
    for _ in 0..4 {
        pool.submit("wait", &()).await.unwrap();
    }
    began.wait().await;
    for _ in 0..20 {
        looks.tick().await;
        assert_eq!((began.count(), pool.running_here().await), (1, 1), "three that wait are too few");
    }
    for _ in 0..2 {
        pool.submit("wait", &()).await.unwrap();
    }
    began.wait_for(4).await;
    workers_become(&pool, 4).await;
    go.emit();
    pool.wait_idle().await.unwrap();
    workers_become(&pool, 1).await;
    pool.drain(MAX_WAIT).await;
    let refused = ostler::open(folder.path().join("jobs.db")).unwrap().scale_up_at(0).start().await;
    assert!(refused.is_err_and(|error| error.to_string().contains("scales up at 0")));
}
