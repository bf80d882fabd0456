//! A case for each verb that writes: its setup, its call, and the condition that must hold once it has returned.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    BreakerPolicy, CallAdmission, CallResult, CallVerdict, ErrorClass, EventBody, Failure, Id, JobId, Missed,
    Outcome, Overlap, Overrides, Pass, Priority, SessionId, StateName, TaskId, Timestamp, Trip, Worker,
    WorkerId, WorkerState,
};
use ostler_postgres::Postgres;
use ostler_postgres::tokio_postgres::Client;
use ostler_store::call_breakers::BreakerUse;
use ostler_store::calls::Amended;
use ostler_store::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Finished, Kinds, NewSession,
    NewStep, NewTask, QueueChange, Ran, Renewed, Replay, ReplayAnswer, Report, Saved, Start,
};
use ostler_store::events::EventQuery;
use ostler_store::jobs::{JobAnswer, JobChange, JobFilter, JobPut, NewJob};
use ostler_store::node_commands::{CommandAnswer, NodeAnswer, NodeCommand, Reply, ResumeAnswer};
use ostler_store::outbox::{Ack, OutboxAnswer, OutboxFilter, Subscription};
use ostler_store::schedules::{
    Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, TaskTemplate,
};
use ostler_store::views::{TaskDetail, TaskRef};
use ostler_store::{Clock, LeaseRef, Store};
use ostler_testkit::ManualClock;

/// Longer than any test takes.
const TTL: Duration = Duration::from_secs(10 * 60 * 60);
const WORKER: WorkerId = WorkerId(Id::from_bits(3));

/// The environment of a round's verbs.
pub(crate) struct Stage {
    pub(crate) store: Arc<Postgres>,
    /// Another store, for cases that would interfere with the others.
    pub(crate) aside: Arc<Postgres>,
    /// A connection that bypasses the proxy.
    pub(crate) direct: Client,
    pub(crate) clock: ManualClock,
    pub(crate) round: usize,
}

impl Stage {
    /// A name unique to this round.
    pub(crate) fn name(&self, what: &str) -> String {
        format!("{what}-{}", self.round)
    }

    /// An id unique to this round and case.
    pub(crate) fn id(&self, what: &str) -> Id {
        let text = self.name(what);
        let fnv = |hash: u128, byte: u8| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        };
        Id::from_bits(text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, fnv) >> 1)
    }
}

type Act = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
/// Checks that an acknowledged write took effect.
pub(crate) type Check =
    Box<dyn for<'s> FnOnce(&'s Stage) -> Pin<Box<dyn Future<Output = Result<(), String>> + 's>>>;

/// A prepared verb, and the condition that must hold once it has returned.
pub(crate) struct Case {
    pub(crate) verb: &'static str,
    pub(crate) act: Act,
    pub(crate) check: Check,
}

impl Case {
    pub(crate) fn new(
        verb: &'static str,
        act: impl Future<Output = Result<(), String>> + Send + 'static,
        check: impl AsyncFnOnce(&Stage) -> Result<(), String> + 'static,
    ) -> Self {
        Self { verb, act: Box::pin(act), check: Box::new(|stage| Box::pin(check(stage))) }
    }
}

/// All verbs that write, each with its own queue and session, so that none waits for another.
pub(crate) async fn all(stage: &Stage) -> Vec<Case> {
    let mut cases = sessions(stage).await;
    cases.extend(lives(stage).await);
    cases.extend(notes(stage).await);
    cases.extend(requests(stage).await);
    cases.extend(plans(stage).await);
    cases.push(super::accounts::case(stage));
    cases.extend(super::maintenance::cases(stage).await);
    cases
}

