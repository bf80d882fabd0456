//! Crash test: a process killed at any point of any write loses nothing that it acknowledged.
//!
//! The workload runs in its own process and logs its calls and their replies. It is killed with SIGKILL: once at each
//! fail point of each verb, then at random times of a hot workload with many callers. Each time the store is compared
//! with the log, a second node takes over, and every task finishes once.

#![cfg(all(feature = "crash-points", feature = "conformance"))]

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    AccountChange, BreakerPolicy, CallAdmission, CallResult, CallVerdict, ErrorClass, Failure, JobId, Missed,
    OnFailed, Outcome, Overlap, Overrides, Priority, SessionId, Timestamp, Trip, Worker, WorkerState,
};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::call_breakers::BreakerUse;
use ostler_store::calls::{Claim, Claimed, Expired, Kinds, QueueChange, Retention};
use ostler_store::jobs::{JobChange, NewJob};
use ostler_store::node_commands::NodeCommand;
use ostler_store::outbox::{OutboxAnswer, OutboxFilter, Subscription};
use ostler_store::schedules::{Activity, Firing, Schedule, ScheduleChange, TaskTemplate};
use ostler_store::unique::Unique;
use ostler_store::{Clock, Store};
use ostler_testkit::history::{Log, Scribe, Stored, check, read};
use ostler_testkit::{Ids, ManualClock, Twin, Voice, scratch};
use rusqlite::Connection;

/// All verbs that write.
const VERBS: [&str; 26] = [
    "join",
    "leave",
    "report",
    "enqueue",
    "claim",
    "start",
    "finish",
    "append",
    "save_step",
    "cancel",
    "replay",
    "amend",
    "command",
    "take_outbox",
    "ack_outbox",
    "configure",
    "call_breaker",
    "change_account",
    "put_schedule",
    "change_schedule",
    "fire",
    "put_job",
    "change_job",
    "expire",
    "make_ready",
    "prune",
];
/// All fail points of a write, from its arrival at the writer to the reply.
const POINTS: [&str; 5] = ["taken", "begun", "written", "committed", "answered"];
/// On the first pass of a verb the store's caches may be empty; on the second they are filled.
const TIMES: [u32; 2] = [1, 2];
/// Kills of the hot workload.
const KILLS: u64 = 10;
/// Callers of the hot workload.
const CALLERS: u64 = 8;
/// Rounds of each caller, unless it is killed before: far more than a test waits for.
const MAX_ROUNDS: u32 = 100_000;

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const CRASH_AT: &str = "OSTLER_CRASH_AT";
const QUEUE: &str = "mail";
const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_secs(10);

fn open(folder: &Path, clock: &ManualClock) -> Sqlite {
    Sqlite::open(folder.join("ostler.db"), Arc::new(clock.clone()), Options::default())
        .expect("the store opens")
}

fn asks(session: SessionId, limit: usize) -> Claim {
    Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit }
}

fn fails(class: ErrorClass) -> Outcome {
    Outcome::Failed(Failure::new(class, "the post office is closed"))
}

// ---- every point of every verb ------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_every_point_of_every_verb_loses_nothing() {
    let mut acked = 0;
    let mut runs = 0;
    for verb in VERBS {
        for point in POINTS {
            for time in TIMES {
                let at = format!("{verb}.{point}:{time}");
                acked += kill_at(&at).await;
                runs += 1;
            }
        }
    }
    ostler_conformance::note(&format!(
        "{} points × {} verbs ({runs} kills, {acked} acknowledged calls): 0 violations",
        POINTS.len(),
        VERBS.len()
    ));
}

async fn kill_at(at: &str) -> usize {
    let folder = scratch();
    let twin = Twin::start(
        "crash::fixed_workload",
        &[(FOLDER, folder.path().as_os_str()), (CRASH_AT, OsStr::new(at))],
    );
    let status = twin.wait();
    assert_eq!(
        status.signal(),
        Some(9),
        "{at}: the workload comes to this point and is killed there, not {status}"
    );
    survives(folder.path(), at).await
}

