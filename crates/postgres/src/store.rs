//! The PostgreSQL store: implements the store contract on top of the transactor.

use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{
    Account, AccountChange, BreakerPolicy, EventBody, IdPart, JobId, Overrides, Pass, SessionId, TaskId,
    Timestamp, Worker,
};
use ostler_sql::events::{StoredEvent, stored};
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
use ostler_store::{
    Bounds, Changes, Error, LeaseRef, MAX_BATCH, MAX_EVENT_BYTES, MAX_MAINTENANCE_BATCH, MAX_PAGE, Store,
    Wakeups, check_backlog, check_claim, check_command, check_job, check_len, check_name, check_overrides,
    check_reply, check_report, check_schedule, check_session,
};
use tokio_postgres::Transaction;

use crate::batches;
use crate::conn::Conn;
use crate::connect::Connector;
use crate::fault::{Abort, fault};
use crate::group_commit::GroupCommit;
use crate::inbox;
use crate::liveness::{Heartbeat, HeartbeatDeps, Renewal};
use crate::locks::{LockTarget, Locks, Mode};
use crate::open::{Options, Tables, open};
use crate::transactor::{Transactor, VerbFuture};
use crate::verbs::{
    cancel, claim, events, expire, jobs, list, make_ready, node_commands, outbox, prune, schedules, sessions,
    survey,
};
use ostler_sql::queries::ListCall;

/// A store in a PostgreSQL database.
pub struct Postgres {
    pub(crate) transactor: Arc<Transactor>,
    enqueues: GroupCommit<Transactor, NewTask, Enqueued>,
    starts: GroupCommit<Transactor, Start, Fenced>,
    reports: GroupCommit<Transactor, Report, Finished>,
    /// Independent of the verbs' connections.
    heartbeat: Heartbeat,
    bounds: Bounds,
}

impl Postgres {
    /// Opens the store at `url`, such as `postgres://user@host/database`; creates its tables if there are none. Store
    /// options in the URL (`?schema=NAME&connections=N`) take precedence over `options`.
    ///
    /// # Errors
    /// If the server cannot be reached or is not writable, or the schema is foreign. See [`kind`](Error::kind).
    pub async fn open(url: &str, options: Options) -> Result<Self, Error> {
        let opened = open(url, &options, Tables::Make).await?;
        Ok(Self::of(opened.expect("tables that are not there are made"), &options))
    }

    /// Opens the store at `url` if there is one. Creates nothing.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn open_existing(url: &str, options: Options) -> Result<Option<Self>, Error> {
        let opened = open(url, &options, Tables::Expect).await?;
        Ok(opened.map(|opened| Self::of(opened, &options)))
    }

    fn of((transactor, connector): (Transactor, Connector), options: &Options) -> Self {
        let heartbeat = Heartbeat::new(HeartbeatDeps {
            connector,
            names: Arc::clone(&transactor.names),
            checks: transactor.checks,
            bells: Arc::clone(&transactor.bells),
            failover: options.failover,
        });
        let transactor = Arc::new(transactor);
        Self {
            enqueues: GroupCommit::new(
                &transactor,
                |task| task.payload.len(),
                |transactor, tasks| Box::pin(batches::take_in(transactor, tasks)),
            ),
            starts: GroupCommit::new(
                &transactor,
                |_| 0,
                |transactor, starts| Box::pin(batches::begin(transactor, starts)),
            ),
            reports: GroupCommit::new(
                &transactor,
                |report| report.output.as_ref().map_or(0, String::len),
                |transactor, reports| Box::pin(batches::record(transactor, reports)),
            ),
            transactor,
            heartbeat,
            bounds: options.bounds,
        }
    }

    /// Enqueues tasks within the caller's transaction: they exist if and only if it commits. (From any language: `SELECT
    /// ostler.enqueue('mail', 'send', '{"to": "ann"}')`.)
    ///
    /// Unique keys and full queues are evaluated after the commit: a task whose key is taken by another task is dropped,
    /// and a task for a full queue waits until there is room. The open transaction blocks no other caller.
    ///
    /// # Errors
    /// If a task breaks a rule, or waits for one that the transaction does not see, or the transaction has failed.
    pub async fn enqueue_in(&self, transaction: &Transaction<'_>, tasks: Vec<NewTask>) -> Result<(), Error> {
        self.bounds.check_tasks(&tasks)?;
        inbox::add(transaction, &self.transactor.names, &tasks).await.map_err(fault)?;
        Ok(())
    }
}