pub(crate) fn same<T: PartialEq + Debug>(found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

pub(crate) fn told<E: Debug>(error: E) -> String {
    format!("{error:?}")
}

// ---- setup ----

async fn joined(stage: &Stage, what: &str) -> SessionId {
    let node = session(stage, what);
    let id = node.id;
    assert_eq!(stage.store.join(node).await, Ok(Fenced::Recorded));
    id
}

fn session(stage: &Stage, what: &str) -> NewSession {
    let (name, version) = (stage.name(what), "1".to_owned());
    NewSession {
        id: SessionId(stage.id(&format!("node {what}"))),
        name,
        host: "stable-1".to_owned(),
        pid: 1,
        version,
        ttl: TTL,
        settings: "{}".to_owned(),
    }
}

pub(crate) fn draft(stage: &Stage, what: &str) -> NewTask {
    NewTask::new(TaskId(stage.id(what)), stage.name(what), "send", "{}")
}

async fn enqueued(stage: &Stage, what: &str) -> TaskId {
    let task = draft(stage, what);
    let id = task.id;
    assert_eq!(stage.store.enqueue(vec![task]).await, Ok(vec![Enqueued::Created(id)]));
    id
}

async fn claim(store: &dyn Store, session: SessionId, queue: String) -> Result<Vec<Claimed>, String> {
    let claim = Claim { session, queue, kinds: Kinds::Any, limit: 10 };
    match store.claim(claim).await.map_err(told)? {
        ClaimAnswer::Tasks { tasks, .. } => Ok(tasks),
        ClaimAnswer::SessionEnded => Err("the session has ended".to_owned()),
    }
}

/// A task claimed by its own session.
pub(crate) async fn claimed(stage: &Stage, what: &str) -> (SessionId, Claimed) {
    let (session, _) = (joined(stage, what).await, enqueued(stage, what).await);
    let mut tasks = claim(&*stage.store, session, stage.name(what)).await.expect("claim answers");
    (session, tasks.pop().expect("a task"))
}

pub(crate) async fn started(stage: &Stage, what: &str) -> (SessionId, Claimed) {
    let (session, claimed) = claimed(stage, what).await;
    let start = Start { lease: claimed.lease.as_ref(), worker: WORKER };
    assert_eq!(stage.store.start(vec![start]).await, Ok(vec![Fenced::Recorded]));
    (session, claimed)
}

fn success(claimed: Claimed) -> Report {
    let ran = Some(Ran { worker: WORKER, took: Duration::from_millis(1) });
    Report { lease: claimed.lease, ran, outcome: Outcome::Success, output: None, reading: None }
}

pub(crate) async fn completed(stage: &Stage, what: &str) -> TaskId {
    let (_, claimed) = claimed(stage, what).await;
    let id = claimed.lease.task();
    let finished = stage.store.finish(vec![success(claimed)]).await.expect("finish answers");
    assert_eq!(finished, [Finished::Recorded(StateName::Completed)]);
    id
}

// ---- checks ----

pub(crate) async fn detail(stage: &Stage, task: TaskId) -> Result<TaskDetail, String> {
    let shown = stage.store.show(TaskRef::Id(task)).await.map_err(told)?;
    shown.ok_or_else(|| "there is no such task".to_owned())
}

pub(crate) async fn stands(stage: &Stage, task: TaskId, wanted: StateName) -> Result<TaskDetail, String> {
    let detail = detail(stage, task).await?;
    same(&detail.task.state.name(), &wanted)?;
    Ok(detail)
}

/// Asserts that the store and the node agree that the node holds exactly these leases.
async fn holds(stage: &Stage, session: SessionId, held: &[LeaseRef]) -> Result<(), String> {
    match stage.store.renew(session, held).await.map_err(told)? {
        Renewed::Held { lost, unnamed, .. } => same(&(lost, unnamed), &(Vec::new(), Vec::new())),
        Renewed::Ended => Err("the session has ended".to_owned()),
    }
}

// ---- the cases ----

async fn sessions(stage: &Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    let store = || Arc::clone(&stage.store);

    let (here, node) = (store(), session(stage, "join"));
    let id = node.id;
    cases.push(Case::new(
        "join",
        async move { same(&here.join(node).await.map_err(told)?, &Fenced::Recorded) },
        async move |stage| holds(stage, id, &[]).await,
    ));

    let (here, (id, leaving)) = (store(), claimed(stage, "leave").await);
    let task = leaving.lease.task();
    cases.push(Case::new(
        "leave",
        async move { same(&here.leave(id).await.map_err(told)?, &Fenced::Recorded) },
        async move |stage| {
            same(&stage.store.renew(id, &[]).await, &Ok(Renewed::Ended))?;
            stands(stage, task, StateName::Queued).await.map(drop)
        },
    ));

    let (here, id) = (store(), joined(stage, "order").await);
    cases.push(Case::new(
        "order",
        async move {
            same(
                &here.command(id, NodeCommand::Drain).await.map_err(told)?,
                &CommandAnswer::Given { number: 1 },
            )
        },
        async move |stage| match stage.store.renew(id, &[]).await.map_err(told)? {
            Renewed::Held { commands: orders, .. } => same(&orders.len(), &1),
            Renewed::Ended => Err("the session has ended".to_owned()),
        },
    ));

    let (here, id) = (store(), joined(stage, "answer").await);
    let ordered = stage.store.command(id, NodeCommand::Drain).await.expect("order answers");
    assert_eq!(ordered, CommandAnswer::Given { number: 1 });
    let answer = Reply { number: 1, answer: NodeAnswer::Resume(ResumeAnswer::NotDraining) };
    cases.push(Case::new(
        "answer",
        async move { same(&here.reply(id, answer).await.map_err(told)?, &Fenced::Recorded) },
        async move |stage| {
            let nodes = stage.store.survey().await.map_err(told)?.nodes;
            let node = nodes.into_iter().find(|node| node.session == id).ok_or("the node is gone")?;
            same(&node.replies.len(), &1)
        },
    ));

    let (here, id) = (store(), joined(stage, "report").await);
    let worker = Worker {
        id: WORKER,
        name: "shell-1".to_owned(),
        pool: "mail".to_owned(),
        pid: None,
        state: WorkerState::Idle,
        memory_bytes: None,
        started_at: Timestamp::from_millis(1),
        done: 0,
        failed: 0,
        task: None,
    };
    cases.push(Case::new(
        "report",
        async move { same(&here.report(id, vec![worker], Vec::new()).await.map_err(told)?, &Fenced::Recorded) },
        async move |stage| {
            let workers = stage.store.survey().await.map_err(told)?.workers;
            same(&workers.iter().filter(|worker| worker.session == id).count(), &1)
        },
    ));
    cases
}

async fn lives(stage: &Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    let store = || Arc::clone(&stage.store);

    let (here, task) = (store(), draft(stage, "enqueue"));
    let id = task.id;
    cases.push(Case::new(
        "enqueue",
        async move { same(&here.enqueue(vec![task]).await.map_err(told)?, &vec![Enqueued::Created(id)]) },
        async move |stage| stands(stage, id, StateName::Queued).await.map(drop),
    ));

    let (here, session, id) = (store(), joined(stage, "claim").await, enqueued(stage, "claim").await);
    let queue = stage.name("claim");
    let (sender, receiver) = tokio::sync::oneshot::channel();
    cases.push(Case::new(
        "claim",
        async move {
            let mut tasks = claim(&*here, session, queue).await?;
            let lease = tasks.pop().ok_or("no task")?.lease.as_ref();
            let _ = sender.send(lease);
            same(&(lease.task, lease.token, tasks.len()), &(id, 1, 0))
        },
        async move |stage| {
            stands(stage, id, StateName::Claimed).await?;
            holds(stage, session, &[receiver.await.map_err(told)?]).await
        },
    ));

    let (here, (session, beginning)) = (store(), claimed(stage, "start").await);
    let (id, lease) = (beginning.lease.task(), beginning.lease.as_ref());
    cases.push(Case::new(
        "start",
        async move {
            let start = Start { lease, worker: WORKER };
            same(&here.start(vec![start]).await.map_err(told)?, &vec![Fenced::Recorded])
        },
        async move |stage| {
            same(&stands(stage, id, StateName::Running).await?.attempts.len(), &1)?;
            holds(stage, session, &[lease]).await
        },
    ));

    let (here, (session, ending)) = (store(), claimed(stage, "finish").await);
    let id = ending.lease.task();
    cases.push(Case::new(
        "finish",
        async move {
            let wanted = vec![Finished::Recorded(StateName::Completed)];
            same(&here.finish(vec![success(ending)]).await.map_err(told)?, &wanted)
        },
        async move |stage| {
            same(&stands(stage, id, StateName::Completed).await?.attempts.len(), &1)?;
            holds(stage, session, &[]).await
        },
    ));

    let (here, (session, failing)) = (store(), started(stage, "fail").await);
    let id = failing.lease.task();
    cases.push(Case::new(
        "finish of a failure",
        async move {
            let outcome = Outcome::Failed(Failure::new(ErrorClass::Transient, "not now"));
            let report = Report { lease: failing.lease, ran: None, outcome, output: None, reading: None };
            let wanted = vec![Finished::Recorded(StateName::Queued)];
            same(&here.finish(vec![report]).await.map_err(told)?, &wanted)
        },
        async move |stage| {
            same(&stands(stage, id, StateName::Queued).await?.task.failures, &1)?;
            holds(stage, session, &[]).await
        },
    ));
    cases
}

async fn notes(stage: &Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    let store = || Arc::clone(&stage.store);

    let (here, (_, running)) = (store(), started(stage, "append").await);
    let (id, lease) = (running.lease.task(), running.lease.as_ref());
    cases.push(Case::new(
        "append",
        async move {
            let event = EventBody::line("a line");
            same(&here.append(lease, vec![event]).await.map_err(told)?, &Appended::Recorded { last: 1 })
        },
        async move |stage| {
            same(&stage.store.read_events(id, EventQuery::default()).await.map_err(told)?.len(), &1)
        },
    ));

    let (here, (_, running)) = (store(), started(stage, "step").await);
    let (id, lease) = (running.lease.task(), running.lease.as_ref());
    cases.push(Case::new(
        "save_step",
        async move {
            let step = NewStep { name: "first".to_owned(), value: "1".to_owned() };
            same(&here.save_step(lease, step).await.map_err(told)?, &Saved::Recorded)
        },
        async move |stage| same(&detail(stage, id).await?.steps.len(), &1),
    ));

    let (here, session) = (store(), joined(stage, "hear by").await);
    let queue = stage.name("hear");
    tell_all(stage, "hear").await;
    completed(stage, "hear").await;
    let other = joined(stage, "hear later").await;
    cases.push(Case::new(
        "hear",
        async move {
            match here.take_outbox(session, &queue, "callbacks", 10).await.map_err(told)? {
                OutboxAnswer::Entries(entries) => same(&entries.len(), &1),
                OutboxAnswer::SessionEnded => Err("the session has ended".to_owned()),
            }
        },
        async move |stage| {
            let queue = stage.name("hear");
            let heard = stage.store.take_outbox(other, &queue, "callbacks", 10).await;
            same(&heard, &Ok(OutboxAnswer::Entries(Vec::new())))
        },
    ));

    let (here, session) = (store(), joined(stage, "told by").await);
    let queue = stage.name("told");
    tell_all(stage, "told").await;
    completed(stage, "told").await;
    let heard = stage.store.take_outbox(session, &queue, "callbacks", 10).await.expect("hear answers");
    let OutboxAnswer::Entries(entries) = heard else { panic!("the session is alive") };
    let deliveries: Vec<Ack> = entries.iter().map(|entry| entry.number.into()).collect();
    cases.push(Case::new(
        "told",
        async move { here.ack_outbox(session, deliveries).await.map_err(told) },
        async move |stage| {
            let sql = "SELECT count(*) FROM ostler.outbox t JOIN ostler.queue q ON q.id = t.queue WHERE q.name = $1";
            let row = stage.direct.query_one(sql, &[&queue]).await.map_err(told)?;
            same(&row.get::<_, i64>(0), &0)
        },
    ));
    cases
}

async fn tell_all(stage: &Stage, what: &str) {
    let changes =
        vec![QueueChange::Subscribe(Subscription { name: "callbacks".to_owned(), wants: OutboxFilter::ALL })];
    stage.store.configure(&stage.name(what), changes).await.expect("configure answers");
}

async fn requests(stage: &Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    let store = || Arc::clone(&stage.store);

    let (here, id) = (store(), enqueued(stage, "cancel").await);
    cases.push(Case::new(
        "cancel",
        async move { same(&here.cancel(vec![id]).await.map_err(told)?, &vec![CancelAnswer::Cancelled]) },
        async move |stage| stands(stage, id, StateName::Cancelled).await.map(drop),
    ));

    let (here, id) = (store(), enqueued(stage, "replay").await);
    assert_eq!(stage.store.cancel(vec![id]).await, Ok(vec![CancelAnswer::Cancelled]));
    cases.push(Case::new(
        "replay",
        async move {
            let answers = here.replay(vec![id], Replay::default()).await.map_err(told)?;
            same(&answers, &vec![ReplayAnswer::Requeued])
        },
        async move |stage| stands(stage, id, StateName::Queued).await.map(drop),
    ));

    let (here, id) = (store(), enqueued(stage, "amend").await);
    let overrides = Overrides { attempts: Some(7), ..Overrides::NONE };
    let wanted = overrides;
    cases.push(Case::new(
        "amend",
        async move { same(&here.amend(id, overrides).await.map_err(told)?, &Amended::Done) },
        async move |stage| same(&detail(stage, id).await?.task.overrides, &wanted),
    ));

    let (here, name) = (store(), stage.name("call_breaker"));
    let failed = CallResult { admission: CallAdmission::Usual, verdict: CallVerdict::Failure };
    let policy = BreakerPolicy { trip: Trip::Consecutive(1), reset: Duration::from_secs(3_600) };
    cases.push(Case::new(
        "call_breaker",
        async move {
            let answer = here.call_breaker(&name, policy, BreakerUse::Report(failed)).await;
            same(&answer.map_err(told)?, &Pass::Go)
        },
        async move |stage| {
            let (name, kept) = (stage.name("call_breaker"), stage.store.call_breakers().await.map_err(told)?);
            same(&kept.iter().filter(|record| record.name == name).count(), &1)
        },
    ));

    let (here, queue) = (store(), stage.name("configure"));
    enqueued(stage, "configure").await;
    cases.push(Case::new(
        "configure",
        async move {
            let changes = vec![QueueChange::Pause("lunch".to_owned())];
            let settings = here.configure(&queue, changes).await.map_err(told)?;
            same(&settings.paused.as_deref(), &Some("lunch"))
        },
        async move |stage| {
            let queues = stage.store.survey().await.map_err(told)?.queues;
            let name = stage.name("configure");
            let queue = queues.into_iter().find(|queue| queue.name == name).ok_or("the queue is gone")?;
            same(&queue.settings.paused.as_deref(), &Some("lunch"))
        },
    ));
    cases
}

fn schedule(stage: &Stage, what: &str) -> Schedule {
    Schedule {
        name: stage.name(what),
        spec: "every 1h".to_owned(),
        overlap: Overlap::Queue,
        missed: Missed::One,
        task: TaskTemplate {
            queue: stage.name(what),
            kind: "send".to_owned(),
            payload: "{}".to_owned(),
            priority: Priority::NORMAL,
            overrides: Overrides::NONE,
        },
        next_at: Some(stage.clock.now()),
    }
}

async fn scheduled(stage: &Stage, what: &str) -> Schedule {
    let schedule = schedule(stage, what);
    assert_eq!(stage.store.put_schedule(schedule.clone()).await, Ok(PutAnswer::Created));
    schedule
}

async fn kept(stage: &Stage, what: &str) -> Result<Option<(Activity, Option<Timestamp>)>, String> {
    let (all, name) = (stage.store.schedules().await.map_err(told)?, stage.name(what));
    let found = all.into_iter().find(|record| record.schedule.name == name);
    Ok(found.map(|record| (record.activity, record.schedule.next_at)))
}

async fn plans(stage: &Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    let store = || Arc::clone(&stage.store);

    let (here, put) = (store(), schedule(stage, "put"));
    cases.push(Case::new(
        "put_schedule",
        async move { same(&here.put_schedule(put).await.map_err(told)?, &PutAnswer::Created) },
        async move |stage| kept(stage, "put").await?.map(drop).ok_or_else(|| "it is not there".to_owned()),
    ));

    let (here, dropped) = (store(), scheduled(stage, "drop").await);
    cases.push(Case::new(
        "change_schedule: remove",
        async move {
            same(
                &here.change_schedule(&dropped.name, ScheduleChange::Remove).await.map_err(told)?,
                &ScheduleAnswer::Done,
            )
        },
        async move |stage| same(&kept(stage, "drop").await?, &None),
    ));

    let (here, paused) = (store(), scheduled(stage, "pause").await);
    cases.push(Case::new(
        "change_schedule: pause",
        async move {
            let answer = here
                .change_schedule(&paused.name, ScheduleChange::Set(Activity::Paused))
                .await
                .map_err(told)?;
            same(&answer, &ScheduleAnswer::Done)
        },
        async move |stage| {
            same(&kept(stage, "pause").await?.map(|(activity, _)| activity), &Some(Activity::Paused))
        },
    ));

    let (here, fires) = (store(), scheduled(stage, "fire").await);
    let (task, expected) = (draft(stage, "fire"), fires.next_at.expect("it has a time"));
    let (id, next) = (task.id, Some(expected.after(TTL)));
    cases.push(Case::new(
        "fire",
        async move {
            let firing = Firing { schedule: fires.name, expected, next, task: Some(task) };
            same(&here.fire(firing).await.map_err(told)?, &Fired::Enqueued(id))
        },
        async move |stage| {
            same(&kept(stage, "fire").await?.map(|(_, next)| next), &Some(next))?;
            stands(stage, id, StateName::Queued).await.map(drop)
        },
    ));

    for (verb, what) in [("put_job", "put job"), ("change_job", "change job")] {
        let job = NewJob {
            id: JobId(stage.id(what)),
            name: stage.name(what),
            fingerprint: stage.name(what),
            spec: "{}".to_owned(),
            items: 1,
        };
        let (here, id, filter) =
            (store(), job.id, JobFilter { id: Some(JobId(stage.id(what))), ..JobFilter::default() });
        let changes = verb == "change_job";
        if changes {
            assert_eq!(stage.store.put_job(job.clone()).await, Ok(JobPut::Created));
        }
        cases.push(Case::new(
            verb,
            async move {
                if changes {
                    same(&here.change_job(id, JobChange::Cancel).await.map_err(told)?, &JobAnswer::Done)
                } else {
                    same(&here.put_job(job).await.map_err(told)?, &JobPut::Created)
                }
            },
            async move |stage| {
                let found = stage.store.jobs(filter, 10).await.map_err(told)?;
                let cancelled: Vec<bool> = found.iter().map(|job| job.cancelled_at.is_some()).collect();
                same(&cancelled, &vec![changes])
            },
        ));
    }
    cases
}
