//! Fills a store with data of every sort.

use std::time::Duration;

use ostler_conformance::one_of_each;
use ostler_core::{
    AccountChange, BreakerPolicy, Budget, CallAdmission, CallResult, CallVerdict, Cost, ErrorClass,
    EventBody, Failure, JobId, Missed, OnFailed, Outcome, Overlap, Overrides, Pass, Priority, Rate,
    SessionId, TaskId, Trip, Worker, WorkerState,
};
use ostler_store::call_breakers::BreakerUse;
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Kinds, NewStep, NewTask, Prune, QueueChange, Report, Start,
};
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::jobs::{NewJob, queue_of};
use ostler_store::outbox::{OutboxFilter, Subscription};
use ostler_store::schedules::{Firing, Schedule, TaskTemplate};
use ostler_store::unique::Unique;
use ostler_store::{Clock, Lease, Store};
use ostler_testkit::{Ids, ManualClock};

pub(crate) const QUEUE: &str = "mail";
pub(crate) const LONG: Duration = Duration::from_secs(3_600);
/// More rows than one batch of the move.
const MANY: usize = 25;

/// Tasks of a filled store that tests refer to.
pub(crate) struct Filled {
    /// Failed permanently, with steps and events.
    pub(crate) dead: TaskId,
    /// Waits for a retry.
    pub(crate) retried: TaskId,
    /// Unfinished, with a unique key.
    pub(crate) unique: TaskId,
    /// Waits for `awaited`.
    pub(crate) dependent: TaskId,
    pub(crate) awaited: TaskId,
    /// Three tasks with one limit key, of which one may run at once.
    pub(crate) keyed: Vec<TaskId>,
    /// Was running at the time of the move.
    pub(crate) running: TaskId,
    pub(crate) session: SessionId,
}

fn worker(ids: &Ids, clock: &ManualClock) -> Worker {
    Worker {
        id: ids.worker(),
        name: "docs-1".to_owned(),
        pool: QUEUE.to_owned(),
        pid: Some(7),
        state: WorkerState::Idle,
        memory_bytes: Some(1 << 20),
        started_at: clock.now(),
        done: 3,
        failed: 1,
        task: None,
    }
}

/// Opens a breaker around calls.
async fn trip_breaker(store: &dyn Store) {
    let policy = BreakerPolicy { trip: Trip::Consecutive(1), reset: LONG };
    let failed = CallResult { admission: CallAdmission::Usual, verdict: CallVerdict::Failure };
    for what in [BreakerUse::Ask, BreakerUse::Report(failed)] {
        assert_eq!(store.call_breaker("stripe", policy, what).await, Ok(Pass::Go));
    }
}

/// Fills a store, and leaves a node on it that holds some tasks.
pub(crate) async fn fill(store: &dyn Store, clock: &ManualClock) -> Filled {
    let ids = Ids::new(7);
    settings(store, clock).await;
    let node = ids.new_session("here", LONG);
    let session = node.id;
    store.join(node).await.expect("join answers");
    let gone = ids.new_session("gone", LONG);
    let gone_id = gone.id;
    store.join(gone).await.expect("join answers");
    store.report(gone_id, vec![worker(&ids, clock)], Vec::new()).await.expect("report answers");
    store.leave(gone_id).await.expect("leave answers");
    trip_breaker(store).await;

    // Finished tasks: completed, failed, cancelled, late, and some that were pruned and are only counted.
    let ended = enqueue(store, ids.new_tasks(5, QUEUE, "send")).await;
    let mut held = claim(store, session, QUEUE, 5).await.into_iter().map(|claimed| claimed.lease);
    let mut next = || held.next().expect("enough tasks are ready");
    end(store, &ids, next(), Outcome::Success).await;
    let dead = next();
    let dead_id = dead.task();
    store.save_step(dead.as_ref(), step("fetched")).await.expect("save_step answers");
    store.save_step(dead.as_ref(), step("sorted")).await.expect("save_step answers");
    let long = "é☂ long ".repeat(100_000);
    for text in ["\"é ☂\"", &long] {
        store.append(dead.as_ref(), one_of_each(text)).await.expect("append answers");
    }
    end(store, &ids, dead, fails(ErrorClass::Permanent)).await;
    let retried = next();
    let retried_id = retried.task();
    end(store, &ids, retried, fails(ErrorClass::Transient)).await;
    store.cancel(vec![next().task()]).await.expect("cancel answers");
    let pruned = next();
    let pruned_id = pruned.task();
    end(store, &ids, pruned, Outcome::Success).await;
    store.prune(Prune::Tasks(vec![pruned_id])).await.expect("prune answers");
    assert_eq!(ended.len(), 5);

    // Waiting tasks: for a time, a key, another task, a gate, and many that are simply ready.
    let awaited = ids.new_task(QUEUE, "send");
    let mut dependent = ids.new_task(QUEUE, "sort");
    (dependent.after, dependent.on_failed) = (vec![awaited.id], OnFailed::Run);
    let mut later = ids.new_task(QUEUE, "send");
    later.run_at = Some(clock.now().after(LONG));
    let mut late = ids.new_task(QUEUE, "send");
    (late.not_after, late.deadline) = (Some(clock.now().after(LONG)), Some(clock.now().after(LONG * 2)));
    let mut unique = ids.new_task(QUEUE, "send");
    unique.unique = Some(Unique::new("letter"));
    unique.overrides = Overrides { attempts: Some(9), timeout: Some(LONG), ..Overrides::NONE };
    (unique.folder, unique.cost) = (Some("/tmp/work".to_owned()), Some(3));
    let mut keyed = ids.new_tasks(3, QUEUE, "sort");
    keyed.iter_mut().for_each(|task| task.limit_key = Some("acme".to_owned()));
    let filled = Filled {
        dead: dead_id,
        retried: retried_id,
        unique: unique.id,
        dependent: dependent.id,
        awaited: awaited.id,
        keyed: keyed.iter().map(|task| task.id).collect(),
        running: TaskId(ids.session().0),
        session,
    };
    enqueue(store, vec![awaited, dependent, later, late, unique]).await;
    enqueue(store, keyed).await;
    enqueue(store, ids.new_tasks(2, "broken", "call")).await;
    enqueue(store, ids.new_tasks(2, "paused", "call")).await;
    enqueue(store, ids.new_tasks(MANY, "many", "count")).await;

    scheduled(store, &ids, clock).await;
    let job = JobId(ids.session().0);
    let (name, fingerprint, spec) = ("letters".to_owned(), "f".to_owned(), "{}".to_owned());
    store.put_job(NewJob { id: job, name, fingerprint, spec, items: 2 }).await.expect("put_job answers");
    enqueue(store, ids.new_tasks(2, &queue_of(job), "item")).await;

    // Tasks held at the time of the move: one started, one with a cancel request, one only claimed.
    let mut leases = claim(store, session, "many", 3).await.into_iter().map(|claimed| claimed.lease);
    let mut lease = || leases.next().expect("enough tasks are ready");
    let running = lease();
    let start = Start { lease: running.as_ref(), worker: ids.worker() };
    store.start(vec![start]).await.expect("start answers");
    store.append(running.as_ref(), vec![EventBody::line("a line"); 3]).await.expect("append answers");
    store.cancel(vec![lease().task()]).await.expect("cancel answers");
    let _claimed = lease();
    Filled { running: running.task(), ..filled }
}