impl Postgres {
    /// The locks of the tasks' queues.
    async fn queues_of(&self, tasks: &[TaskId]) -> Result<Locks, Error> {
        self.transactor.look(tasks, |conn, tasks| Box::pin(cancel::locks(conn, tasks))).await
    }
}

#[async_trait]
impl Store for Postgres {
    async fn join(&self, node: NewSession) -> Result<Fenced, Error> {
        check_session(&node)?;
        self.transactor.write(Locks::none(), &node, |tx, node| Box::pin(sessions::join(tx, node))).await
    }

    async fn renew(&self, session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error> {
        check_len("leases", held.len(), MAX_BATCH)?;
        let renewal = Renewal { session, held: held.to_vec(), now: self.transactor.time.given() };
        self.heartbeat.renew(renewal).await.map_err(fault)
    }

    async fn leave(&self, session: SessionId) -> Result<Fenced, Error> {
        let locks = self
            .transactor
            .look(&session, |conn, session| Box::pin(sessions::leave_locks(conn, *session)))
            .await?;
        self.transactor
            .write(locks, &session, |tx, session| Box::pin(ostler_sql::sessions::leave(tx, *session)))
            .await
    }

    async fn depart(&self, session: SessionId) -> Result<Fenced, Error> {
        let noted = self.heartbeat.depart(session).await.map_err(fault)?;
        Ok(if noted { Fenced::Recorded } else { Fenced::Lost })
    }

    async fn reply(&self, session: SessionId, answer: Reply) -> Result<Fenced, Error> {
        check_reply(&answer)?;
        let input = (session, answer);
        self.transactor
            .write(node_commands::locks(session), &input, |tx, (session, answer)| {
                Box::pin(ostler_sql::node_commands::reply(tx, *session, answer))
            })
            .await
    }

    async fn report(
        &self,
        session: SessionId,
        workers: Vec<Worker>,
        closed: Vec<Worker>,
    ) -> Result<Fenced, Error> {
        check_report(&workers, &closed)?;
        let input = (session, workers, closed);
        self.transactor
            .write(node_commands::locks(session), &input, |tx, (session, workers, closed)| {
                Box::pin(sessions::report(tx, *session, workers, closed))
            })
            .await
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error> {
        self.bounds.check_tasks(&tasks)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        self.enqueues.call(tasks).await.map_err(|(error, _)| error)
    }

    async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        check_claim(&claim)?;
        self.transactor.write(claim::locks(&claim), &claim, |tx, claim| Box::pin(claim::run(tx, claim))).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Fenced>, Error> {
        check_len("starts", starts.len(), MAX_BATCH)?;
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        self.starts.call(starts).await.map_err(|(error, _)| error)
    }

    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten> {
        if let Err(error) = self.bounds.check_reports(&reports) {
            return Err(Unwritten { error, reports });
        }
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        self.reports.call(reports).await.map_err(|(error, reports)| Unwritten { error, reports })
    }

    async fn append(&self, lease: LeaseRef, events: Vec<EventBody>) -> Result<Appended, Error> {
        self.bounds.check_events(&events)?;
        let stored: Vec<StoredEvent> = events.iter().map(stored).collect();
        let locks = events::locks(&self.transactor.cache, lease, &events);
        let input = (lease, events, stored);
        self.transactor
            .write(locks, &input, |tx, (lease, events, stored)| {
                Box::pin(events::append(tx, *lease, events, stored))
            })
            .await
    }

    async fn save_step(&self, lease: LeaseRef, step: NewStep) -> Result<Saved, Error> {
        self.bounds.check_step(&step)?;
        let input = (lease, step);
        self.transactor
            .write(Locks::none(), &input, |tx, (lease, step)| Box::pin(events::save_step(tx, *lease, step)))
            .await
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
        let asks = outbox::OutboxQuery {
            session,
            queue: queue.to_owned(),
            subscriber: subscriber.to_owned(),
            limit,
        };
        self.transactor
            .write(outbox::locks(session), &asks, |tx, asks| Box::pin(outbox::take(tx, asks)))
            .await
    }

    async fn ack_outbox(&self, session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error> {
        self.bounds.check_deliveries(&deliveries)?;
        if deliveries.is_empty() {
            return Ok(());
        }
        let input = (session, deliveries);
        self.transactor
            .write(Locks::none(), &input, |tx, (session, deliveries)| {
                Box::pin(outbox::ack(tx, *session, deliveries))
            })
            .await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        let locks = self.queues_of(&tasks).await?;
        self.transactor.write(locks, &tasks, |tx, tasks| Box::pin(ostler_sql::cancel::run(tx, tasks))).await
    }

    async fn replay(&self, tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        self.bounds.check_payload(how.payload.as_deref())?;
        let locks = self.queues_of(&tasks).await?;
        let input = (tasks, how);
        self.transactor
            .write(locks, &input, |tx, (tasks, how)| Box::pin(ostler_sql::replay::run(tx, tasks, how)))
            .await
    }

    async fn amend(&self, task: TaskId, overrides: Overrides) -> Result<Amended, Error> {
        check_overrides(&overrides)?;
        let input = (task, overrides);
        self.transactor
            .write(Locks::none(), &input, |tx, (task, overrides)| {
                Box::pin(ostler_sql::amend::run(tx, *task, overrides))
            })
            .await
    }

    async fn command(&self, session: SessionId, order: NodeCommand) -> Result<CommandAnswer, Error> {
        check_command(&order)?;
        let input = (session, order);
        self.transactor
            .write(node_commands::locks(session), &input, |tx, (session, order)| {
                Box::pin(ostler_sql::node_commands::command(tx, *session, order))
            })
            .await
    }

    async fn queue_settings(&self, queue: &str) -> Result<QueueSettings, Error> {
        self.bounds.check_changes(queue, &[])?;
        self.transactor.look(queue, |conn, queue| Box::pin(survey::settings(conn, queue))).await
    }

    async fn configure(&self, queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error> {
        self.bounds.check_changes(queue, &changes)?;
        if changes.is_empty() {
            return self.queue_settings(queue).await;
        }
        let input = (queue, changes);
        self.transactor
            .write(Locks::none().queue_alone(queue), &input, |tx, (queue, changes)| {
                Box::pin(async {
                    ostler_sql::configure::configure(tx, queue, changes).await?.map_err(Abort::Refused)
                })
            })
            .await
    }

    async fn change_account(&self, name: &str, change: AccountChange) -> Result<Account, Error> {
        check_account(name, &change)?;
        self.transactor
            .write(Locks::none().account(Some(name)), &(name, change), |tx, (name, change)| {
                Box::pin(async {
                    ostler_sql::accounts::change(tx, name, change).await?.map_err(Abort::Refused)
                })
            })
            .await
    }

    async fn call_breaker(&self, name: &str, policy: BreakerPolicy, what: BreakerUse) -> Result<Pass, Error> {
        check_call_breaker(name, policy)?;
        let input = (name, policy, what);
        self.transactor
            .write(
                Locks::none().and(LockTarget::CallBreaker(name.to_owned()), Mode::Exclusive),
                &input,
                |tx, (name, policy, what)| Box::pin(ostler_sql::call_breakers::run(tx, name, policy, *what)),
            )
            .await
    }

    async fn put_schedule(&self, schedule: Schedule) -> Result<PutAnswer, Error> {
        check_schedule(&schedule)?;
        self.transactor
            .write(schedules::put_locks(), &schedule, |tx, schedule| {
                Box::pin(ostler_sql::schedules::put(tx, schedule))
            })
            .await
    }

    async fn change_schedule(&self, name: &str, change: ScheduleChange) -> Result<ScheduleAnswer, Error> {
        let input = (name, change);
        self.transactor
            .write(Locks::none(), &input, |tx, (name, change)| {
                Box::pin(ostler_sql::schedules::change(tx, name, *change))
            })
            .await
    }

    async fn fire(&self, firing: Firing) -> Result<Fired, Error> {
        self.bounds.check_firing(&firing)?;
        let locks = self
            .transactor
            .look(&firing, |conn, firing| Box::pin(schedules::fire_locks(conn, firing)))
            .await?;
        self.transactor
            .write(locks, &firing, |tx, firing| Box::pin(ostler_sql::schedules::fire(tx, firing)))
            .await
    }

    async fn put_job(&self, job: NewJob) -> Result<JobPut, Error> {
        check_job(&job)?;
        self.transactor.write(Locks::none(), &job, |tx, job| Box::pin(ostler_sql::jobs::put(tx, job))).await
    }

    async fn change_job(&self, job: JobId, change: JobChange) -> Result<JobAnswer, Error> {
        let input = (job, change);
        self.transactor
            .write(jobs::change_locks(job, change), &input, |tx, (job, change)| {
                Box::pin(ostler_sql::jobs::change(tx, *job, *change))
            })
            .await
    }

    async fn expire(&self, batch: usize) -> Result<Expired, Error> {
        check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
        let (checks, now, known) =
            (self.transactor.checks, self.transactor.time.given(), self.heartbeat.dead().await);
        let asked = expire::ExpiryQuery { checks, now, batch, known };
        let work = self.transactor.look(&asked, |conn, asked| Box::pin(expire::work(conn, asked))).await?;
        // Usually there is nothing to do; skip the write.
        if work.dead.is_empty() && !work.unswept {
            return Ok(Expired::default());
        }
        let input = (work.dead, batch);
        self.transactor
            .write(work.locks, &input, |tx, (dead, batch)| Box::pin(expire::run(tx, dead, *batch)))
            .await
    }

    async fn make_ready(&self, batch: usize) -> Result<MadeReady, Error> {
        check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
        let asked = (self.transactor.time.given(), batch);
        fn look<'t>(
            conn: &'t Conn,
            (now, batch): &'t (Option<i64>, usize),
        ) -> VerbFuture<'t, make_ready::DueWork> {
            Box::pin(make_ready::work(conn, *now, *batch))
        }
        let mut work = self.transactor.look(&asked, look).await?;
        let waits = work.waits;
        if waits {
            // There may be room by now.
            self.transactor.take_in(inbox::Which::Waiting).await?;
            work = self.transactor.look(&asked, look).await?;
        }
        // Usually there is nothing to do; skip the write.
        let made = match work.locks {
            Some(locks) => {
                self.transactor
                    .write(locks, &batch, |tx, batch| Box::pin(ostler_sql::make_ready::run(tx, *batch)))
                    .await?
            }
            None => MadeReady { next: work.next, ..MadeReady::default() },
        };
        let again = waits.then(|| work.now.after(make_ready::LOOK_AGAIN));
        Ok(MadeReady { next: [made.next, again].into_iter().flatten().min(), ..made })
    }

    async fn prune(&self, what: Prune) -> Result<Pruned, Error> {
        match what {
            Prune::Retention(keep) => {
                check_len("batch", keep.batch, MAX_MAINTENANCE_BATCH)?;
                let asked = (keep, self.transactor.time.given());
                let locks = self
                    .transactor
                    .look(&asked, |conn, (keep, now)| Box::pin(prune::locks(conn, keep, *now)))
                    .await?;
                self.transactor.write(locks, &keep, |tx, keep| Box::pin(prune::retention(tx, keep))).await
            }
            Prune::Tasks(tasks) => {
                check_len("tasks", tasks.len(), MAX_BATCH)?;
                let locks = self.queues_of(&tasks).await?;
                self.transactor
                    .write(locks, &tasks, |tx, tasks| Box::pin(ostler_sql::prune::tasks(tx, tasks)))
                    .await
            }
            Prune::Orphans { older, batch } => {
                check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
                self.transactor
                    .write(Locks::none(), &(older, batch), |tx, (older, batch)| {
                        Box::pin(ostler_sql::prune::orphans(tx, *older, *batch))
                    })
                    .await
            }
        }
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        let given = self.transactor.time.given();
        self.transactor.look(&given, |conn, given| Box::pin(survey::now(conn, *given))).await
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        check_len("page", limit, MAX_PAGE)?;
        filter.check_cursor(after)?;
        let asked = (ListCall { filter: &filter, after, limit }, self.transactor.time.given());
        self.transactor.look(&asked, |conn, (call, now)| Box::pin(list::list(conn, call, *now))).await
    }

    async fn show(&self, which: TaskRef) -> Result<Option<TaskDetail>, Error> {
        self.transactor.look(&which, |conn, which| Box::pin(ostler_sql::queries::show(conn, which))).await
    }

    async fn find_ids(&self, part: IdPart, limit: usize) -> Result<FoundIds, Error> {
        check_len("ids", limit, MAX_PAGE)?;
        let asked = (part, limit);
        let read = self
            .transactor
            .look(&asked, |conn, (part, limit)| Box::pin(ostler_sql::queries::find_ids(conn, *part, *limit)));
        read.await
    }

    async fn existing(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>, Error> {
        check_len("tasks", tasks.len(), MAX_PAGE)?;
        self.transactor.look(&tasks, |conn, tasks| Box::pin(ostler_sql::queries::existing(conn, tasks))).await
    }

    async fn read_events(&self, task: TaskId, query: EventQuery) -> Result<Vec<Event>, Error> {
        check_len("events", query.limit, MAX_PAGE)?;
        let asked = (task, query);
        self.transactor
            .look(&asked, |conn, (task, query)| Box::pin(ostler_sql::events::read(conn, *task, *query)))
            .await
    }

    async fn read_text(
        &self,
        task: TaskId,
        text: TextRef,
        from: u64,
        most: usize,
    ) -> Result<Option<TextPart>, Error> {
        check_len("bytes", most, MAX_EVENT_BYTES)?;
        let asked = (task, text, from, most);
        let read = self.transactor.look(&asked, |conn, (task, text, from, most)| {
            Box::pin(ostler_sql::events::read_text(conn, *task, *text, *from, *most))
        });
        read.await
    }

    async fn survey(&self) -> Result<Survey, Error> {
        let now = self.transactor.time.given();
        self.transactor.look(&now, |conn, now| Box::pin(survey::survey(conn, *now))).await
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>, Error> {
        let given = self.transactor.time.given();
        self.transactor.look(&given, |conn, given| Box::pin(survey::accounts(conn, *given))).await
    }

    async fn call_breakers(&self) -> Result<Vec<CallBreakerRecord>, Error> {
        self.transactor.look(&(), |conn, ()| Box::pin(ostler_sql::call_breakers::list(conn))).await
    }

    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRecord>, Error> {
        check_len("costs", query.limit, MAX_PAGE)?;
        self.transactor.look(&query, |conn, query| Box::pin(ostler_sql::costs::list(conn, query))).await
    }

    async fn gone_workers(&self, limit: usize) -> Result<Vec<GoneWorker>, Error> {
        check_len("workers", limit, MAX_PAGE)?;
        self.transactor
            .look(&limit, |conn, limit| Box::pin(ostler_sql::gone_workers::list(conn, *limit)))
            .await
    }

    async fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error> {
        check_backlog(queue, kinds, limit)?;
        let asked = survey::Backlog { queue, kinds, limit, now: self.transactor.time.given() };
        self.transactor.look(&asked, |conn, asked| Box::pin(survey::backlog(conn, asked))).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error> {
        self.transactor.look(&(), |conn, ()| Box::pin(schedules::list(conn))).await
    }

    async fn jobs(&self, filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error> {
        check_len("page", limit, MAX_PAGE)?;
        let asked = (filter, limit);
        self.transactor.look(&asked, |conn, (filter, limit)| Box::pin(jobs::list(conn, filter, *limit))).await
    }

    fn wakeups(&self) -> Wakeups {
        self.transactor.bells.ready.listen()
    }

    fn control(&self) -> Wakeups {
        self.transactor.bells.control.listen()
    }

    fn changes(&self) -> Changes {
        let transactor = Arc::clone(&self.transactor);
        Changes::new(self.transactor.bells.changed.listen(), move || transactor.notifier.watch())
    }
}