/// Runs every verb at least twice, sequentially.
#[tokio::test]
#[ignore = "the other process of the tests above"]
async fn fixed_workload() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let clock = ManualClock::new();
    let store = open(folder, &clock);
    let (log, ids) = (Log::open(&folder.join("log")), Ids::new(1));
    let scribe = Scribe { store: &store, log: &log, ids: &ids };
    for round in 0..2 {
        one_round(scribe, &clock, round).await;
    }
}

async fn one_round(scribe: Scribe<'_>, clock: &ManualClock, round: u32) {
    let Scribe { store, ids, .. } = scribe;
    let here = scribe.join(ids.new_session("here", LONG)).await;
    let doomed = scribe.join(ids.new_session("doomed", SHORT)).await;
    let short_lived = scribe.join(ids.new_session("short-lived", LONG)).await;
    scribe.report(here, workers(ids, clock.now())).await;
    store.command(here, NodeCommand::Drain).await.expect("order answers");
    scribe.limit(QUEUE, 1_000).await;
    let changes = vec![
        QueueChange::KeyConcurrency(Some(2)),
        QueueChange::Subscribe(Subscription { name: "callbacks".to_owned(), wants: OutboxFilter::ALL }),
    ];
    store.configure(QUEUE, changes).await.expect("configure answers");

    // Plain tasks, some with a shared key, some scheduled for later, and one that will be overdue.
    let plain = scribe.enqueue(ids.new_tasks(12, QUEUE, "send")).await;
    let mut special = ids.new_tasks(6, QUEUE, "sort");
    special.iter_mut().take(3).for_each(|task| task.limit_key = Some("acme".to_owned()));
    special.iter_mut().skip(3).for_each(|task| task.run_at = Some(clock.now().after(Duration::from_secs(5))));
    special[5].not_after = Some(clock.now().after(Duration::from_secs(6)));
    special[1].after = vec![plain[0], plain[11]];
    special[4].after = vec![special[1].id];
    special.iter_mut().for_each(|task| task.on_failed = OnFailed::Run);
    special[0].unique = Some(Unique::new(format!("letter {round}")));
    scribe.enqueue(special).await;

    scheduled(scribe, clock.now()).await;
    counted(scribe).await;
    let taken = scribe.claim(asks(doomed, 3)).await;
    scribe.start(taken[0].lease.as_ref()).await;
    scribe.claim(asks(short_lived, 2)).await;
    scribe.leave(short_lived).await;

    let mut held = scribe.claim(asks(here, 8)).await.into_iter();
    let mut next = || held.next().expect("enough tasks are ready").lease;
    let lease = next();
    let done = lease.task();
    scribe.start(lease.as_ref()).await;
    scribe.append(lease.as_ref(), 3).await;
    scribe.save_step(lease.as_ref(), "fetched").await;
    scribe.save_step(lease.as_ref(), "sorted").await;
    scribe.append(lease.as_ref(), 1).await;
    scribe.finish(lease, Outcome::Success).await;
    let lease = next();
    let dead = lease.task();
    scribe.start(lease.as_ref()).await;
    scribe.finish(lease, fails(ErrorClass::Permanent)).await;
    scribe.finish(next(), fails(ErrorClass::Transient)).await;
    scribe.finish(next(), Outcome::HandedBack).await;
    let marked = next();
    scribe.cancel(marked.task()).await;
    scribe.finish(marked, Outcome::Cancelled).await;
    scribe.cancel(next().task()).await;
    scribe.cancel(plain[11]).await;
    let once_more = Overrides { attempts: Some(9), ..Overrides::NONE };
    store.amend(plain[10], once_more).await.expect("amend answers");
    scribe.replay(dead).await;
    scribe.replay(plain[11]).await;

    clock.advance(SHORT + Duration::from_secs(1));
    let expired = scribe.expire(100).await;
    assert_eq!(expired.sessions, [doomed], "only the one that is overdue");
    let ready = store.make_ready(100).await.expect("make_ready answers");
    assert!(ready.due > 0 && ready.expired == 1, "{ready:?}");
    for claimed in scribe.claim(asks(here, 2)).await {
        scribe.complete(claimed.lease).await;
    }
    match store.take_outbox(here, QUEUE, "callbacks", 3).await.expect("hear answers") {
        OutboxAnswer::Entries(entries) => {
            let deliveries = entries.iter().map(|entry| entry.number.into()).collect();
            store.ack_outbox(here, deliveries).await.expect("told answers");
        }
        OutboxAnswer::SessionEnded => panic!("the session is alive"),
    }
    scribe.prune(vec![done]).await;
    scribe.prune_old(Retention::default()).await;
    scribe.leave(here).await;
}

