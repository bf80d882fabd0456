//! Processes killed with SIGKILL repeatedly while working: no task is lost, and none completes twice.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler::{Context, Pool};
use ostler_core::Ending;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::views::{Filter, TaskRef};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{MAX_WAIT, Twin, Voice, scratch};
use serde::{Deserialize, Serialize};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const TASKS: u32 = 1_000;
const KILLS: usize = 20;
/// The minimum number of kills that must interrupt an attempt for the test to be meaningful.
const INTERRUPTED: usize = 15;
/// Concurrent attempts.
const HANDS: usize = 8;
/// Minimum running attempts whenever a process is killed.
const AT_LEAST: usize = 4;

#[derive(Serialize, Deserialize)]
struct Number {
    number: u32,
}

/// Appends a line to a file that outlives the process, and syncs it.
fn note(folder: &Path, file: &str, line: &str) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(folder.join(file));
    let written = file.and_then(|mut file| {
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    });
    written.expect("the line is kept");
}

fn effect(folder: &Path, line: &str) {
    note(folder, "effects", line);
}

/// Attempts that have begun and not ended, according to their recorded effects.
fn cut_short(folder: &Path) -> usize {
    let effects = std::fs::read_to_string(folder.join("effects")).unwrap_or_default();
    let lines = |word: &str| effects.lines().filter(|line| line.starts_with(word)).count();
    lines("begin") - lines("end")
}

/// Handlers between their begin and end.
static IN_HAND: AtomicUsize = AtomicUsize::new(0);

async fn pool(folder: &Path) -> Pool {
    let here = folder.to_owned();
    let handler = move |task: Number, _: Context| {
        let here = here.clone();
        async move {
            effect(&here, &format!("begin {}", task.number));
            IN_HAND.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(15)).await;
            IN_HAND.fetch_sub(1, Ordering::SeqCst);
            effect(&here, &format!("end {}", task.number));
            Ok(task.number)
        }
    };
    let builder = ostler::open(folder.join("jobs.db")).expect("the store opens");
    builder.handle("number", handler).workers(HANDS).start().await.expect("the pool starts")
}

