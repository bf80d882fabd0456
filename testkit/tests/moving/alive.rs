//! A store moves while a node works on it under load: no task is lost, and none is done twice.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::{Outcome, SessionId};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Finished, Kinds, QueueChange, Report};
use ostler_store::transfer::MoveStep;
use ostler_store::{ErrorKind, Lease, Store};
use ostler_testkit::history::{Answer, Call, Log, Scribe, Stored, check, read};
use ostler_testkit::{Ids, ManualClock, Twin, Voice, scratch};

use tokio::time::timeout;

use crate::fill::{LONG, QUEUE};
use crate::place::Place;

const FOLDER: &str = "OSTLER_TEST_FOLDER";
/// Concurrent callers of each sort.
const SUBMITTERS: u64 = 2;
const WORKERS: u64 = 3;
/// Rounds of a caller, unless the store moves before: far more than a test waits for.
const MAX_ROUNDS: u32 = 100_000;
/// Rounds in which a submitter submits; bounded, because all of it is read back at the end.
const SUBMITTED: u32 = 20;
/// The polling interval of a worker without a hint.
const POLL: Duration = Duration::from_millis(20);
/// Rounds of work before the move begins.
const BUSY: u64 = 4;
/// The drain timeout of the move. One task takes longer in any case.
const PATIENCE: Duration = Duration::from_millis(300);

/// When the node is killed, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Never,
    WhileItDrains,
    WhileItCopies,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lives_on_the_old_store_loses_nothing_and_does_nothing_twice() {
    moves_under_load(Killed::Never).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_while_the_store_moves_loses_nothing() {
    moves_under_load(Killed::WhileItDrains).await;
    moves_under_load(Killed::WhileItCopies).await;
}

async fn moves_under_load(killed: Killed) {
    let folder = scratch();
    let place = Place::new(folder.path());
    drop(place.old().expect("the store is made"));
    // Start the server first, so that the node does not wait for it.
    drop(place.arrival().await);
    let mut twin = Twin::start("alive::busy_node", &[(FOLDER, OsStr::new(folder.path()))]);
    twin.expect("busy");
    let twin = Mutex::new(Some(twin));
    let kill = || {
        if let Some(twin) = twin.lock().unwrap_or_else(PoisonError::into_inner).take() {
            twin.kill();
        }
    };
    let handed_back = Mutex::new(0);
    let count = |step: MoveStep| {
        if let MoveStep::Frozen { handed_back: count } = step {
            *handed_back.lock().expect("no holder panicked") = count;
        }
        let drains = matches!(step, MoveStep::Draining { .. }) && killed == Killed::WhileItDrains;
        let copies = matches!(step, MoveStep::Copied { .. }) && killed == Killed::WhileItCopies;
        if drains || copies {
            kill();
        }
    };
    let moved = place.carry_told(PATIENCE, &count).await.expect("the store moves");
    assert!(!moved.tables.is_empty());
    if let Some(twin) = twin.into_inner().expect("no holder panicked") {
        // The node receives the new address, keeps its lease, and is refused by the fence.
        twin.succeed();
        assert!(*handed_back.lock().expect("no holder panicked") >= 1, "what took too long was handed back");
    }

    let new = place.new_store().await.expect("the new store opens");
    let path = folder.path().join("log");
    let acked = agrees(&new, &path, killed).await;
    assert!(acked > 0);
    // Every accepted task finishes in the new store.
    let (ids, log) = (Ids::new(50), Log::open(&path));
    let scribe = Scribe { store: &new, log: &log, ids: &ids };
    let session = scribe.join(ids.new_session("there", LONG)).await;
    loop {
        let claimed = scribe.claim(asks(session)).await;
        if claimed.is_empty() {
            break;
        }
        for Claimed { lease, .. } in claimed {
            scribe.start(lease.as_ref()).await;
            scribe.finish(lease, Outcome::Success).await;
        }
    }
    agrees(&new, &path, killed).await;
    let left = Stored::read(&new).await.expect("the store reads");
    for stored in &left.tasks {
        let task = &stored.detail.task;
        assert!(task.state.name().is_terminal(), "{killed:?}: {} is not brought to its end", task.id);
    }
}

async fn agrees(store: &dyn Store, log: &Path, killed: Killed) -> usize {
    let stored = Stored::read(store).await.expect("the store reads");
    let report = check(&read(log), &stored);
    assert_eq!(report.violations, [], "{killed:?}: {report:?}");
    report.acked
}

fn asks(session: SessionId) -> Claim {
    Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: 4 }
}