/// A breaker counts two calls; an account is changed twice; a schedule is created, fired, paused and dropped.
async fn scheduled(scribe: Scribe<'_>, now: Timestamp) {
    let Scribe { store, ids, .. } = scribe;
    let policy = BreakerPolicy { trip: Trip::Consecutive(5), reset: LONG };
    let failed = CallResult { admission: CallAdmission::Usual, verdict: CallVerdict::Failure };
    for _ in 0..2 {
        let counted = store.call_breaker("search", policy, BreakerUse::Report(failed)).await;
        counted.expect("call_breaker answers");
    }
    for change in [AccountChange::Cap(Some(8)), AccountChange::Cap(None)] {
        store.change_account("claude", change).await.expect("change_account answers");
    }
    let (queue, kind, payload) = (QUEUE.to_owned(), "sweep".to_owned(), "{}".to_owned());
    let task = TaskTemplate { queue, kind, payload, priority: Priority::NORMAL, overrides: Overrides::NONE };
    let (name, spec) = ("nightly".to_owned(), "0 3 * * *".to_owned());
    let (overlap, missed, next_at) = (Overlap::Queue, Missed::One, Some(now));
    let schedule = Schedule { name, spec, overlap, missed, task, next_at };
    store.put_schedule(schedule.clone()).await.expect("put_schedule answers");
    let task = Some(ids.new_task(QUEUE, "sweep"));
    let next = Some(now.after(LONG));
    scribe.fire(Firing { schedule: schedule.name.clone(), expected: now, next, task }).await;
    store
        .change_schedule(&schedule.name, ScheduleChange::Set(Activity::Paused))
        .await
        .expect("change_schedule answers");
    store.change_schedule(&schedule.name, ScheduleChange::Remove).await.expect("change_schedule answers");
}

/// A job is created and cancelled.
async fn counted(scribe: Scribe<'_>) {
    let Scribe { store, ids, .. } = scribe;
    let id = JobId(ids.session().0);
    let (name, fingerprint, spec) = ("letters".to_owned(), "f".to_owned(), "{}".to_owned());
    store.put_job(NewJob { id, name, fingerprint, spec, items: 1 }).await.expect("put_job answers");
    store.change_job(id, JobChange::Cancel).await.expect("change_job answers");
}

fn workers(ids: &Ids, now: Timestamp) -> Vec<Worker> {
    let worker = |_| Worker {
        id: ids.worker(),
        name: "shell-1".to_owned(),
        pool: "mail".to_owned(),
        pid: None,
        state: WorkerState::Idle,
        memory_bytes: Some(1 << 20),
        started_at: now,
        done: 0,
        failed: 0,
        task: None,
    };
    (0..2).map(worker).collect()
}

// ---- random times of a hot workload -------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_random_moments_of_a_hot_workload_lose_nothing() {
    let seeds = Ids::new(4_242);
    let mut acked = 0;
    for kill in 0..KILLS {
        let folder = scratch();
        let rounds = 1 + seeds.below(60);
        let mut twin = Twin::start("crash::hot_workload", &[(FOLDER, folder.path().as_os_str())]);
        for _ in 0..rounds {
            twin.expect("a round is done");
        }
        twin.kill();
        acked += survives(folder.path(), &format!("kill {kill} after {rounds} rounds")).await;
    }
    ostler_conformance::note(&format!(
        "{KILLS} kills at random moments ({acked} acknowledged calls): 0 violations"
    ));
}