#[test]
#[ignore = "the other process of the test below"]
fn worker() {
    let folder = std::env::var_os(FOLDER).expect("the test says where");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = pool(Path::new(&folder)).await;
        loop {
            if IN_HAND.load(Ordering::SeqCst) >= AT_LEAST {
                Voice::say("busy");
            }
            if pool.stats().await.expect("the store answers").tasks.completed >= u64::from(TASKS) {
                Voice::say("done");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_lose_nothing_and_complete_nothing_twice() {
    let folder = scratch();
    let submitter = ostler::open(folder.path().join("jobs.db")).unwrap().start().await.unwrap();
    for number in 0..TASKS {
        let id = submitter.submit("number", &Number { number }).await.unwrap();
        note(folder.path(), "acknowledged", &id.to_string());
    }
    submitter.drain(Duration::ZERO).await;
    let mut interrupting = 0;
    for _ in 0..KILLS {
        let before = cut_short(folder.path());
        let mut twin = Twin::start("kills::worker", &[(FOLDER, folder.path().as_os_str())]);
        let word = twin.hear();
        twin.kill();
        if word == "done" {
            break;
        }
        interrupting += usize::from(cut_short(folder.path()) > before);
    }
    assert!(interrupting >= INTERRUPTED, "only {interrupting} kills interrupted an attempt");
    let last = pool(folder.path()).await;
    tokio::time::timeout(MAX_WAIT, last.wait_idle()).await.expect("the rest is done in time").unwrap();
    last.drain(MAX_WAIT).await;

    let store =
        Sqlite::open(folder.path().join("jobs.db"), std::sync::Arc::new(SystemClock), Options::default())
            .unwrap();
    let tasks = store.list(Filter::default(), None, 1_000).await.unwrap().tasks;
    let mut acknowledged = std::fs::read_to_string(folder.path().join("acknowledged")).unwrap();
    assert_eq!(tasks.len(), TASKS as usize, "none is there that was not acknowledged");
    for task in &tasks {
        acknowledged = acknowledged.replace(&task.id.to_string(), "");
    }
    assert_eq!(acknowledged.trim(), "", "none is lost");
    let mut interrupted = 0;
    for task in tasks {
        let detail = store.show(TaskRef::Id(task.id)).await.unwrap().unwrap();
        let ends = detail.attempts.iter().filter_map(|attempt| attempt.end.as_ref());
        assert_eq!(ends.filter(|end| end.ending == Ending::Success).count(), 1, "{task:?} completed once");
        assert_eq!(detail.task.failures, 0, "a kill is no failure of the task");
        interrupted += usize::from(task.suspect);
    }
    let effects = std::fs::read_to_string(folder.path().join("effects")).unwrap();
    let begins = effects.lines().filter(|line| line.starts_with("begin")).count();
    println!(
        "{KILLS} kills, {interrupting} of them in the middle of an attempt: {TASKS} tasks, {begins} runs, {interrupted} \
         tasks interrupted, 0 lost, 0 twice"
    );
}

/// A poisoned letter aborts its process.
#[derive(Serialize, Deserialize)]
struct Letter {
    poison: bool,
}

async fn letters(folder: &Path) -> Pool {
    let handler = |task: Letter, _: Context| async move {
        if task.poison {
            // No message, no unwinding: the process is gone.
            std::process::abort();
        }
        Ok(())
    };
    let builder = ostler::open(folder.join("jobs.db")).expect("the store opens");
    builder.handle("letter", handler).workers(HANDS).start().await.expect("the pool starts")
}

#[test]
#[ignore = "the other process of the test below"]
fn poisoned() {
    let folder = std::env::var_os(FOLDER).expect("the test says where");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = letters(Path::new(&folder)).await;
        pool.wait_idle().await.expect("the store answers");
        pool.drain(MAX_WAIT).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_kills_its_node_is_quarantined_and_its_neighbours_complete() {
    const NEIGHBOURS: usize = 50;
    /// Ten deaths while it runs, one before it was known, and room for deaths that came before its start.
    const MOST_DEATHS: usize = 30;
    let folder = scratch();
    let submitter = ostler::open(folder.path().join("jobs.db")).unwrap().start().await.unwrap();
    let poison = submitter.submit("letter", &Letter { poison: true }).await.unwrap();
    for _ in 0..NEIGHBOURS {
        submitter.submit("letter", &Letter { poison: false }).await.unwrap();
    }
    let mut deaths = 0;
    while deaths < MOST_DEATHS {
        if Twin::start("kills::poisoned", &[(FOLDER, folder.path().as_os_str())]).wait().success() {
            break;
        }
        deaths += 1;
    }
    let task = submitter.get(poison).await.unwrap();
    assert!(
        matches!(task.state, ostler::State::Failed { reason: ostler_core::FailReason::NodeDeaths, .. }),
        "after {deaths} deaths it stands at {:?}",
        task.state
    );
    assert_eq!((task.node_deaths, task.failures), (10, 0));
    let counts = submitter.stats().await.unwrap().tasks;
    assert_eq!((counts.completed, counts.failed), (NEIGHBOURS as u64, 1), "{counts:?}");
    println!("quarantined after {deaths} deaths");
    submitter.drain(MAX_WAIT).await;
}

/// Reports when the handler is dropped.
struct SaysEnded;

impl Drop for SaysEnded {
    fn drop(&mut self) {
        Voice::say("ended");
    }
}

#[test]
#[ignore = "the other process of the test below"]
fn sleeper() {
    let folder = std::env::var_os(FOLDER).expect("the test says where");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let handler = move |(): (), _: Context| async move {
            let _ended = SaysEnded;
            Voice::say("begun");
            std::future::pending::<()>().await;
            Ok("sleeper".to_owned())
        };
        let builder = ostler::open(Path::new(&folder).join("jobs.db")).expect("the store opens");
        let pool =
            builder.handle("sleep", handler).lease(short_lease()).start().await.expect("the pool starts");
        let received = tokio::task::spawn_blocking(Voice::hear).await.expect("it listens");
        assert_eq!(received.as_deref(), Some("go"));
        pool.drain(Duration::ZERO).await;
        Voice::say("over");
    });
}

fn short_lease() -> ostler::LeaseTimes {
    let millis = Duration::from_millis;
    ostler::LeaseTimes { ttl: millis(1_500), heartbeat: millis(200), poll: millis(500) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_past_its_ttl_ends_its_work_at_once_and_changes_nothing() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let submitter = ostler::open(&path).unwrap().start().await.unwrap();
    let id = submitter.submit("sleep", &()).await.unwrap();
    let mut twin = Twin::start("kills::sleeper", &[(FOLDER, folder.path().as_os_str())]);
    twin.expect("begun");
    // A process stopped during its write transaction would block all others; in that case, resume and stop it again.
    loop {
        twin.signal(ostler_testkit::ProcessSignal::STOP);
        // Twice: the first submit may already have had the write lock, with the stopped process next in line.
        let twice = async {
            submitter.submit("unserved", &()).await.unwrap();
            submitter.submit("unserved", &()).await.unwrap();
        };
        if tokio::time::timeout(Duration::from_secs(2), twice).await.is_ok() {
            break;
        }
        twin.signal(ostler_testkit::ProcessSignal::CONT);
    }
    let handler = |(): (), _: Context| async { Ok("awake".to_owned()) };
    let awake =
        ostler::open(&path).unwrap().handle("sleep", handler).lease(short_lease()).start().await.unwrap();
    let done = tokio::time::timeout(MAX_WAIT, awake.wait(id)).await.expect("the other takes over").unwrap();
    assert_eq!(done.output.as_deref(), Some("\"awake\""));
    twin.signal(ostler_testkit::ProcessSignal::CONT);
    twin.expect("ended");
    twin.tell("go");
    twin.expect("over");
    assert_eq!(awake.get(id).await.unwrap(), done, "it changed nothing after that");
    awake.drain(MAX_WAIT).await;
    submitter.drain(MAX_WAIT).await;
}
