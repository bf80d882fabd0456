//! Thread pool for closures: one at a time on each thread, nothing left behind, the limit, the drain and its end.

use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use ostler_exec::{Choice, DrainEnd, Runtimes, ThreadPolicy, ThreadPool, ThreadPoolError};
use tokio::sync::{Barrier, Notify, Semaphore};

/// How long closures may take to meet on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const BOTH: [Runtimes; 2] = [Runtimes::CurrentThread, Runtimes::TwoWorkers];

fn pool(threads: usize, most: usize) -> ThreadPool {
    start(ThreadPolicy { most, ..policy(threads) })
}

fn policy(threads: usize) -> ThreadPolicy {
    ThreadPolicy { runtimes: Runtimes::CurrentThread, ..ThreadPolicy::for_cores(threads) }
}

fn start(policy: ThreadPolicy) -> ThreadPool {
    ThreadPool::start(policy).unwrap()
}

/// Polls a future once, so that a closure is queued.
async fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_closure_may_make_what_is_not_send_and_its_result_comes_back() {
    for runtimes in BOTH {
        let pool = start(ThreadPolicy { runtimes, ..policy(1) });
        let words = vec!["one".to_owned(), "two".to_owned()];
        let closure = move || async move {
            let shared = Rc::new(RefCell::new(words));
            let inner = Rc::clone(&shared);
            tokio::task::spawn_local(async move { inner.borrow_mut().push("three".to_owned()) })
                .await
                .unwrap();
            shared.borrow().join(" ")
        };
        assert_eq!(pool.run(closure).await, Ok("one two three".to_owned()));
    }
}

thread_local! {
    /// How many closures this thread runs.
    static AT_ONCE: Cell<usize> = const { Cell::new(0) };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_closure_at_a_time_on_each_thread_while_the_threads_run_in_parallel() {
    for runtimes in BOTH {
        let pool = start(ThreadPolicy { runtimes, ..policy(2) });
        // Two closures that run at once let each other go. On one thread there are no two.
        let meeting = Arc::new(Barrier::new(2));
        let runs = (0..8).map(|_| {
            let (pool, meeting) = (pool.clone(), Arc::clone(&meeting));
            tokio::spawn(async move {
                pool.run(move || async move {
                    AT_ONCE.set(AT_ONCE.get() + 1);
                    let mut most = AT_ONCE.get();
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                        most = most.max(AT_ONCE.get());
                    }
                    meeting.wait().await;
                    most = most.max(AT_ONCE.get());
                    AT_ONCE.set(AT_ONCE.get() - 1);
                    (thread(), most)
                })
                .await
            })
        });
        let mut threads = Vec::new();
        for run in runs.collect::<Vec<_>>() {
            let ended = tokio::time::timeout(PATIENCE, run).await.expect("two threads run at once").unwrap();
            let (thread, most) = ended.unwrap();
            assert_eq!(most, 1, "{runtimes:?}: another closure ran on {thread} in between");
            threads.push(thread);
        }
        threads.sort();
        assert_eq!(
            threads.chunks(4).map(|same| same[0].as_str()).collect::<Vec<_>>(),
            ["ostler-thread-0", "ostler-thread-1"]
        );
    }
}

/// Counts what is alive on this thread.
struct Resource;

thread_local! {
    static ALIVE: Cell<usize> = const { Cell::new(0) };
}