/// Many concurrent callers, until the store has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of the tests above"]
async fn busy_node() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let place = Place::with(folder, "unused", ManualClock::new());
    let store: Arc<dyn Store> = Arc::new(place.old().expect("the store opens"));
    let log = Arc::new(Log::open(&folder.join("log")));
    let gone = Arc::new(AtomicBool::new(false));
    let submitters = (0..SUBMITTERS).map(|caller| {
        let (store, log, gone) = (Arc::clone(&store), Arc::clone(&log), Arc::clone(&gone));
        tokio::spawn(async move { submit(&*store, &log, &Ids::new(10 + caller), &gone).await })
    });
    let workers = (0..WORKERS).map(|caller| {
        let (store, log) = (Arc::clone(&store), Arc::clone(&log));
        tokio::spawn(async move { work(&*store, &log, &Ids::new(20 + caller), Pace::of(caller)).await })
    });
    for caller in submitters.chain(workers).collect::<Vec<_>>() {
        caller.await.expect("the caller ends well");
    }
    assert!(gone.load(Ordering::SeqCst), "the submitters were told");
    // Stay until the test is done with this process.
    let _ = Voice::hear();
}

/// Submits for some rounds, and then makes other calls until it is refused because the store moves.
async fn submit(store: &dyn Store, log: &Log, ids: &Ids, gone: &AtomicBool) {
    for round in 0..MAX_ROUNDS {
        let error = if round < SUBMITTED {
            let tasks = ids.new_tasks(4, QUEUE, "send");
            let asked = log.ask(&Call::Enqueue(tasks.iter().map(|task| task.id).collect()));
            let Err(error) = store.enqueue(tasks).await else {
                asked.answered(Answer::Enqueued);
                continue;
            };
            error
        } else {
            let Err(error) = store.configure(QUEUE, vec![QueueChange::Resume]).await else {
                tokio::time::sleep(POLL).await;
                continue;
            };
            error
        };
        assert!(matches!(error.kind(), ErrorKind::Moving | ErrorKind::Moved), "{error}");
        assert!(error.to_string().contains("postgres://there/"), "{error}");
        return gone.store(true, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Quick,
    /// Holds one task for as long as it lives.
    Slow,
}

impl Pace {
    fn of(worker: u64) -> Self {
        if worker == 0 { Self::Slow } else { Self::Quick }
    }
}

/// Works until its session ends.
async fn work(store: &dyn Store, log: &Log, ids: &Ids, pace: Pace) {
    let slow = pace == Pace::Slow;
    let node = ids.new_session("busy", LONG);
    let session = node.id;
    store.join(node).await.expect("join answers");
    let scribe = Scribe { store, log, ids };
    let mut kept: Option<Lease> = None;
    let mut wakeups = store.wakeups();
    for round in 0..MAX_ROUNDS {
        wakeups.arm();
        let asked = log.ask(&Call::Claim);
        let tasks = match store.claim(asks(session)).await.expect("claim answers") {
            ClaimAnswer::Tasks { tasks, .. } => tasks,
            ClaimAnswer::SessionEnded => break,
        };
        let leases = tasks.iter().map(|claimed| claimed.lease.as_ref());
        asked.answered(Answer::Claimed(leases.map(|lease| (lease.task, lease.token)).collect()));
        if tasks.is_empty() {
            let _ = timeout(POLL, wakeups.wait()).await;
        }
        for Claimed { lease, .. } in tasks {
            scribe.start(lease.as_ref()).await;
            if slow && kept.is_none() {
                kept = Some(lease);
                continue;
            }
            scribe.save_step(lease.as_ref(), "fetched").await;
            scribe.append(lease.as_ref(), 1).await;
            scribe.finish(lease, Outcome::Success).await;
        }
        if slow && u64::from(round) == BUSY {
            assert!(kept.is_some(), "there was work");
            Voice::say("busy");
        }
    }
    if let Some(lease) = kept {
        let report = Report { lease, ran: None, outcome: Outcome::Success, output: None, reading: None };
        let late = store.finish(vec![report]).await.expect("finish answers");
        assert_eq!(late, [Finished::LeaseLost], "what was handed back belongs to another node");
    }
}
