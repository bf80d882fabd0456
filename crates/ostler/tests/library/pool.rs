//! The pool through the library's public API.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ostler::{
    AttemptEnded, Context, Drained, ErrorClass, NodeState, Overrides, Pool, ResumeAnswer, StateName,
    StoreNews, Submission, SubmitError, TaskError, TaskId, ThreadPolicy, WaitError,
};
use ostler_sqlite::Sqlite;
use ostler_store::node_commands::NodeCommand;
use ostler_store::{Store as _, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, scratch};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/documents.rs"]
mod documents;

/// Poll interval for conditions that have no signal.
const LOOK: Duration = Duration::from_millis(5);
/// How often a wait that must not return is polled.
const LOOKS: usize = 10;

#[derive(Serialize, Deserialize)]
struct Sum {
    numbers: Vec<i64>,
}

async fn sums(path: &std::path::Path) -> Pool {
    let handler = |task: Sum, _: Context| async move { Ok(task.numbers.iter().sum::<i64>()) };
    ostler::open(path).unwrap().handle("sum", handler).workers(4).start().await.unwrap()
}

/// A pool whose handler signals its start and waits until it is cancelled.
async fn waiting(path: &std::path::Path, began: &Signal, limit: u64) -> Pool {
    let began = began.clone();
    let handler = move |(): (), context: Context| {
        began.emit();
        async move {
            context.cancelled().await;
            Err::<(), _>(TaskError::transient("told to stop"))
        }
    };
    let builder = ostler::open(path).unwrap().handle("wait", handler).workers(1).queue_limit(limit);
    builder.grace(Duration::from_secs(1)).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_submitted_is_run_and_its_output_comes_back() {
    let folder = scratch();
    let pool = sums(&folder.path().join("jobs.db")).await;
    let id = pool.submit("sum", &Sum { numbers: vec![1, 2, 39] }).await.unwrap();
    let done = pool.wait(id).await.unwrap();
    assert_eq!((done.state.name(), done.output.as_deref()), (StateName::Completed, Some("42")));
    pool.wait_idle().await.unwrap();
    assert_eq!(pool.stats().await.unwrap().tasks.completed, 1);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_without_a_free_worker_is_run_after_a_restart() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let without = ostler::open(&path).unwrap().start().await.unwrap();
    let id = without.submit("sum", &Sum { numbers: vec![7] }).await.unwrap();
    without.drain(Duration::ZERO).await;
    let pool = sums(&path).await;
    assert_eq!(pool.wait(id).await.unwrap().output.as_deref(), Some("7"));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_does_not_fit_is_a_permanent_failure_that_says_so() {
    let folder = scratch();
    let pool = sums(&folder.path().join("jobs.db")).await;
    let id = pool.submit("sum", &"no numbers").await.unwrap();
    let task = pool.wait(id).await.unwrap();
    let failure = task.last_failure.expect("a failed task says why");
    assert_eq!((task.state.name(), failure.class), (StateName::Failed, ErrorClass::Permanent));
    assert!(failure.message.contains("does not fit"), "{}", failure.message);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_class_of_error_arrives_with_its_words() {
    let folder = scratch();
    let handler = |(): (), _: Context| async {
        Err::<(), _>(TaskError::partial("move", "the folder is gone").hint("make it again"))
    };
    let once = Overrides { attempts: Some(1), ..Overrides::NONE };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("fail", handler).defaults(once);
    let pool = builder.start().await.unwrap();
    let id = pool.submit("fail", &()).await.unwrap();
    let failure = pool.wait(id).await.unwrap().last_failure.expect("a failed task says why");
    assert_eq!(failure.class, ErrorClass::Partial);
    assert_eq!((failure.step.as_deref(), failure.hint.as_deref()), (Some("move"), Some("make it again")));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_says_so_and_a_patient_caller_gets_in() {
    let folder = scratch();
    let began = Signal::new("began");
    let pool = waiting(&folder.path().join("jobs.db"), &began, 1).await;
    let running = pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    let waiting = pool.submit("wait", &()).await.unwrap();
    assert!(matches!(pool.submit("wait", &()).await, Err(SubmitError::QueueFull { limit: 1 })));
    let soon = pool.submit_wait("wait", &(), Duration::from_millis(20)).await;
    assert!(matches!(soon, Err(SubmitError::QueueFull { limit: 1 })), "{soon:?}");
    assert_eq!(pool.cancel(waiting).await.unwrap(), StateName::Queued);
    pool.submit_wait("wait", &(), MAX_WAIT).await.unwrap();
    assert_eq!(pool.cancel(running).await.unwrap(), StateName::Running);
    assert_eq!(pool.wait(running).await.unwrap().state.name(), StateName::Cancelled);
    began.wait_for(2).await;
    assert_eq!(pool.stop_now().await, Drained { finished: 0, handed_back: 1 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_now_cuts_a_drain_short_though_the_store_does_not_answer_and_no_node_has_died() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let began = Signal::new("began");
    let handler = {
        let began = began.clone();
        move |(): (), _: Context| {
            began.emit();
            // Ignores cancellation.
            std::future::pending::<Result<(), TaskError>>()
        }
    };
    let builder = ostler::open(&path).unwrap().handle("wait", handler).workers(1);
    let pool = builder.grace(MAX_WAIT * 10).start().await.unwrap();
    let id = pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    // Another process holds the write lock indefinitely.
    let lock = std::fs::File::open(folder.path().join("jobs.db.nodes/main.lock")).unwrap();
    lock.lock().unwrap();
    let draining = tokio::spawn({
        let pool = pool.clone();
        async move { pool.drain(MAX_WAIT * 10).await }
    });
    tokio::time::timeout(MAX_WAIT, pool.stop_now()).await.expect("it does not wait for the store");
    tokio::time::timeout(MAX_WAIT, draining).await.expect("it is over").expect("nothing broke");
    lock.unlock().unwrap();
    drop(pool);
    let next = ostler::open(&path).unwrap().handle("wait", |(): (), _: Context| async { Ok(7) });
    let next = next.start().await.unwrap();
    let done = next.wait(id).await.unwrap();
    assert_eq!((done.state.name(), done.output.as_deref()), (StateName::Completed, Some("7")));
    assert_eq!((done.node_deaths, done.suspect, done.failures), (0, false, 0), "no node has died");
    next.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_store_is_removed_says_so_and_only_drains() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let (news, mut said) = tokio::sync::mpsc::unbounded_channel();
    let builder = ostler::open(&path).unwrap().on_store_news(move |about| {
        let _ = news.send(about);
    });
    let pool = builder.start().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let gone =
        tokio::time::timeout(MAX_WAIT, said.recv()).await.expect("the store news arrives").expect("once");
    assert!(matches!(gone, StoreNews::Gone(_)), "{gone}");
    assert!(gone.to_string().contains("was removed or replaced"), "{gone}");
    let draining = async {
        while pool.state() != NodeState::Draining {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, draining).await.expect("it takes no more work");
    assert!(matches!(pool.submit("sum", &()).await, Err(SubmitError::Draining)));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_callers_that_submit_at_once_exactly_as_many_get_in_as_there_is_room() {
    const ROOM: u64 = 7;
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    // Two pools without workers, each with its own connection: nothing leaves the queue.
    let open = || async { ostler::open(&path).unwrap().queue_limit(ROOM).start().await.unwrap() };
    let pools = [open().await, open().await];
    let callers = (0..40).map(|number| {
        let pool = pools[number % 2].clone();
        tokio::spawn(async move { pool.try_submit("wait", &number).await })
    });
    let mut taken = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        match caller.await.unwrap() {
            Ok(id) => taken.push(id),
            Err(refused) => assert!(matches!(refused, SubmitError::QueueFull { limit: ROOM }), "{refused}"),
        }
    }
    let [pool, other] = pools;
    assert_eq!((taken.len() as u64, pool.stats().await.unwrap().tasks.queued), (ROOM, ROOM));
    for id in taken {
        assert_eq!(other.get(id).await.unwrap().state.name(), StateName::Queued);
    }
    pool.drain(MAX_WAIT).await;
    other.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_its_retry_occupies_no_worker_and_is_cancelled_at_once() {
    let folder = scratch();
    let handler = |fails: bool, _: Context| async move {
        if fails { Err(TaskError::transient("not yet")) } else { Ok(()) }
    };
    let failed = Signal::new("failed");
    let emits = failed.clone();
    let told = move |_: AttemptEnded| {
        emits.emit();
        async {}
    };
    let later = Overrides { base: Some(MAX_WAIT * 100), ..Overrides::NONE };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("work", handler).workers(1);
    let pool = builder.defaults(later).on_retry(told).start().await.unwrap();
    let fails = pool.submit("work", &true).await.unwrap();
    failed.wait().await;
    let other = pool.submit("work", &false).await.unwrap();
    let other = tokio::time::timeout(MAX_WAIT, pool.wait(other)).await.expect("the worker is free").unwrap();
    assert_eq!(other.state.name(), StateName::Completed);
    assert_eq!(pool.get(fails).await.unwrap().state.name(), StateName::Queued);
    assert_eq!(pool.cancel(fails).await.unwrap(), StateName::Queued, "no worker has to acknowledge it");
    let task = pool.get(fails).await.unwrap();
    assert_eq!((task.state.name(), task.runs, task.failures), (StateName::Cancelled, 1, 1));
    pool.wait_idle().await.unwrap();
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_does_not_wait_for_room() {
    let folder = scratch();
    let began = Signal::new("began");
    let pool = waiting(&folder.path().join("jobs.db"), &began, 1).await;
    let running = pool.try_submit("wait", &()).await.unwrap();
    began.wait().await;
    let waiting = pool.try_submit("wait", &()).await.unwrap();
    assert!(matches!(pool.try_submit("wait", &()).await, Err(SubmitError::QueueFull { limit: 1 })));
    assert_eq!(pool.get(waiting).await.unwrap().state.name(), StateName::Queued);
    assert!(!pool.get(running).await.unwrap().state.name().is_terminal());
    pool.stop_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_for_a_slot_goes_on_when_a_worker_is_free() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let story = Arc::new(Mutex::new(Vec::new()));
    let (emits, waits, tells) = (began.clone(), go.clone(), Arc::clone(&story));
    let handler = move |(): (), _: Context| {
        emits.emit();
        let (waits, tells) = (waits.clone(), Arc::clone(&tells));
        async move {
            waits.wait().await;
            tells.lock().unwrap().push("the worker ends its task");
            Ok(())
        }
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("wait", handler).workers(1);
    let pool = builder.start().await.unwrap();
    pool.wait_for_slot().await.unwrap();
    let running = pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    let mut waiting = pin!(pool.wait_for_slot());
    assert!(!is_over(waiting.as_mut()).await, "the only worker is busy");
    story.lock().unwrap().push("the caller still waits");
    go.emit();
    tokio::time::timeout(MAX_WAIT, waiting).await.expect("the worker is free").unwrap();
    story.lock().unwrap().push("the caller goes on");
    assert_eq!(pool.running_here().await, 0);
    let expected = ["the caller still waits", "the worker ends its task", "the caller goes on"];
    assert_eq!(*story.lock().unwrap(), expected);
    pool.wait(running).await.unwrap();
    pool.stop_now().await;
    assert!(matches!(pool.wait_for_slot().await, Err(SubmitError::Draining)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_until_all_is_done_waits_for_what_runs() {
    let folder = scratch();
    let began = Signal::new("began");
    let pool = waiting(&folder.path().join("jobs.db"), &began, 9).await;
    let running = pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    let mut idle = pin!(pool.wait_idle());
    assert!(!is_over(idle.as_mut()).await, "a task is running");
    pool.cancel(running).await.unwrap();
    tokio::time::timeout(MAX_WAIT, idle).await.expect("nothing is left to do").unwrap();
    assert!(pool.get(running).await.unwrap().state.name().is_terminal());
    pool.drain(MAX_WAIT).await;
}

/// Whether a wait returns, though nothing has changed for several of its own looks.
pub(crate) async fn is_over(mut wait: Pin<&mut impl Future>) -> bool {
    let mut looks = tokio::time::interval(LOOK);
    for _ in 0..LOOKS {
        looks.tick().await;
        if poll_fn(|context| Poll::Ready(wait.as_mut().poll(context))).await.is_ready() {
            return true;
        }
    }
    false
}

/// Whether a worker is free.
async fn has_a_slot(pool: &Pool) -> bool {
    is_over(pin!(pool.wait_for_slot())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_for_a_slot_knows_of_another_size() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let began = Signal::new("began");
    let pool = waiting(&path, &began, 9).await;
    let admin = Sqlite::open(&path, Arc::new(SystemClock), ostler_sqlite::Options::default()).unwrap();
    let node = admin.survey().await.unwrap().nodes[0].session;
    let resize = |max| admin.command(node, NodeCommand::Resize { pool: "default".into(), min: 1, max });
    pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    assert!(!has_a_slot(&pool).await, "the only worker is busy");
    resize(2).await.unwrap();
    tokio::time::timeout(MAX_WAIT, pool.wait_for_slot()).await.expect("there is a second one").unwrap();
    resize(1).await.unwrap();
    let mut looks = tokio::time::interval(LOOK);
    let shrunk = async {
        while has_a_slot(&pool).await {
            looks.tick().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, shrunk).await.expect("the only worker is busy again");
    pool.stop_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_of_the_callers_own_is_taken_once() {
    let folder = scratch();
    let pool = sums(&folder.path().join("jobs.db")).await;
    let id = TaskId(ostler::ids().unwrap()());
    let submit = |kind: &'static str, number| {
        let (pool, about) = (pool.clone(), Submission { id: Some(id), ..Submission::default() });
        async move { pool.submit_with(kind, &Sum { numbers: vec![number] }, about).await }
    };
    assert_eq!(submit("sum", 1).await.unwrap(), id);
    assert_eq!(submit("sum", 1).await.unwrap(), id, "the answer to the first was lost");
    for (kind, number) in [("sum", 2), ("other", 1)] {
        let other = submit(kind, number).await;
        assert!(matches!(other, Err(SubmitError::IdTaken(taken)) if taken == id), "{other:?}");
    }
    assert_eq!(pool.wait(id).await.unwrap().output.as_deref(), Some("1"));
    assert_eq!(pool.stats().await.unwrap().totals.submitted, 1);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_submission_does_not_take_its_neighbours_along() {
    let folder = scratch();
    let pool = sums(&folder.path().join("jobs.db")).await;
    let (long, task) = ("k".repeat(10_000), Sum { numbers: vec![1] });
    let (before, bad, after) =
        tokio::join!(pool.submit("sum", &task), pool.submit(&long, &task), pool.submit("sum", &task));
    assert!(matches!(bad, Err(SubmitError::Store(_))), "{bad:?}");
    for id in [before.unwrap(), after.unwrap()] {
        assert_eq!(pool.wait(id).await.unwrap().state.name(), StateName::Completed);
    }
    assert_eq!(pool.stats().await.unwrap().submitted(), 2);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_drains_says_so_to_those_who_submit() {
    let folder = scratch();
    let began = Signal::new("began");
    let pool = waiting(&folder.path().join("jobs.db"), &began, 9).await;
    let running = pool.submit("wait", &()).await.unwrap();
    began.wait().await;
    let drain = tokio::spawn({
        let pool = pool.clone();
        async move { pool.drain(MAX_WAIT).await }
    });
    let mut tries = tokio::time::interval(Duration::from_millis(1));
    while !matches!(pool.submit("wait", &()).await, Err(SubmitError::Draining)) {
        tries.tick().await;
    }
    pool.cancel(running).await.unwrap();
    assert_eq!(drain.await.unwrap().finished, 1);
    assert_eq!(pool.drain(MAX_WAIT).await, Drained::default(), "it is drained already");
    assert_eq!(pool.cancel_drain(), ResumeAnswer::Stopping, "and it has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_figures_tell_how_the_queue_stands() {
    const TAKES: Duration = Duration::from_millis(20);
    let folder = scratch();
    let (began, gate) = (Signal::new("began"), watch::Sender::new(false));
    let (emits, opens) = (began.clone(), gate.clone());
    let hold = move |(): (), _: Context| {
        emits.emit();
        let mut open = opens.subscribe();
        async move { open.wait_for(|open| *open).await.map(drop).map_err(TaskError::from) }
    };
    let sleepy = |(): (), _: Context| async {
        tokio::time::sleep(TAKES).await;
        Ok(())
    };
    let fails = |(): (), _: Context| async { Err::<(), _>(TaskError::transient("no")) };
    let twice = Overrides { attempts: Some(2), base: Some(Duration::from_millis(1)), ..Overrides::NONE };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().defaults(twice).workers(3);
    let builder = builder.handle("hold", hold).handle("sleepy", sleepy).handle("fails", fails);
    let pool = builder.start().await.unwrap();
    for kind in ["sleepy", "sleepy", "fails"] {
        let id = pool.submit(kind, &()).await.unwrap();
        pool.wait(id).await.unwrap();
    }
    pool.submit("hold", &()).await.unwrap();
    began.wait().await;
    // A node reports its workers periodically.
    let mut looks = tokio::time::interval(LOOK);
    let reported = async {
        loop {
            looks.tick().await;
            let stats = pool.stats().await.unwrap();
            if (stats.workers.total, stats.workers.idle, stats.workers.busy) == (3, 2, 1) {
                return stats;
            }
        }
    };
    let stats = tokio::time::timeout(MAX_WAIT, reported).await.expect("three workers, one of them busy");
    assert_eq!((stats.submitted(), stats.tasks.running + stats.tasks.claimed), (4, 1));
    assert_eq!((stats.tasks.completed, stats.tasks.failed, stats.queue_high_water), (2, 1, 1));
    assert_eq!((stats.totals.failed, stats.totals.retried), (1, 1));
    assert_eq!((stats.kinds["sleepy"].count, stats.kinds["fails"].count), (2, 2));
    let least = TAKES.as_secs_f64() * 1_000.0;
    assert!(stats.kinds["sleepy"].avg_ms >= least, "{stats:?}");
    assert_eq!(stats.all_kinds.count, 4);
    assert!(stats.all_kinds.avg_ms >= least / 2.0, "{stats:?}");
    gate.send_replace(true);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_documents_are_worked_on_by_id_and_one_by_a_command() {
    let folder = scratch();
    let path = folder.path().join("documents.db");
    let (answer, tasks) = documents::run(&path).await.unwrap();
    assert_eq!((answer.as_str(), tasks.completed, tasks.submitted()), ("\"A DOCUMENT\"", 101, 101));
    let (_, tasks) = documents::run(&path).await.unwrap();
    assert_eq!((tasks.completed, tasks.submitted()), (102, 102), "no document is indexed twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_key_answers_with_the_task_that_is_there() {
    let folder = scratch();
    let pool = sums(&folder.path().join("jobs.db")).await;
    let about = || Submission { key: Some("order-1".into()), ..Submission::default() };
    let first = pool.submit_with("sum", &Sum { numbers: vec![1] }, about()).await.unwrap();
    let again = pool.submit_with("sum", &Sum { numbers: vec![2] }, about()).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(pool.wait(first).await.unwrap().output.as_deref(), Some("1"));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_not_there_is_not_found() {
    let folder = scratch();
    let pool = sums(&folder.path().join("jobs.db")).await;
    let unknown = Ids::new(1).task();
    assert!(matches!(pool.wait(unknown).await, Err(WaitError::NotFound(id)) if id == unknown));
    assert!(matches!(pool.cancel(unknown).await, Err(WaitError::NotFound(id)) if id == unknown));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_refused() {
    let folder = scratch();
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear Ada, this is not a database at all, but it is long enough to look at.")
        .unwrap();
    let refused = ostler::open(&path).err().expect("it is refused").to_string();
    assert!(refused.contains("letter.txt"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_not_send_runs_on_a_thread_of_its_own() {
    let folder = scratch();
    let handler = |task: Sum, _: Context| async move {
        let numbers = std::rc::Rc::new(task.numbers);
        tokio::task::yield_now().await;
        Ok(numbers.iter().sum::<i64>())
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle_local("sum", handler);
    let pool = builder.threads(ThreadPolicy::for_cores(2)).start().await.unwrap();
    let id = pool.submit("sum", &Sum { numbers: vec![40, 2] }).await.unwrap();
    assert_eq!(pool.wait(id).await.unwrap().output.as_deref(), Some("42"));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_on_threads_claims_no_more_than_may_run_and_wait() {
    let folder = scratch();
    let (began, go) = (Signal::new("began"), Signal::new("go"));
    let builder = || {
        let (began, go) = (began.clone(), go.clone());
        let handler = move |(): (), _: Context| {
            let go = go.clone();
            began.emit();
            async move {
                go.wait().await;
                Ok(())
            }
        };
        let few = ThreadPolicy { most: 1, ..ThreadPolicy::for_cores(1) };
        ostler::open(folder.path().join("jobs.db")).unwrap().handle_local("wait", handler).threads(few)
    };
    let refused = builder().workers(2).start().await.err().expect("it is refused").to_string();
    assert!(refused.contains("up to 2 workers") && refused.contains("at most 1 tasks at once"), "{refused}");
    let pool = builder().start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(pool.submit("wait", &()).await.unwrap());
    }
    began.wait().await;
    go.emit();
    for id in ids {
        let task = pool.wait(id).await.unwrap();
        assert_eq!((task.token, task.runs), (1, 1), "it was claimed once, and not to be handed back");
    }
    pool.drain(MAX_WAIT).await;
}

#[tokio::test]
async fn a_limit_below_the_number_of_threads_is_refused_at_the_start() {
    let folder = scratch();
    let few = ThreadPolicy { most: 3, ..ThreadPolicy::for_cores(4) };
    let handler = |(): (), _: Context| async { Ok(()) };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle_local("wait", handler);
    let refused = builder.threads(few).start().await.err().expect("it is refused").to_string();
    assert!(refused.contains("at most 3") && refused.contains("too few for 4 threads"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_grows_to_its_most_when_tasks_wait() {
    let folder = scratch();
    let began = Signal::new("began");
    let emits = began.clone();
    let handler = move |(): (), context: Context| {
        emits.emit();
        async move {
            context.cancelled().await;
            Err::<(), _>(TaskError::transient("told to stop"))
        }
    };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("wait", handler);
    let pool = builder.workers_between(1, 4).grace(Duration::from_secs(1)).start().await.unwrap();
    for _ in 0..6 {
        pool.submit("wait", &()).await.unwrap();
    }
    began.wait_for(4).await;
    assert_eq!(pool.running_here().await, 4);
    pool.stop_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_of_the_command_line_names_the_same_file() {
    let folder = scratch();
    let file = folder.path().join("jobs.db");
    let path = file.to_str().unwrap();
    let pool = sums(&file).await;
    let id = pool.submit("sum", &Sum { numbers: vec![1, 2] }).await.unwrap();
    pool.wait(id).await.unwrap();
    pool.drain(MAX_WAIT).await;
    for url in [format!("sqlite:{path}"), format!("sqlite://{path}"), path.to_owned()] {
        let again = sums(url.as_ref()).await;
        assert!(again.get(id).await.is_ok(), "{url} is the same store");
        again.drain(MAX_WAIT).await;
    }
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name.to_str().unwrap().starts_with("jobs.db")), "{names:?}");
    for (url, sentence) in [
        ("mysql://anna:secret@db/jobs", "unknown store \"mysql:\""),
        ("sqlite:", "expected sqlite:PATH"),
        ("sqlite::memory:", "outlives the program"),
    ] {
        let error = ostler::open(url).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(sentence) && !error.contains("secret"), "{error}");
    }
}