impl Resource {
    fn make() -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

#[tokio::test]
async fn what_a_closure_made_on_its_thread_is_dropped_before_the_next_one_starts() {
    for runtimes in BOTH {
        let pool = start(ThreadPolicy { runtimes, ..policy(1) });
        let runs = (0..6).map(|number| {
            pool.run(move || async move {
                let found = ALIVE.get();
                let mine = Resource::make();
                let spawned = Resource::make();
                // It would outlive the closure, if anything of the closure did.
                drop(tokio::task::spawn_local(async move {
                    let _spawned = spawned;
                    std::future::pending::<()>().await;
                }));
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                assert!(number != 3, "on purpose");
                drop(mine);
                found
            })
        });
        // All of them are queued before the first one ends, or may be.
        let ends = join_all(runs).await;
        for (number, ended) in ends.into_iter().enumerate() {
            let expected =
                if number == 3 { Err(ThreadPoolError::Panicked("on purpose".to_owned())) } else { Ok(0) };
            assert_eq!(ended, expected, "{runtimes:?}: closure {number} found what another one made");
        }
    }
}

/// Polls them in turn, so that they are queued in this order.
async fn join_all<F: Future>(runs: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut runs: Vec<_> = runs.map(|run| (Box::pin(run), None)).collect();
    std::future::poll_fn(move |cx| {
        for (run, ended) in runs.iter_mut().filter(|(_, ended)| ended.is_none()) {
            if let Poll::Ready(end) = run.as_mut().poll(cx) {
                *ended = Some(end);
            }
        }
        if runs.iter().any(|(_, ended)| ended.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(runs.iter_mut().filter_map(|(_, ended)| ended.take()).collect())
    })
    .await
}

#[tokio::test]
async fn a_task_that_a_closure_spawned_is_not_seen_by_the_next_one() {
    for runtimes in BOTH {
        let pool = start(ThreadPolicy { runtimes, ..policy(1) });
        let (ran_on, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counts, waits) = (Arc::clone(&ran_on), Arc::clone(&release));
        let first = pool.run(move || async move {
            let begun = Rc::new(Notify::new());
            let tells = Rc::clone(&begun);
            tokio::task::spawn_local(async move {
                tells.notify_one();
                while let Ok(permit) = waits.acquire().await {
                    permit.forget();
                    counts.fetch_add(1, Ordering::SeqCst);
                }
            });
            begun.notified().await;
        });
        assert_eq!(first.await, Ok(()));
        let frees = Arc::clone(&release);
        let second = pool.run(move || async move {
            // What the first one spawned would run on here, now that it may.
            frees.add_permits(1);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(second.await, Ok(()));
        assert_eq!(ran_on.load(Ordering::SeqCst), 0, "{runtimes:?}");
        assert_eq!(Arc::strong_count(&release), 1, "{runtimes:?}: it is gone with all that it held");
    }
}

#[tokio::test]
async fn over_the_limit_a_closure_is_refused_at_once_until_another_has_ended() {
    let pool = pool(1, 2);
    let gate = Arc::new(Semaphore::new(0));
    let closure = || {
        let gate = Arc::clone(&gate);
        move || async move { gate.acquire().await.unwrap().forget() }
    };
    let mut running = pin!(pool.run(closure()));
    let mut queued = pin!(pool.run(closure()));
    assert!(poll(&mut running).await.is_pending());
    assert!(poll(&mut queued).await.is_pending());
    assert_eq!(pool.occupied(), 2);
    assert_eq!(pool.run(closure()).await, Err(ThreadPoolError::QueueFull(2)));
    gate.add_permits(1);
    assert_eq!(running.await, Ok(()));
    let mut third = pin!(pool.run(closure()));
    assert!(poll(&mut third).await.is_pending(), "there is room again, as soon as the result is there");
    gate.add_permits(2);
    assert_eq!((queued.await, third.await), (Ok(()), Ok(())));
    assert_eq!(pool.occupied(), 0);
}

#[tokio::test]
async fn a_caller_that_gives_up_cancels_a_closure_that_has_not_begun() {
    let pool = pool(1, 2);
    let gate = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let mut running = pin!(pool.run(move || async move { waits.acquire().await.unwrap().forget() }));
    assert!(poll(&mut running).await.is_pending());
    let ran = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&ran);
    let mut queued = Box::pin(pool.run(move || async move { tells.store(true, Ordering::SeqCst) }));
    assert!(poll(&mut queued.as_mut()).await.is_pending());
    drop(queued);
    assert_eq!(pool.occupied(), 1, "its place is free at once");
    assert_eq!(Arc::strong_count(&ran), 1, "and the closure is gone");
    let last = pool.run(|| async { "last" });
    gate.add_permits(1);
    assert_eq!((running.await, last.await), (Ok(()), Ok("last")));
    assert!(!ran.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_closure_that_has_begun_runs_to_its_end_and_a_drain_waits_for_it() {
    let pool = pool(1, 10);
    let (gate, begun, ended) =
        (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (waits, tells, ends) = (Arc::clone(&gate), Arc::clone(&begun), Arc::clone(&ended));
    let mut caller = Box::pin(pool.run(move || async move {
        tells.notify_one();
        waits.acquire().await.unwrap().forget();
        ends.store(true, Ordering::SeqCst);
    }));
    assert!(poll(&mut caller.as_mut()).await.is_pending());
    begun.notified().await;
    drop(caller);
    let mut drain = pin!(pool.drain());
    assert!(poll(&mut drain).await.is_pending(), "its permit is still out");
    gate.add_permits(1);
    assert_eq!(drain.await, DrainEnd::Drained);
    assert!(ended.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_drain_refuses_waits_for_the_last_permit_and_is_taken_back() {
    let pool = start(ThreadPolicy { choice: Choice::LeastLoaded, ..policy(2) });
    let gate = Arc::new(Semaphore::new(0));
    let closure = || {
        let gate = Arc::clone(&gate);
        move || async move { gate.acquire().await.unwrap().forget() }
    };
    let mut one = pin!(pool.run(closure()));
    let mut other = pin!(pool.run(closure()));
    assert!(poll(&mut one).await.is_pending());
    assert!(poll(&mut other).await.is_pending());
    let mut drain = Box::pin(pool.drain());
    assert!(poll(&mut drain.as_mut()).await.is_pending());
    assert!(pool.is_draining());
    assert_eq!(pool.run(|| async {}).await, Err(ThreadPoolError::Draining));
    gate.add_permits(1);
    tokio::select! {
        ended = &mut one => assert_eq!(ended, Ok(())),
        ended = &mut other => assert_eq!(ended, Ok(())),
    }
    assert!(poll(&mut drain.as_mut()).await.is_pending(), "one is left");

    pool.resume();
    assert_eq!(drain.await, DrainEnd::TakenBack);
    assert_eq!(pool.run(|| async { 7 }).await, Ok(7), "on the thread that is free");

    let mut drain = pin!(pool.drain());
    assert!(poll(&mut drain).await.is_pending());
    gate.add_permits(1);
    assert_eq!(drain.await, DrainEnd::Drained);
    assert_eq!(pool.occupied(), 0);
    assert_eq!(pool.run(|| async {}).await, Err(ThreadPoolError::Draining), "it stays drained");
    pool.resume();
    assert_eq!(pool.run(|| async { 8 }).await, Ok(8), "until it is resumed");
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a bomb");
        }
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_closure_only() {
    for runtimes in BOTH {
        let pool = start(ThreadPolicy { runtimes, ..policy(1) });
        let id = pool.run(|| async { std::thread::current().id() }).await.unwrap();
        let in_future = pool.run::<(), _, _>(|| async { panic!("in the future") }).await;
        assert_eq!(in_future, Err(ThreadPoolError::Panicked("in the future".to_owned())));
        let in_closure = pool.run(|| -> std::future::Ready<()> { panic!("in the {}", "closure") }).await;
        assert_eq!(in_closure, Err(ThreadPoolError::Panicked("in the closure".to_owned())));
        let in_destructor = pool.run(|| async {
            let bomb = Bomb;
            tokio::task::spawn_local(async move {
                let _bomb = bomb;
                std::future::pending::<()>().await;
            });
            "done"
        });
        assert_eq!(in_destructor.await, Ok("done"), "its result was there already");
        // A caller that is gone leaves the result to the thread.
        let gate = Arc::new(Semaphore::new(0));
        let (waits, begun) = (Arc::clone(&gate), Arc::new(Notify::new()));
        let tells = Arc::clone(&begun);
        let mut gone = Box::pin(pool.run(move || async move {
            tells.notify_one();
            waits.acquire().await.unwrap().forget();
            Bomb
        }));
        assert!(poll(&mut gone.as_mut()).await.is_pending());
        begun.notified().await;
        drop(gone);
        gate.add_permits(1);
        assert_eq!(
            pool.run(|| async { std::thread::current().id() }).await,
            Ok(id),
            "{runtimes:?}: the same thread goes on"
        );
        assert_eq!(pool.occupied(), 0);
    }
}

#[tokio::test]
async fn threads_take_turns_busy_or_not() {
    let pool = start(policy(3));
    let mut names = Vec::new();
    for _ in 0..6 {
        names.push(pool.run(|| async { thread() }).await.unwrap());
    }
    let turns = [0, 1, 2, 0, 1, 2].map(|place| format!("ostler-thread-{place}"));
    assert_eq!(names, turns);
}

#[tokio::test]
async fn the_least_loaded_thread_is_chosen() {
    let pool = start(ThreadPolicy { choice: Choice::LeastLoaded, ..policy(2) });
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let (waits, tells) = (Arc::clone(&gate), Arc::clone(&begun));
    let mut busy = pin!(pool.run(move || async move {
        tells.notify_one();
        waits.acquire().await.unwrap().forget();
        thread()
    }));
    assert!(poll(&mut busy).await.is_pending());
    begun.notified().await;
    let mut names = Vec::new();
    for _ in 0..6 {
        // In turn, every other one would wait forever.
        names.push(pool.run(|| async { thread() }).await.unwrap());
    }
    gate.add_permits(1);
    let busy = busy.await.unwrap();
    assert!(!names.contains(&busy), "{names:?}");
}

#[test]
fn a_policy_under_which_a_thread_could_never_run_anything_is_refused() {
    for (threads, most) in [(0, 10), (4, 3)] {
        let policy = ThreadPolicy { threads, most, ..policy(1) };
        let refused = ThreadPool::start(policy).map(|_| ()).unwrap_err().to_string();
        assert!(
            refused.contains("at least one thread") || refused.contains("too few for 4 threads"),
            "{refused}"
        );
    }
}
