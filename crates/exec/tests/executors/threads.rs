//! Thread executor: handlers that are not `Send`, a fresh `LocalSet` for each attempt, the limit, the drain.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use ostler_core::{Id, Outcome, TaskId, WorkerId};
use ostler_exec::{
    AttemptResult, Choice, Control, Executor, PermitRefused, Runtimes, ThreadPolicy, Threads, Work,
    event_channel,
};
use tokio::sync::Semaphore;

/// How long attempts may take to finish on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
        traceparent: None,
    }
}

fn control() -> Control {
    Control::new(event_channel().0)
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
    assert_eq!(pool.run(work("hello"), control()).await, AttemptResult::success(Some("hello!".into())));
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
    let (said, heard) = event_channel();
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
    let (said, heard) = event_channel();
    let running = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.run(work(""), Control::new(said)).await }
    });
    heard.recv().await.expect("it runs");
    assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::HandedBack, "one is all it may have");
    assert_eq!(pool.permits().take().unwrap_err(), PermitRefused::QueueFull);
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
async fn each_pool_has_permits_and_a_drain_of_its_own() {
    // Two pools that may run one attempt each: both attempts run, because each waits for the other.
    let meeting = Arc::new(tokio::sync::Barrier::new(2));
    let start = || {
        let meeting = Arc::clone(&meeting);
        let handler = move |_: String, _| {
            let meeting = Arc::clone(&meeting);
            async move {
                meeting.wait().await;
                Ok(None)
            }
        };
        Threads::start(policy(1, 1, Choice::RoundRobin)).unwrap().handle("k", handler)
    };
    let (one, other) = (start(), start());
    let both = async { tokio::join!(one.run(work(""), control()), other.run(work(""), control())) };
    let (first, second) = tokio::time::timeout(PATIENCE, both).await.expect("both run at once");
    assert_eq!((first.outcome, second.outcome), (Outcome::Success, Outcome::Success));
    one.permits().drain().await;
    assert!(one.permits().take().is_err(), "one drains");
    assert!(other.permits().take().is_ok(), "the other does not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_behind_a_deaf_handler_runs_on_the_thread_that_takes_its_place() {
    let handler = |payload: String, context: ostler_exec::Context| async move {
        if payload == "deaf" {
            context.log("here");
            // Until the test is over: it ignores the stop signal.
            std::thread::park_timeout(Duration::from_secs(5));
        }
        Ok(None)
    };
    let pool = Arc::new(Threads::start(policy(1, 10, Choice::RoundRobin)).unwrap().handle("k", handler));
    let (said, heard) = event_channel();
    let deaf = tokio::spawn({
        let pool = Arc::clone(&pool);
        let short = Work { timeout: Duration::from_millis(100), ..work("deaf") };
        async move { pool.run(short, Control::new(said)).await }
    });
    heard.recv().await.expect("it runs");
    assert_eq!(pool.run(work(""), control()).await.outcome, Outcome::Success);
    assert_eq!(deaf.await.unwrap().slot, ostler_exec::WorkerFate::Unresponsive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_on_one_thread_never_interleave() {
    for runtimes in [Runtimes::CurrentThread, Runtimes::TwoWorkers] {
        let story = Arc::new(Mutex::new(Vec::new()));
        let all_wait = Arc::new(Semaphore::new(0));
        let (tells, waits) = (Arc::clone(&story), Arc::clone(&all_wait));
        let handler = move |payload: String, _| {
            let (tells, waits) = (Arc::clone(&tells), Arc::clone(&waits));
            async move {
                tells.lock().unwrap().push(format!("{payload} begins"));
                // When the others are in the queue of the thread, it yields again and again: one of them could start.
                let _ = waits.acquire().await;
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                    tokio::time::sleep(Duration::from_micros(50)).await;
                }
                tells.lock().unwrap().push(format!("{payload} ends"));
                Ok(None)
            }
        };
        let policy = ThreadPolicy { runtimes, ..policy(1, 10, Choice::RoundRobin) };
        let pool = Threads::start(policy).unwrap().handle("k", handler);
        let run = |number: usize| {
            let pool = &pool;
            async move { pool.run(work(&number.to_string()), control()).await.outcome }
        };
        // The first poll of each puts it into the queue.
        let (runs, open) = (async { tokio::join!(run(0), run(1), run(2), run(3)) }, async {
            all_wait.add_permits(4);
        });
        let (outcomes, ()) = tokio::join!(runs, open);
        assert_eq!(outcomes, (Outcome::Success, Outcome::Success, Outcome::Success, Outcome::Success));
        let story = story.lock().unwrap();
        assert_eq!(story.len(), 8);
        for pair in story.chunks(2) {
            let who = pair[0].strip_suffix(" begins").expect("one begins when no other runs");
            assert_eq!(pair[1], format!("{who} ends"), "{runtimes:?}: {story:?}");
        }
    }
}

/// Runs this many attempts at once, and fails if they do not finish.
async fn all_end(pool: Threads, attempts: usize) {
    let pool = Arc::new(pool);
    let runs = (0..attempts).map(|_| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.run(work(""), control()).await.outcome })
    });
    for run in runs.collect::<Vec<_>>() {
        let outcome = tokio::time::timeout(PATIENCE, run).await.expect("they wait for each other").unwrap();
        assert_eq!(outcome, Outcome::Success);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_attempts_run_in_parallel_as_there_are_threads() {
    // Each one blocks its thread until all four are there.
    let meeting = Arc::new(Barrier::new(4));
    let pool = Threads::start(policy(4, 40, Choice::RoundRobin)).unwrap().handle("k", move |_, _| {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait();
            Ok(None)
        }
    });
    all_end(pool, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_thread_has_a_runtime_of_its_own_with_two_workers() {
    // The tasks spawned by both threads wait until all four are there. They do not block their workers: a task that was queued behind a
    // blocked one would depend on being stolen, which no runtime promises.
    let meeting = Arc::new(tokio::sync::Barrier::new(4));
    let policy = ThreadPolicy { runtimes: Runtimes::TwoWorkers, ..policy(2, 20, Choice::RoundRobin) };
    let pool = Threads::start(policy).unwrap().handle("k", move |_, _| {
        let meeting = Arc::clone(&meeting);
        async move {
            assert_eq!(tokio::runtime::Handle::current().metrics().num_workers(), 2);
            let spawned = [0, 1].map(|_| {
                let meeting = Arc::clone(&meeting);
                tokio::spawn(async move { meeting.wait().await.is_leader() })
            });
            for one in spawned {
                one.await?;
            }
            Ok(None)
        }
    });
    all_end(pool, 2).await;
}
