//! Breakers around calls of handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler::{BreakerPolicy, BreakerState, Context, ErrorClass, Overrides, Pool, TaskError, Trip};
use ostler_testkit::{MAX_WAIT, scratch};

/// Longer than any test.
const LONG: BreakerPolicy = BreakerPolicy { trip: Trip::Consecutive(2), reset: Duration::from_secs(3_600) };
/// Over before the next call of a test.
const SHORT: BreakerPolicy = BreakerPolicy { trip: Trip::Consecutive(2), reset: Duration::from_millis(1) };

/// A service that is called with what it shall answer, and counts its calls.
async fn pool(path: &std::path::Path, calls: &Arc<AtomicUsize>, policy: BreakerPolicy) -> Pool {
    let calls = Arc::clone(calls);
    let handler = move |answer: String, ctx: Context| {
        let calls = Arc::clone(&calls);
        async move {
            let service = || async {
                calls.fetch_add(1, Ordering::Relaxed);
                match answer.as_str() {
                    "down" => Err(TaskError::transient("no answer")),
                    "absent" => Err(TaskError::permanent("there is no such page")),
                    _ => Ok(answer),
                }
            };
            ctx.breaker("service").policy(policy).call(service).await
        }
    };
    let once = Overrides { attempts: Some(1), ..Overrides::NONE };
    ostler::open(path).unwrap().handle("call", handler).defaults(once).start().await.unwrap()
}

async fn call(pool: &Pool, answer: &str) -> Result<String, String> {
    let id = pool.submit("call", &answer).await.unwrap();
    let task = pool.wait(id).await.unwrap();
    task.last_failure.map_or_else(|| Ok(task.output.unwrap_or_default()), |failure| Err(failure.message))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_keeps_failing_is_not_called_by_any_pool_of_the_store() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let calls = Arc::new(AtomicUsize::new(0));
    let first = pool(&path, &calls, LONG).await;
    for _ in 0..2 {
        assert_eq!(call(&first, "down").await, Err("no answer".to_owned()));
    }
    let open = call(&first, "up").await.unwrap_err();
    assert!(open.contains("\"service\" is open"), "{open}");
    assert_eq!(calls.load(Ordering::Relaxed), 2, "the service was left alone");
    let shown = first.call_breakers().await.unwrap();
    let [record] = shown.as_slice() else { panic!("one breaker, not {shown:?}") };
    assert!(record.name == "service" && matches!(record.state, BreakerState::Open { .. }), "{record:?}");
    first.drain(MAX_WAIT).await;

    let second = pool(&path, &calls, LONG).await;
    assert!(call(&second, "up").await.is_err(), "it is durable");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let task = second.list(ostler::Filter::default(), None, 1).await.unwrap().tasks.remove(0);
    let failure = task.last_failure.expect("the newest one failed");
    assert_eq!(failure.class, ErrorClass::Transient, "a retry may work");
    assert!(failure.retry_after.is_some_and(|wait| wait > Duration::from_secs(60)), "when it may be closed");
    second.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_reset_time_a_call_that_works_closes_the_breaker() {
    let folder = scratch();
    let calls = Arc::new(AtomicUsize::new(0));
    let pool = pool(&folder.path().join("jobs.db"), &calls, SHORT).await;
    for _ in 0..2 {
        assert!(call(&pool, "down").await.is_err());
    }
    // Milliseconds may pass in no time: the first calls may come too soon.
    let closed = async {
        while call(&pool, "up").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, closed).await.expect("a probe is let through");
    assert_eq!(pool.call_breakers().await.unwrap(), [], "it is closed and has counted nothing");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_callers_own_does_not_count() {
    let folder = scratch();
    let calls = Arc::new(AtomicUsize::new(0));
    let pool = pool(&folder.path().join("jobs.db"), &calls, LONG).await;
    for _ in 0..5 {
        assert_eq!(call(&pool, "absent").await, Err("there is no such page".to_owned()));
    }
    assert_eq!(call(&pool, "up").await, Ok("\"up\"".to_owned()));
    assert_eq!(calls.load(Ordering::Relaxed), 6);
    pool.drain(MAX_WAIT).await;
}
