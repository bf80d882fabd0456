//! Reference store in memory, written to be read. It specifies the verbs, and the conformance
//! suite compares every other store with it. It searches linearly where a real store has an index, on purpose.

mod accounts;
mod budgets;
mod call_breakers;
mod costs;
mod dependents;
mod gates;
mod jobs;
mod life;
mod maintenance;
mod nodes;
mod outbox;
mod queries;
mod schedules;
mod state;
mod unique;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ostler_core::{
    Account, AccountChange, BreakerPolicy, EventBody, IdPart, JobId, Overrides, Pass, SessionId, TaskId,
    Timestamp, Worker,
};

use ostler_store::Checks;
use ostler_store::Clock;
use ostler_store::Error;
use ostler_store::LeaseRef;
use ostler_store::Store;
use ostler_store::accounts::{AccountRecord, check_account};
use ostler_store::call_breakers::{BreakerUse, CallBreakerRecord, check_call_breaker};
use ostler_store::calls::Amended;
use ostler_store::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Enqueued, Expired, Fenced, Finished, Kinds, MadeReady,
    NewSession, NewStep, NewTask, Prune, Pruned, QueueChange, Renewed, Replay, ReplayAnswer, Report, Saved,
    Start, Unwritten,
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
use ostler_store::{Bells, Changes, Wakeups};
use ostler_store::{
    Bounds, MAX_BATCH, MAX_EVENT_BYTES, MAX_MAINTENANCE_BATCH, MAX_PAGE, check_backlog, check_claim,
    check_command, check_job, check_len, check_name, check_overrides, check_reply, check_report,
    check_schedule, check_session,
};
use state::MemoryState;

/// A store in memory. Clones share the same data.
#[derive(Clone)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    book: Arc<Mutex<MemoryState>>,
    bells: Arc<Bells>,
}

impl Memory {
    /// An empty store that takes the time from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_checks(clock, Checks::default())
    }

    /// An empty store with only these checks enabled.
    #[must_use]
    pub fn with_checks(clock: Arc<dyn Clock>, checks: Checks) -> Self {
        let book = Arc::new(Mutex::new(MemoryState::new(checks)));
        Self { clock, bounds: Bounds::default(), book, bells: Arc::default() }
    }

    /// Makes the death of a node known, as a released liveness lock does in a real store.
    pub fn kill(&self, session: SessionId) {
        self.lock().kill(session);
    }

    /// The state, at the present time. A panic in a verb is a defect that the suite must see, but later tests
    /// on the same store should report something better than "poisoned".
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.set_time(self.clock.now(), self.clock.uptime());
        book
    }

    /// Runs one verb, then what follows every verb.
    fn write<T>(&self, verb: impl FnOnce(&mut MemoryState) -> T) -> T {
        let mut book = self.lock();
        let answer = verb(&mut book);
        self.bells.ring(book.close_verb());
        answer
    }
}

#[async_trait]
impl Store for Memory {
    async fn join(&self, node: NewSession) -> Result<Fenced, Error> {
        check_session(&node)?;
        Ok(self.write(|book| book.join(node)))
    }