/// Many concurrent callers, until the process is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of the tests above"]
async fn hot_workload() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder).to_owned();
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(open(&folder, &clock));
    let log = Arc::new(Log::open(&folder.join("log")));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, log) = (Arc::clone(&store), Arc::clone(&log));
            tokio::spawn(async move {
                let ids = Ids::new(100 + caller);
                let scribe = Scribe { store: &*store, log: &log, ids: &ids };
                let session = scribe.join(ids.new_session("hot", LONG)).await;
                for _ in 0..MAX_ROUNDS {
                    hot_round(scribe, session).await;
                    Voice::say("a round is done");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("the caller ends well");
    }
}

async fn hot_round(scribe: Scribe<'_>, session: SessionId) {
    let ids = scribe.ids;
    let mine = scribe.enqueue(ids.new_tasks(4, QUEUE, "send")).await;
    scribe.cancel(mine[3]).await;
    for Claimed { lease, .. } in scribe.claim(asks(session, 4)).await {
        match ids.below(6) {
            0 => {
                scribe.finish(lease, Outcome::HandedBack).await;
            }
            1 => {
                let task = lease.task();
                scribe.start(lease.as_ref()).await;
                scribe.finish(lease, fails(ErrorClass::Permanent)).await;
                scribe.replay(task).await;
            }
            2 => {
                let task = lease.task();
                scribe.finish(lease, Outcome::Success).await;
                scribe.prune(vec![task]).await;
            }
            _ => {
                scribe.start(lease.as_ref()).await;
                scribe.append(lease.as_ref(), 2).await;
                scribe.save_step(lease.as_ref(), "fetched").await;
                scribe.finish(lease, Outcome::Success).await;
            }
        }
    }
}

// ---- afterwards ---------------------------------------------------------------------------------------

/// The store left by the dead process is intact, agrees with its log, and all its tasks can be finished.
async fn survives(folder: &Path, what: &str) -> usize {
    let clock = ManualClock::new();
    let store = open(folder, &clock);
    let path = folder.join("log");
    let acked = agrees(&store, &path, what).await;

    // The nodes' deaths are detected at once: their locks are free, and no time has passed.
    let before = store.survey().await.expect("survey answers").nodes;
    let ids = Ids::new(99);
    let log = Log::open(&path);
    let scribe = Scribe { store: &store, log: &log, ids: &ids };
    let second = scribe.join(ids.new_session("second", LONG)).await;
    let Expired { sessions, more, .. } = scribe.expire(10_000).await;
    let dead: Vec<SessionId> = before.iter().map(|node| node.session).collect();
    assert_eq!((sessions, more), (dead, false), "{what}: the dead nodes, and no other");

    // Tasks that back off or wait for their time.
    clock.advance(Duration::from_secs(1_800));
    store.make_ready(10_000).await.expect("make_ready answers");
    loop {
        let claimed = scribe.claim(asks(second, 100)).await;
        if claimed.is_empty() {
            break;
        }
        for Claimed { lease, .. } in claimed {
            scribe.start(lease.as_ref()).await;
            scribe.finish(lease, Outcome::Success).await;
        }
    }
    agrees(&store, &path, what).await;
    let left = Stored::read(&store).await.expect("the store reads");
    for stored in &left.tasks {
        let task = &stored.detail.task;
        assert!(
            task.state.name().is_terminal(),
            "{what}: {} is not brought to its end: {:?}",
            task.id,
            task.state
        );
    }
    let unended: u64 = left
        .survey
        .lanes
        .iter()
        .map(|lane| lane.counts.queued + lane.counts.claimed + lane.counts.running)
        .sum();
    assert_eq!(unended, 0, "{what}: the counts say so too");
    scribe.leave(second).await;
    drop(store);

    let conn = Connection::open(folder.join("ostler.db")).expect("the file opens");
    let verdict: String =
        conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("the file reads");
    assert_eq!(verdict, "ok", "{what}");
    acked
}

async fn agrees(store: &dyn Store, log: &Path, what: &str) -> usize {
    let stored = Stored::read(store).await.expect("the store reads");
    // A process killed before its first call has no log.
    let lines = if log.exists() { read(log) } else { Vec::new() };
    let report = check(&lines, &stored);
    assert_eq!(report.violations, [], "{what}: {report:?}");
    report.acked
}
