//! Several processes on one file: they take turns, wake each other, and detect each other's deaths.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{EventBody, Outcome, SessionId, StateName, TaskId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{
    Appended, Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Finished, Kinds, NewStep, Renewed, Report,
    Saved, Start,
};
use ostler_store::views::Counts;
use ostler_store::{Clock as _, Lease, MAX_BATCH, MAX_CLAIM, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, TempStore, Twin, Voice, scratch};
use rusqlite::Connection;
use rustix::process::Signal;

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const SEED: &str = "OSTLER_TEST_SEED";
const QUEUE: &str = "mail";
const TTL: Duration = Duration::from_secs(60);

fn open(folder: &Path) -> Sqlite {
    let path = folder.join("ostler.db");
    Sqlite::open(path, Arc::new(SystemClock), Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The folder that this process was given, if it is a twin.
fn folder() -> Option<std::path::PathBuf> {
    std::env::var_os(FOLDER).map(Into::into)
}

fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

fn twin(name: &str, folder: &Path, seed: u64) -> Twin {
    Twin::start(
        &format!("processes::{name}"),
        &[(FOLDER, folder.as_os_str()), (SEED, OsStr::new(&seed.to_string()))],
    )
}

async fn join(store: &dyn Store, ids: &Ids, ttl: Duration) -> SessionId {
    let node = ids.new_session("node", ttl);
    let id = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    id
}

async fn claim(store: &dyn Store, session: SessionId, limit: usize) -> Vec<Claimed> {
    let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        ClaimAnswer::SessionEnded => panic!("the session is over, and should not be"),
    }
}

const fn success(lease: Lease) -> Report {
    Report { lease, ran: None, outcome: Outcome::Success, output: None, reading: None }
}

async fn counts(store: &dyn Store) -> Counts {
    let mut sum = Counts::default();
    for lane in store.survey().await.expect("survey answers").lanes {
        let mut counts = lane.counts;
        StateName::ALL.into_iter().for_each(|state| *sum.of(state) += *counts.of(state));
    }
    sum
}

fn is_whole(path: &Path) {
    let conn = Connection::open(path).expect("the file opens");
    let verdict: String =
        conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("the file reads");
    assert_eq!(verdict, "ok");
}

// ---- working together ---------------------------------------------------------------------------------

/// Processes that work on one queue.
const NODES: u64 = 4;
/// Tasks enqueued by each process.
const TASKS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_complete_every_task_once() {
    let folder = scratch();
    let mut nodes: Vec<Twin> = (1..=NODES).map(|seed| twin("working_node", folder.path(), seed)).collect();
    nodes.iter_mut().for_each(|node| node.expect("ready"));
    nodes.iter_mut().for_each(|node| node.tell("go"));
    nodes.into_iter().for_each(Twin::succeed);

    let all = NODES * TASKS as u64;
    let store = open(folder.path());
    assert_eq!(counts(&store).await, Counts { completed: all, ..Counts::default() });
    drop(store);
    let effects = std::fs::read_to_string(folder.path().join("effects")).expect("the effects");
    let mut times: HashMap<&str, usize> = HashMap::new();
    effects.lines().for_each(|task| *times.entry(task).or_default() += 1);
    assert_eq!(times.len() as u64, all, "every task had its effect");
    assert!(times.values().all(|count| *count == 1), "and had it once");
    is_whole(&folder.path().join("ostler.db"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another process of the test above"]
async fn working_node() {
    let Some(folder) = folder() else { return };
    let effects =
        OpenOptions::new().create(true).append(true).open(folder.join("effects")).expect("the effects");
    let store = open(&folder);
    let ids = Ids::new(seed());
    let session = join(&store, &ids, TTL).await;
    let mut wakeups = store.wakeups();
    Voice::say("ready");
    assert_eq!(Voice::hear().as_deref(), Some("go"));
    for tasks in ids.new_tasks(TASKS, QUEUE, "send").chunks(7) {
        store.enqueue(tasks.to_vec()).await.expect("enqueue answers");
    }
    loop {
        wakeups.arm();
        let claimed = claim(&store, session, 5).await;
        let held: Vec<_> = claimed.iter().map(|claimed| claimed.lease.as_ref()).collect();
        let renewed = store.renew(session, &held).await.expect("renew answers");
        assert_eq!(
            renewed,
            Renewed::Held { cancelled: vec![], lost: vec![], unnamed: vec![], commands: vec![] }
        );
        if claimed.is_empty() {
            let Counts { queued, claimed, running, completed, .. } = counts(&store).await;
            if queued + claimed + running == 0 && completed == NODES * TASKS as u64 {
                break;
            }
            // Finishes of other processes send no signal, so poll for the end.
            let _ = tokio::time::timeout(Duration::from_millis(20), wakeups.wait()).await;
        }
        for Claimed { lease, .. } in claimed {
            work(&store, &ids, lease, &effects).await;
        }
    }
    assert_eq!(store.leave(session).await, Ok(Fenced::Recorded));
}

async fn work(store: &dyn Store, ids: &Ids, lease: Lease, mut effects: &std::fs::File) {
    let name = lease.as_ref();
    let start = Start { lease: name, worker: ids.worker() };
    assert_eq!(store.start(vec![start]).await, Ok(vec![Fenced::Recorded]));
    let event = EventBody::line("a line");
    assert!(matches!(store.append(name, vec![event]).await, Ok(Appended::Recorded { .. })));
    let step = NewStep { name: "fetched".to_owned(), value: "1".to_owned() };
    assert!(matches!(store.save_step(name, step).await, Ok(Saved::Recorded | Saved::AlreadySaved)));
    if ids.below(4) == 0 {
        let finished = store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
        assert_eq!(finished, [Finished::Recorded(StateName::Queued)]);
        return;
    }
    effects.write_all(format!("{}\n", name.task).as_bytes()).expect("the effect is written");
    let finished = store.finish(vec![success(lease)]).await.expect("finish answers");
    assert_eq!(finished, [Finished::Recorded(StateName::Completed)]);
}

// ---- creating the file concurrently -------------------------------------------------------------------

/// Files that two processes create concurrently.
const FILES: usize = 20;

#[test]
fn two_processes_make_the_same_file_at_once() {
    let folder = scratch();
    let mut makers: Vec<Twin> = (1..=2).map(|seed| twin("maker", folder.path(), seed)).collect();
    makers.iter_mut().for_each(|maker| maker.expect("ready"));
    for file in 0..FILES {
        let place = folder.path().join(file.to_string());
        std::fs::create_dir(&place).expect("a folder");
        makers.iter_mut().for_each(|maker| maker.tell(&place.display().to_string()));
        makers.iter_mut().for_each(|maker| maker.expect("made"));
    }
    makers.into_iter().for_each(Twin::succeed);
    (0..FILES).for_each(|file| is_whole(&folder.path().join(file.to_string()).join("ostler.db")));
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn maker() {
    if folder().is_none() {
        return;
    }
    let ids = Ids::new(seed());
    Voice::say("ready");
    while let Some(place) = Voice::hear() {
        let store = open(Path::new(&place));
        store.enqueue(ids.new_tasks(1, QUEUE, "send")).await.expect("enqueue answers");
        Voice::say("made");
    }
}

// ---- deaths -------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_a_process_is_known_at_once() {
    let here = TempStore::real();
    let store = here.store();
    store.enqueue(Ids::new(1).new_tasks(3, QUEUE, "send")).await.expect("enqueue answers");
    let mut node = twin("holding_node", here.folder(), 2);
    let session: SessionId = node.hear().parse().expect("it says its session");
    let expired = store.expire(100).await.expect("expire answers");
    assert_eq!((expired.sessions, expired.tasks), (vec![], 0), "it is alive");
    node.kill();
    // The TTL is a minute, but the death is detected without waiting for it.
    let expired = store.expire(100).await.expect("expire answers");
    assert_eq!((expired.sessions, expired.tasks, expired.more), (vec![session], 3, false));
    assert_eq!(counts(&*store).await, Counts { queued: 3, ..Counts::default() });
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn holding_node() {
    let Some(folder) = folder() else { return };
    let store = open(&folder);
    let session = join(&store, &Ids::new(seed()), TTL).await;
    assert_eq!(claim(&store, session, 10).await.len(), 3);
    Voice::say(&session.to_string());
    let _ = Voice::hear();
}

/// The lease TTL of the stopped process: long enough for it to claim its tasks, even on a busy machine.
const SHORT_TTL: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_past_its_ttl_has_lost_everything() {
    let here = TempStore::real();
    let store = here.store();
    let ids = Ids::new(1);
    store.enqueue(ids.new_tasks(3, QUEUE, "send")).await.expect("enqueue answers");
    let mut node = twin("stopped_node", here.folder(), 2);
    let session: SessionId = node.hear().parse().expect("it says its session");
    node.signal(Signal::STOP);
    let ended = tokio::time::timeout(MAX_WAIT, async {
        loop {
            let expired = store.expire(100).await.expect("expire answers");
            if !expired.sessions.is_empty() {
                break expired;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let expired = ended.await.expect("its time is over, though it holds its lock");
    assert_eq!((expired.sessions, expired.tasks), (vec![session], 2));
    // One of its tasks now belongs to another session, the other one waits.
    let other = join(&*store, &ids, TTL).await;
    let mut taken = claim(&*store, other, 1).await;
    node.signal(Signal::CONT);
    node.tell("go");
    node.expect("renew: Ok(Ended)");
    node.expect("finish: [LeaseLost, LeaseLost]");
    node.expect("start: Ok([Lost, Lost])");
    node.expect("append: Ok(LeaseLost)");
    node.expect("save_step: Ok(LeaseLost)");
    node.expect("claim: Ok(SessionEnded)");
    node.expect("report: Ok(Lost)");
    node.expect("leave: Ok(Lost)");
    node.succeed();
    let lease = taken.remove(0).lease;
    let finished = store.finish(vec![success(lease)]).await.expect("finish answers");
    assert_eq!(finished, [Finished::Recorded(StateName::Completed)], "the new owner is not disturbed");
    assert_eq!(counts(&*store).await, Counts { queued: 2, completed: 1, ..Counts::default() });
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn stopped_node() {
    let Some(folder) = folder() else { return };
    let store = open(&folder);
    let ids = Ids::new(seed());
    let session = join(&store, &ids, SHORT_TTL).await;
    let claimed = claim(&store, session, 2).await;
    let held: Vec<_> = claimed.iter().map(|claimed| claimed.lease.as_ref()).collect();
    Voice::say(&session.to_string());
    assert_eq!(Voice::hear().as_deref(), Some("go"));
    Voice::say(&format!("renew: {:?}", store.renew(session, &held).await));
    let reports = claimed.into_iter().map(|claimed| success(claimed.lease)).collect();
    Voice::say(&format!("finish: {:?}", store.finish(reports).await.expect("finish answers")));
    let starts = held.iter().map(|lease| Start { lease: *lease, worker: ids.worker() }).collect();
    Voice::say(&format!("start: {:?}", store.start(starts).await));
    let event = EventBody::line("a line");
    Voice::say(&format!("append: {:?}", store.append(held[0], vec![event]).await));
    let step = NewStep { name: "fetched".to_owned(), value: "1".to_owned() };
    Voice::say(&format!("save_step: {:?}", store.save_step(held[1], step).await));
    let asks = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: 1 };
    Voice::say(&format!("claim: {:?}", store.claim(asks).await));
    Voice::say(&format!("report: {:?}", store.report(session, vec![], Vec::new()).await));
    Voice::say(&format!("leave: {:?}", store.leave(session).await));
}

// ---- wake-ups -----------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_reaches_another_process() {
    let here = TempStore::real();
    let store = here.store();
    let ids = Ids::new(1);
    // A first signal, so that the sender has listed the sockets before the waiter exists.
    store.enqueue(ids.new_tasks(1, QUEUE, "send")).await.expect("enqueue answers");
    let mut waiter = twin("waiter", here.folder(), 2);
    for _ in 0..10 {
        waiter.expect("armed");
        store.enqueue(ids.new_tasks(1, QUEUE, "send")).await.expect("enqueue answers");
        waiter.expect("woken");
        waiter.tell("again");
    }
    waiter.kill();
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn waiter() {
    let Some(folder) = folder() else { return };
    let store = open(&folder);
    let mut wakeups = store.wakeups();
    loop {
        wakeups.arm();
        Voice::say("armed");
        // No timeout here: it is woken, or waits forever.
        wakeups.wait().await;
        Voice::say("woken");
        let _ = Voice::hear();
    }
}

/// The folder's modification time may not reveal a new listener: file system clocks tick slowly.
#[tokio::test]
async fn a_listener_that_came_in_the_same_tick_as_the_last_look_is_told() {
    let (here, _clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let ids = Ids::new(1);
    let folder = here.folder().join("ostler.db.nodes");
    store.enqueue(ids.new_tasks(1, QUEUE, "send")).await.expect("enqueue answers");
    let before = std::fs::metadata(&folder).and_then(|folder| folder.modified()).expect("its time of change");
    let mut wakeups = other.wakeups();
    std::fs::File::open(&folder).and_then(|folder| folder.set_modified(before)).expect("its time of change");
    wakeups.arm();
    store.enqueue(ids.new_tasks(1, QUEUE, "send")).await.expect("enqueue answers");
    tokio::time::timeout(MAX_WAIT, wakeups.wait()).await.expect("the wake-up arrives");
}

#[tokio::test]
async fn a_clock_that_is_set_neither_ends_a_session_nor_prolongs_it() {
    let (here, clock) = TempStore::manual();
    let (store, other) = (here.store(), here.second());
    let session = join(&*store, &Ids::new(1), TTL).await;
    let then = clock.now();
    clock.step_wall(then.after(TTL * 1_000));
    let sessions = other.expire(100).await.expect("expire answers").sessions;
    assert_eq!(sessions, [], "it was set forward, and no time has passed");
    clock.advance(TTL + Duration::from_millis(1));
    clock.step_wall(then);
    let sessions = other.expire(100).await.expect("expire answers").sessions;
    assert_eq!(sessions, [session], "it was set back, and the time is over");
}

#[tokio::test]
async fn ten_thousand_tasks_of_one_call_are_all_there_for_another_process_in_their_order() {
    let here = TempStore::real();
    let (store, other) = (here.store(), here.second());
    let ids = Ids::new(1);
    let tasks = ids.new_tasks(MAX_BATCH, QUEUE, "send");
    let expected: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let created: Vec<Enqueued> = expected.iter().map(|id| Enqueued::Created(*id)).collect();
    assert!(store.enqueue(tasks).await == Ok(created), "each is created, and answered in its place");
    let session = join(&*other, &ids, TTL).await;
    let mut claimed = Vec::new();
    while claimed.len() < MAX_BATCH {
        let some = claim(&*other, session, MAX_CLAIM).await;
        assert!(!some.is_empty(), "only {} are there", claimed.len());
        claimed.extend(some.iter().map(|task| task.lease.task()));
    }
    assert!(claimed == expected, "they are claimed in the order in which they were given");
}

// ---- next to a hot writer -----------------------------------------------------------------------------

/// The limit for a single commit next to another process that never stops writing. The benchmark measures it; here it
/// only must not starve.
const MAX_TURN: Duration = Duration::from_secs(2);

/// Rounds of each caller of the hot writer, unless it is killed before: far more than the test waits for.
const MAX_ROUNDS: u32 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_commit_gets_through_beside_a_hot_writer() {
    let here = TempStore::real();
    let store = here.store();
    let ids = Ids::new(1);
    let mut writer = twin("hot_writer", here.folder(), 2);
    writer.expect("hot");
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let begun = Instant::now();
        store.enqueue(ids.new_tasks(1, "one", "send")).await.expect("enqueue answers");
        worst = worst.max(begun.elapsed());
    }
    assert!(worst < MAX_TURN, "a commit of one row took {worst:?}");
    writer.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another process of the test above"]
async fn hot_writer() {
    let Some(folder) = folder() else { return };
    let store = Arc::new(open(&folder));
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let ids = Ids::new(100 + caller);
                for round in 0..MAX_ROUNDS {
                    store.enqueue(ids.new_tasks(50, QUEUE, "send")).await.expect("enqueue answers");
                    if round == 1 && caller == 0 {
                        Voice::say("hot");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("the caller ends well");
    }
}
