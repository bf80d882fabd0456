//! A store that counts the calls of its verbs: what readers cost it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ostler_core::{
    Account, AccountChange, BreakerPolicy, EventBody, IdPart, JobId, Overrides, Pass, SessionId, TaskId,
    Timestamp, Worker,
};
use ostler_store::accounts::AccountRecord;
use ostler_store::call_breakers::{BreakerUse, CallBreakerRecord};
use ostler_store::calls::{
    Amended, Appended, CancelAnswer, Claim, ClaimAnswer, Enqueued, Expired, Fenced, Finished, Kinds,
    MadeReady, NewSession, NewStep, NewTask, Prune, Pruned, QueueChange, Renewed, Replay, ReplayAnswer,
    Report, Saved, Start, Unwritten,
};
use ostler_store::costs::{CostQuery, CostRecord};
use ostler_store::events::{Event, EventQuery, TextPart, TextRef};
use ostler_store::jobs::{JobAnswer, JobChange, JobFilter, JobPut, JobRecord, NewJob};
use ostler_store::node_commands::{CommandAnswer, NodeCommand, Reply};
use ostler_store::outbox::{Ack, OutboxAnswer};
use ostler_store::schedules::{
    Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, ScheduleRecord,
};
use ostler_store::views::{
    Cursor, Filter, FoundIds, GoneWorker, Page, QueueSettings, Survey, TaskDetail, TaskRef,
};
use ostler_store::{Changes, Error, LeaseRef, Store, Wakeups};

/// Passes every call on.
pub(crate) struct CountingStore {
    store: Arc<dyn Store>,
    calls: AtomicU64,
}

impl CountingStore {
    pub(crate) fn around(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, calls: AtomicU64::new(0) })
    }

    /// Calls of any verb so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

macro_rules! counted {
    ($($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl Store for CountingStore {
            $(async fn $verb(&self $(, $name: $type)*) -> $answer {
                self.calls.fetch_add(1, Ordering::SeqCst);
                self.store.$verb($($name),*).await
            })+

            fn liveness_lock(&self, session: SessionId) -> Result<Option<OwnedFd>, Error> {
                self.store.liveness_lock(session)
            }

            fn wakeups(&self) -> Wakeups {
                self.store.wakeups()
            }

            fn control(&self) -> Wakeups {
                self.store.control()
            }

            fn changes(&self) -> Changes {
                self.store.changes()
            }
        }
    };
}

counted! {
    join(node: NewSession) -> Result<Fenced, Error>;
    renew(session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error>;
    leave(session: SessionId) -> Result<Fenced, Error>;
    depart(session: SessionId) -> Result<Fenced, Error>;
    reply(session: SessionId, answer: Reply) -> Result<Fenced, Error>;
    report(session: SessionId, workers: Vec<Worker>, closed: Vec<Worker>) -> Result<Fenced, Error>;
    enqueue(tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error>;
    claim(claim: Claim) -> Result<ClaimAnswer, Error>;
    start(starts: Vec<Start>) -> Result<Vec<Fenced>, Error>;
    finish(reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten>;
    append(lease: LeaseRef, events: Vec<EventBody>) -> Result<Appended, Error>;
    save_step(lease: LeaseRef, step: NewStep) -> Result<Saved, Error>;
    take_outbox(session: SessionId, queue: &str, subscriber: &str, limit: usize) -> Result<OutboxAnswer, Error>;
    ack_outbox(session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error>;
    cancel(tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error>;
    replay(tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error>;
    amend(task: TaskId, overrides: Overrides) -> Result<Amended, Error>;
    command(session: SessionId, order: NodeCommand) -> Result<CommandAnswer, Error>;
    queue_settings(queue: &str) -> Result<QueueSettings, Error>;
    configure(queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error>;
    call_breaker(name: &str, policy: BreakerPolicy, what: BreakerUse) -> Result<Pass, Error>;
    change_account(name: &str, change: AccountChange) -> Result<Account, Error>;
    put_schedule(schedule: Schedule) -> Result<PutAnswer, Error>;
    change_schedule(name: &str, change: ScheduleChange) -> Result<ScheduleAnswer, Error>;
    fire(firing: Firing) -> Result<Fired, Error>;
    put_job(job: NewJob) -> Result<JobPut, Error>;
    change_job(job: JobId, change: JobChange) -> Result<JobAnswer, Error>;
    expire(batch: usize) -> Result<Expired, Error>;
    make_ready(batch: usize) -> Result<MadeReady, Error>;
    prune(what: Prune) -> Result<Pruned, Error>;
    now() -> Result<Timestamp, Error>;
    list(filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error>;
    show(which: TaskRef) -> Result<Option<TaskDetail>, Error>;
    find_ids(part: IdPart, limit: usize) -> Result<FoundIds, Error>;
    existing(tasks: Vec<TaskId>) -> Result<Vec<TaskId>, Error>;
    read_events(task: TaskId, query: EventQuery) -> Result<Vec<Event>, Error>;
    read_text(task: TaskId, text: TextRef, from: u64, most: usize) -> Result<Option<TextPart>, Error>;
    survey() -> Result<Survey, Error>;
    gone_workers(limit: usize) -> Result<Vec<GoneWorker>, Error>;
    call_breakers() -> Result<Vec<CallBreakerRecord>, Error>;
    accounts() -> Result<Vec<AccountRecord>, Error>;
    costs(query: CostQuery) -> Result<Vec<CostRecord>, Error>;
    backlog(queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error>;
    schedules() -> Result<Vec<ScheduleRecord>, Error>;
    jobs(filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error>;
}
