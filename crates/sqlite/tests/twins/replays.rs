//! Replays of dead letters: of a hundred concurrent replays from several processes one counts, and a process that is
//! killed right after one leaves a task that runs once.

#![cfg(feature = "crash-points")]

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, Outcome, SessionId, StateName, TaskId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Fenced, Finished, Kinds, Replay, ReplayAnswer, Report, Start,
};
use ostler_store::views::TaskRef;
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Twin, Voice, scratch};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const TASK: &str = "OSTLER_TEST_TASK";
const CRASH_AT: &str = "OSTLER_CRASH_AT";
const QUEUE: &str = "mail";
const TTL: Duration = Duration::from_secs(60);
const PROCESSES: usize = 4;
/// Replays per process, each on its own thread.
const EACH: usize = 25;

fn open(folder: &Path) -> Sqlite {
    let path = folder.join("ostler.db");
    Sqlite::open(path, Arc::new(SystemClock), Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

async fn claim(store: &dyn Store, session: SessionId) -> Vec<Claimed> {
    let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: 10 };
    match store.claim(claim).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        ClaimAnswer::SessionEnded => panic!("the session is over, and should not be"),
    }
}

/// Runs one attempt of one task to the given outcome.
async fn run(store: &dyn Store, ids: &Ids, claimed: Claimed, outcome: Outcome) -> TaskId {
    let (lease, worker) = (claimed.lease, ids.worker());
    let id = lease.task();
    let started = store.start(vec![Start { lease: lease.as_ref(), worker }]).await;
    assert_eq!(started, Ok(vec![Fenced::Recorded]));
    let report = Report { lease, ran: None, outcome, output: None, reading: None };
    let finished = store.finish(vec![report]).await.expect("finish answers");
    assert!(matches!(finished.as_slice(), [Finished::Recorded(_)]), "{finished:?}");
    id
}

/// A session and a dead letter.
async fn dead_letter(store: &dyn Store, ids: &Ids) -> (SessionId, TaskId) {
    let node = ids.new_session("node", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    store.enqueue(vec![ids.new_task(QUEUE, "send")]).await.expect("enqueue answers");
    let claimed = claim(store, session).await.pop().expect("it is ready");
    let failure = Failure::new(ErrorClass::Permanent, "the address is wrong");
    (session, run(store, ids, claimed, Outcome::Failed(failure)).await)
}

/// Asserts that the task can be claimed once, runs, and completes.
async fn runs_once(store: &dyn Store, ids: &Ids, session: SessionId, id: TaskId) {
    let mut claimed = claim(store, session).await;
    assert_eq!(claimed.len(), 1, "one replay is one run");
    assert_eq!(run(store, ids, claimed.remove(0), Outcome::Success).await, id);
    assert_eq!(claim(store, session).await.len(), 0);
    let found = store.show(TaskRef::Id(id)).await.expect("show answers").expect("it is there");
    assert_eq!((found.task.state.name(), found.task.runs), (StateName::Completed, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_replays_at_once_from_several_processes_make_one_run() {
    let folder = scratch();
    let (store, ids) = (open(folder.path()), Ids::new(1));
    let (session, id) = dead_letter(&store, &ids).await;
    let name = id.to_string();
    let variables = [(FOLDER, folder.path().as_os_str()), (TASK, OsStr::new(&name))];
    let mut twins: Vec<Twin> =
        (0..PROCESSES).map(|_| Twin::start("replays::replaying", &variables)).collect();
    twins.iter_mut().for_each(|twin| twin.expect("ready"));
    twins.iter_mut().for_each(|twin| twin.tell("go"));
    let mut answers = Vec::new();
    for twin in &mut twins {
        answers.extend((0..EACH).map(|_| twin.hear()));
    }
    let requeued = answers.iter().filter(|answer| *answer == "requeued").count();
    assert_eq!((answers.len(), requeued), (PROCESSES * EACH, 1), "{answers:?}");
    runs_once(&store, &ids, session, id).await;
}

#[test]
#[ignore = "another process of the test above"]
fn replaying() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let id: TaskId = std::env::var(TASK).expect("the test says which").parse().expect("an id");
    let (store, start) = (Arc::new(open(&folder)), Arc::new(Barrier::new(EACH + 1)));
    let threads: Vec<_> = (0..EACH)
        .map(|_| {
            let (store, start) = (Arc::clone(&store), Arc::clone(&start));
            std::thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                start.wait();
                let answer = runtime.block_on(store.replay(vec![id], Replay::default()));
                match answer.expect("replay answers").as_slice() {
                    [ReplayAnswer::Requeued] => Voice::say("requeued"),
                    [ReplayAnswer::Refused(StateName::Queued)] => Voice::say("refused"),
                    other => Voice::say(&format!("{other:?}")),
                }
            })
        })
        .collect();
    Voice::say("ready");
    assert_eq!(Voice::hear().as_deref(), Some("go"));
    start.wait();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
}

/// The fail point at which the replaying process is killed, and whether the task is then queued again.
const KILLS: [(&str, bool); 5] = [
    ("replay.taken", false),
    ("replay.begun", false),
    ("replay.written", false),
    // Committed, but no wake-up was sent: killed between the replay and the wake-up.
    ("replay.committed", true),
    ("replay.answered", true),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_a_replay_and_the_wake_up_leaves_a_task_that_runs_once() {
    for (at, replayed) in KILLS {
        let folder = scratch();
        let (store, ids) = (open(folder.path()), Ids::new(1));
        let (session, id) = dead_letter(&store, &ids).await;
        let name = id.to_string();
        let variables =
            [(FOLDER, folder.path().as_os_str()), (TASK, OsStr::new(&name)), (CRASH_AT, OsStr::new(at))];
        let status = Twin::start("replays::replaying_once", &variables).wait();
        assert_eq!(status.signal(), Some(9), "{at}: it is killed there, not {status}");
        if !replayed {
            assert_eq!(claim(&store, session).await.len(), 0, "{at}: nothing was written");
            let again = store.replay(vec![id], Replay::default()).await;
            assert_eq!(again, Ok(vec![ReplayAnswer::Requeued]), "{at}: it can be replayed");
        }
        // No wake-up is needed: polling finds it.
        runs_once(&store, &ids, session, id).await;
    }
}

#[tokio::test]
#[ignore = "the other process of the test above"]
async fn replaying_once() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let id: TaskId = std::env::var(TASK).expect("the test says which").parse().expect("an id");
    let store = open(&folder);
    let _ = tokio::time::timeout(MAX_WAIT, store.replay(vec![id], Replay::default())).await;
}