async fn settings(store: &dyn Store, clock: &ManualClock) {
    let hold = AccountChange::Hold { until: Some(clock.now().after(LONG)), why: "limit reached".to_owned() };
    for change in [AccountChange::Cap(Some(8)), hold] {
        store.change_account("claude", change).await.expect("change_account answers");
    }
    let breaker = BreakerSetting {
        policy: BreakerPolicy { trip: Trip::Consecutive(3), reset: LONG },
        scope: BreakerScope::Queue,
    };
    let kind = Overrides { attempts: Some(2), ..Overrides::NONE };
    let budget = Budget { total: Cost::from_usd(1_000.0), per_day: None, reserve: Some(Cost::from_nanos(1)) };
    for (queue, changes) in [
        (
            QUEUE,
            vec![
                QueueChange::KeyConcurrency(Some(1)),
                QueueChange::Limit(Some(100_000)),
                QueueChange::Subscribe(Subscription {
                    name: "callbacks".to_owned(),
                    wants: OutboxFilter::ALL,
                }),
                QueueChange::KindOverrides("sort".to_owned(), kind),
                QueueChange::KeyRate(vec![Rate::even(1_000, LONG)]),
                QueueChange::Budget(Some(budget)),
                QueueChange::OpenKeyBreaker { key: "shut".to_owned(), until: Some(clock.now().after(LONG)) },
            ],
        ),
        ("broken", vec![QueueChange::Breaker(Some(breaker)), QueueChange::OpenBreaker(None)]),
        ("paused", vec![QueueChange::Pause("by hand".to_owned())]),
        ("asks", vec![QueueChange::Account(Some("claude".to_owned()))]),
        ("many", vec![QueueChange::Rate(vec![Rate::even(100_000, LONG)])]),
    ] {
        store.configure(queue, changes).await.expect("configure answers");
    }
}

async fn scheduled(store: &dyn Store, ids: &Ids, clock: &ManualClock) {
    let (queue, kind, payload) = (QUEUE.to_owned(), "sweep".to_owned(), "{}".to_owned());
    let task = TaskTemplate { queue, kind, payload, priority: Priority::NORMAL, overrides: Overrides::NONE };
    let (name, spec) = ("nightly".to_owned(), "0 3 * * *".to_owned());
    let (overlap, missed, now) = (Overlap::Queue, Missed::One, clock.now());
    let schedule = Schedule { name: name.clone(), spec, overlap, missed, task, next_at: Some(now) };
    store.put_schedule(schedule).await.expect("put_schedule answers");
    let firing = Firing {
        schedule: name,
        expected: now,
        next: Some(now.after(LONG)),
        task: Some(ids.new_task(QUEUE, "sweep")),
    };
    store.fire(firing).await.expect("fire answers");
}

pub(crate) fn fails(class: ErrorClass) -> Outcome {
    Outcome::Failed(Failure::new(class, "the post office is closed"))
}

fn step(name: &str) -> NewStep {
    NewStep { name: name.to_owned(), value: "{\"n\": 1}".to_owned() }
}

pub(crate) async fn enqueue(store: &dyn Store, tasks: Vec<NewTask>) -> Vec<TaskId> {
    let ids = tasks.iter().map(|task| task.id).collect();
    store.enqueue(tasks).await.expect("enqueue answers");
    ids
}

pub(crate) async fn claim(store: &dyn Store, session: SessionId, queue: &str, limit: usize) -> Vec<Claimed> {
    let claim = Claim { session, queue: queue.to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        ClaimAnswer::SessionEnded => panic!("the session is alive"),
    }
}

/// Starts an attempt and finishes it.
pub(crate) async fn end(store: &dyn Store, ids: &Ids, lease: Lease, outcome: Outcome) {
    let start = Start { lease: lease.as_ref(), worker: ids.worker() };
    store.start(vec![start]).await.expect("start answers");
    let report =
        Report { lease, ran: None, outcome, output: Some("{\"said\": \"ü\"}".to_owned()), reading: None };
    store.finish(vec![report]).await.expect("finish answers");
}