    async fn renew(&self, session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error> {
        check_len("leases", held.len(), MAX_BATCH)?;
        Ok(self.write(|book| book.renew(session, held)))
    }

    async fn leave(&self, session: SessionId) -> Result<Fenced, Error> {
        Ok(self.write(|book| book.leave(session)))
    }

    async fn depart(&self, session: SessionId) -> Result<Fenced, Error> {
        Ok(self.write(|book| book.depart(session)))
    }

    async fn reply(&self, session: SessionId, answer: Reply) -> Result<Fenced, Error> {
        check_reply(&answer)?;
        Ok(self.write(|book| book.answer(session, answer)))
    }

    async fn report(
        &self,
        session: SessionId,
        workers: Vec<Worker>,
        closed: Vec<Worker>,
    ) -> Result<Fenced, Error> {
        check_report(&workers, &closed)?;
        Ok(self.write(|book| book.report(session, workers, closed)))
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error> {
        self.bounds.check_tasks(&tasks)?;
        Ok(self.write(|book| tasks.into_iter().map(|task| book.enqueue(task)).collect()))
    }

    async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        check_claim(&claim)?;
        Ok(self.write(|book| book.claim(&claim)))
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Fenced>, Error> {
        check_len("starts", starts.len(), MAX_BATCH)?;
        Ok(self.write(|book| starts.into_iter().map(|start| book.start(start)).collect()))
    }

    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten> {
        if let Err(error) = self.bounds.check_reports(&reports) {
            return Err(Unwritten { error, reports });
        }
        Ok(self.write(|book| reports.iter().map(|report| book.finish(report)).collect()))
    }

    async fn append(&self, lease: LeaseRef, events: Vec<EventBody>) -> Result<Appended, Error> {
        self.bounds.check_events(&events)?;
        Ok(self.write(|book| book.append(lease, events)))
    }

    async fn save_step(&self, lease: LeaseRef, step: NewStep) -> Result<Saved, Error> {
        self.bounds.check_step(&step)?;
        Ok(self.write(|book| book.save_step(lease, step)))
    }

    async fn take_outbox(
        &self,
        session: SessionId,
        queue: &str,
        subscriber: &str,
        limit: usize,
    ) -> Result<OutboxAnswer, Error> {
        check_name("queue", queue)?;
        check_name("subscriber", subscriber)?;
        check_len("outbox entries", limit, MAX_PAGE)?;
        Ok(self.write(|book| book.take_outbox(session, queue, subscriber, limit)))
    }

    async fn ack_outbox(&self, session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error> {
        self.bounds.check_deliveries(&deliveries)?;
        self.write(|book| deliveries.into_iter().for_each(|delivery| book.ack_outbox(session, delivery)));
        Ok(())
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        Ok(self.write(|book| tasks.into_iter().map(|task| book.cancel(task)).collect()))
    }

    async fn replay(&self, tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        self.bounds.check_payload(how.payload.as_deref())?;
        Ok(self.write(|book| tasks.into_iter().map(|task| book.replay(task, &how)).collect()))
    }

    async fn amend(&self, task: TaskId, overrides: Overrides) -> Result<Amended, Error> {
        check_overrides(&overrides)?;
        Ok(self.write(|book| book.amend(task, &overrides)))
    }

    async fn command(&self, session: SessionId, order: NodeCommand) -> Result<CommandAnswer, Error> {
        check_command(&order)?;
        Ok(self.write(|book| book.order(session, order)))
    }

    async fn queue_settings(&self, queue: &str) -> Result<QueueSettings, Error> {
        self.bounds.check_changes(queue, &[])?;
        Ok(self.write(|book| book.queues.get(queue).map(|queue| queue.settings.clone())).unwrap_or_default())
    }

    async fn configure(&self, queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error> {
        self.bounds.check_changes(queue, &changes)?;
        self.write(|book| book.configure(queue, changes))
    }

    async fn change_account(&self, name: &str, change: AccountChange) -> Result<Account, Error> {
        check_account(name, &change)?;
        self.write(|book| book.change_account(name, &change))
    }

    async fn call_breaker(&self, name: &str, policy: BreakerPolicy, what: BreakerUse) -> Result<Pass, Error> {
        check_call_breaker(name, policy)?;
        Ok(self.write(|book| book.call_breaker(name, &policy, what)))
    }

    async fn put_schedule(&self, schedule: Schedule) -> Result<PutAnswer, Error> {
        check_schedule(&schedule)?;
        Ok(self.write(|book| book.put_schedule(schedule)))
    }

    async fn change_schedule(&self, name: &str, change: ScheduleChange) -> Result<ScheduleAnswer, Error> {
        Ok(self.write(|book| book.change_schedule(name, change)))
    }

    async fn fire(&self, firing: Firing) -> Result<Fired, Error> {
        self.bounds.check_firing(&firing)?;
        Ok(self.write(|book| book.fire(firing)))
    }

    async fn put_job(&self, job: NewJob) -> Result<JobPut, Error> {
        check_job(&job)?;
        Ok(self.write(|book| book.put_job(job)))
    }

    async fn change_job(&self, job: JobId, change: JobChange) -> Result<JobAnswer, Error> {
        Ok(self.write(|book| book.change_job(job, change)))
    }

    async fn expire(&self, batch: usize) -> Result<Expired, Error> {
        check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
        Ok(self.write(|book| book.expire(batch)))
    }

    async fn make_ready(&self, batch: usize) -> Result<MadeReady, Error> {
        check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
        Ok(self.write(|book| book.make_ready(batch)))
    }

    async fn prune(&self, what: Prune) -> Result<Pruned, Error> {
        match &what {
            Prune::Retention(keep) => check_len("batch", keep.batch, MAX_MAINTENANCE_BATCH)?,
            Prune::Tasks(tasks) => check_len("tasks", tasks.len(), MAX_BATCH)?,
            Prune::Orphans { batch, .. } => check_len("batch", *batch, MAX_MAINTENANCE_BATCH)?,
        }
        Ok(self.write(|book| book.prune(&what)))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.lock().now)
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        check_len("page", limit, MAX_PAGE)?;
        filter.check_cursor(after)?;
        Ok(self.lock().list(&filter, after, limit))
    }

    async fn show(&self, which: TaskRef) -> Result<Option<TaskDetail>, Error> {
        Ok(self.lock().show(&which))
    }

    async fn find_ids(&self, part: IdPart, limit: usize) -> Result<FoundIds, Error> {
        check_len("ids", limit, MAX_PAGE)?;
        Ok(self.write(|book| book.find_ids(part, limit)))
    }

    async fn existing(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>, Error> {
        check_len("tasks", tasks.len(), MAX_PAGE)?;
        let book = self.lock();
        Ok(tasks.into_iter().filter(|task| book.slot_of(*task).is_some()).collect())
    }

    async fn read_events(&self, task: TaskId, query: EventQuery) -> Result<Vec<Event>, Error> {
        check_len("events", query.limit, MAX_PAGE)?;
        Ok(self.lock().read_events(task, query))
    }

    async fn read_text(
        &self,
        task: TaskId,
        text: TextRef,
        from: u64,
        most: usize,
    ) -> Result<Option<TextPart>, Error> {
        check_len("bytes", most, MAX_EVENT_BYTES)?;
        Ok(self.lock().read_text(task, text, from, most))
    }

    async fn survey(&self) -> Result<Survey, Error> {
        Ok(self.lock().survey())
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>, Error> {
        Ok(self.write(|book| book.list_accounts()))
    }

    async fn call_breakers(&self) -> Result<Vec<CallBreakerRecord>, Error> {
        Ok(self.write(|book| book.list_call_breakers()))
    }

    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRecord>, Error> {
        check_len("costs", query.limit, MAX_PAGE)?;
        Ok(self.lock().costs(&query))
    }

    async fn gone_workers(&self, limit: usize) -> Result<Vec<GoneWorker>, Error> {
        check_len("workers", limit, MAX_PAGE)?;
        Ok(self.write(|book| book.gone.iter().rev().take(limit).cloned().collect()))
    }

    async fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error> {
        check_backlog(queue, kinds, limit)?;
        Ok(self.lock().backlog(queue, kinds, limit))
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error> {
        Ok(self.lock().schedules.values().cloned().collect())
    }

    async fn jobs(&self, filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error> {
        check_len("page", limit, MAX_PAGE)?;
        Ok(self.lock().jobs(&filter, limit))
    }

    fn wakeups(&self) -> Wakeups {
        self.bells.ready.listen()
    }

    fn control(&self) -> Wakeups {
        self.bells.control.listen()
    }

    fn changes(&self) -> Changes {
        Changes::within_process(self.bells.changed.listen())
    }
}
