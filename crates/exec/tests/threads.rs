//! What only threads do: handlers that are not `Send`, a fresh set for each attempt, the bound, the drain.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_core::{Id, Outcome, TaskId, WorkerId};
use ostler_exec::{
    Choice, Control, Ended, Executor, QueueFull, Runtimes, ThreadPolicy, Threads, Work, notes,
};
use tokio::sync::Semaphore;

fn work(payload: &str) -> Work {
    Work {
        task: TaskId(Id::from_bits(1)),
        token: 1,
        worker: WorkerId(Id::from_bits(2)),
        attempt: 1,
        queue: "q".into(),
        kind: "k".into(),
        payload: payload.into(),
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(1),
        folder: None,
    }
}

fn control() -> Control {
    Control::new(notes().0)
}

fn policy(threads: usize, most: usize, choice: Choice) -> ThreadPolicy {
    ThreadPolicy { threads, most, choice, runtimes: Runtimes::CurrentThread }
}

/// Where attempts ran, by the name of the thread.
type Places = Arc<Mutex<HashMap<String, usize>>>;

fn note_place(places: &Places) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    *places.lock().unwrap().entry(name).or_default() += 1;
}

#[tokio::test]
async fn a_handler_may_hold_what_is_not_send() {
    let pool =
        Threads::start(policy(1, 10, Choice::RoundRobin)).unwrap().handle("k", |payload, _| async move {
            let shared = Rc::new(RefCell::new(payload));
            let inner = Rc::clone(&shared);
            tokio::task::spawn_local(async move { inner.borrow_mut().push('!') }).await?;
            let said = shared.borrow().clone();
            Ok(Some(said))
        });
    assert_eq!(pool.run(work("hello"), control()).await, Ended::success(Some("hello!".into())));
}

struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn what_an_attempt_spawned_is_gone_when_it_has_ended() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let pool = Threads::start(policy(1, 10, Choice::RoundRobin)).unwrap().handle("k", move |_, _| {
        let guard = CountsDrop(Arc::clone(&count));
        async move {
            tokio::task::spawn_local(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            Ok(None)
        }
    });
    for attempts in 1..=3 {
        assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::Success);
        assert_eq!(dropped.load(Ordering::SeqCst), attempts, "before the answer, not some time later");
    }
}

#[tokio::test]
async fn round_robin_gives_each_thread_its_share() {
    let places = Places::default();
    let seen = Arc::clone(&places);
    let pool = Threads::start(policy(4, 40, Choice::RoundRobin)).unwrap().handle("k", move |_, _| {
        note_place(&seen);
        async { Ok(None) }
    });
    for _ in 0..40 {
        pool.run(work(""), control()).await;
    }
    let places = places.lock().unwrap();
    assert_eq!(places.len(), 4);
    assert!(places.values().all(|count| *count == 10), "{places:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_loaded_goes_past_a_busy_thread() {
    let gate = Arc::new(Semaphore::new(0));
    let places = Places::default();
    let (seen, wait) = (Arc::clone(&places), Arc::clone(&gate));
    let handler = move |payload: String, context: ostler_exec::Context| {
        let (seen, wait) = (Arc::clone(&seen), Arc::clone(&wait));
        async move {
            if payload == "busy" {
                context.log("here");
                let _ = wait.acquire().await;
            } else {
                note_place(&seen);
            }
            Ok(None)
        }
    };
    let pool = Arc::new(Threads::start(policy(2, 20, Choice::LeastLoaded)).unwrap().handle("k", handler));
    let (said, heard) = notes();
    let busy = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.run(work("busy"), Control::new(said)).await }
    });
    heard.recv().await.expect("it runs");
    for _ in 0..10 {
        assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::Success);
    }
    assert_eq!(places.lock().unwrap().len(), 1, "all went to the other thread");
    gate.add_permits(1);
    assert_eq!(busy.await.unwrap().outcome, Outcome::Success);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_bound_work_is_handed_back_and_a_drain_waits_for_the_rest() {
    let gate = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let handler = move |_: String, context: ostler_exec::Context| {
        let wait = Arc::clone(&wait);
        async move {
            context.log("here");
            let _ = wait.acquire().await;
            Ok(None)
        }
    };
    let pool = Arc::new(Threads::start(policy(1, 1, Choice::RoundRobin)).unwrap().handle("k", handler));
    let (said, heard) = notes();
    let running = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.run(work(""), Control::new(said)).await }
    });
    heard.recv().await.expect("it runs");
    assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::HandedBack, "one is all it may have");
    assert_eq!(pool.permits().take().unwrap_err(), QueueFull);
    let drained = tokio::spawn({
        let permits = Arc::clone(pool.permits());
        async move { permits.drain().await }
    });
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().outcome, Outcome::Success);
    drained.await.unwrap();
    assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::HandedBack, "it drains");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_behind_a_deaf_handler_runs_on_the_thread_that_takes_its_place() {
    let handler = |payload: String, context: ostler_exec::Context| async move {
        if payload == "deaf" {
            context.log("here");
            // Until the test is over: it never listens.
            std::thread::park_timeout(Duration::from_secs(5));
        }
        Ok(None)
    };
    let pool = Arc::new(Threads::start(policy(1, 10, Choice::RoundRobin)).unwrap().handle("k", handler));
    let (said, heard) = notes();
    let deaf = tokio::spawn({
        let pool = Arc::clone(&pool);
        let short = Work { timeout: Duration::from_millis(100), ..work("deaf") };
        async move { pool.run(short, Control::new(said)).await }
    });
    heard.recv().await.expect("it runs");
    assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::Success);
    assert_eq!(deaf.await.unwrap().slot, ostler_exec::Slot::Deaf);
}
