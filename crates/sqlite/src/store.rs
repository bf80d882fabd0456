//! The SQLite store: implements the store contract on top of the writer and the readers.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
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
    Cursor, Filter, FoundIds, GoneWorker, LeaseFilter, Page, QueueSettings, Survey, TaskDetail, TaskRef,
};
use ostler_store::{
    Bells, Bounds, Changes, Check, Checks, Clock, Error, LeaseRef, MAX_BATCH, MAX_EVENT_BYTES,
    MAX_MAINTENANCE_BATCH, MAX_PAGE, Store, Wakeups, check_backlog, check_claim, check_command, check_job,
    check_len, check_name, check_overrides, check_reply, check_report, check_schedule, check_session,
};

use rusqlite::Connection;

use crate::liveness::LivenessFiles;
use crate::move_source::refuse_gone;
use crate::notifier::Notifier;
use crate::open::{Files, OpenFile, open};
use crate::readers::Readers;
use crate::shared_tx::ReadView;
use crate::tx::Tx;
use crate::tx::read_queue;
use crate::verbs::{
    claim, enqueue, events, expire, finish, jobs, make_ready, outbox, prune, schedules, sessions, start,
    survey,
};
use crate::writer::{Writer, WriterThread};
use ostler_sql::poll_now;
use ostler_sql::queries::ListCall;

/// Reader threads.
const READERS: usize = 2;

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Survives loss of power: every commit waits for the disk.
    #[default]
    Full,
    /// Survives the death of the process, but loss of power may take the last commits. Much faster on a slow disk.
    Relaxed,
}

/// The options for opening a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub durability: Durability,
    /// The bounds that an owner may set.
    pub bounds: Bounds,
    /// The checks made by the store: all of them, outside of tests.
    pub checks: Checks,
}

/// A store in one SQLite file.
pub struct Sqlite {
    // Drop order matters: the writer stops first and finishes the verbs it was given.
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    notifier: Arc<Notifier>,
    pub(crate) liveness: Arc<LivenessFiles>,
    bells: Arc<Bells>,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    checks: Checks,
    path: PathBuf,
    files: Files,
}

impl Sqlite {
    /// Opens the store at `path`; creates it if there is none.
    ///
    /// # Errors
    /// If the file is not an Ostler store, is damaged, or may not be written; it is then left as it is. See
    /// [`kind`](Error::kind).
    pub fn open(path: impl AsRef<Path>, clock: Arc<dyn Clock>, options: Options) -> Result<Self, Error> {
        let opened = open(path.as_ref(), options.durability, READERS)?;
        refuse_gone(&opened)?;
        Self::serve(opened, clock, options)
    }

    /// Opens the store even if it has moved: for the move itself.
    pub(crate) fn open_leaving(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let options = Options::default();
        Self::serve(open(path, options.durability, READERS)?, clock, options)
    }

    fn serve(opened: OpenFile, clock: Arc<dyn Clock>, options: Options) -> Result<Self, Error> {
        let OpenFile { path, folder, owner, files, turnstile, writer, readers } = opened;
        let bells = Arc::new(Bells::default());
        let liveness = Arc::new(LivenessFiles::open(&folder, owner, Arc::clone(&clock))?);
        let notifier = Arc::new(Notifier::new(&folder, Arc::clone(&bells), Arc::clone(&clock)));
        let readers = Readers::start(readers, files.clone(), &clock)?;
        let writer = Writer::start(WriterThread {
            conn: writer,
            path: path.clone(),
            files: files.clone(),
            turnstile,
            liveness: Arc::clone(&liveness),
            notifier: Arc::clone(&notifier),
            clock: Arc::clone(&clock),
            checks: options.checks,
        })?;
        let Options { bounds, checks, .. } = options;
        Ok(Self { writer, readers, notifier, liveness, bells, clock, bounds, checks, path, files })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Releases a session's lock without ending the session, as a killed process does.
    #[cfg(feature = "conformance")]
    pub fn kill(&self, session: SessionId) {
        self.liveness.drop_lock(session);
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn join(&self, node: NewSession) -> Result<Fenced, Error> {
        check_session(&node)?;
        let session = node.id;
        // The lock precedes the row: a process that sees the row can tell whether the node is alive.
        if !self.liveness.begin(session, node.ttl)? {
            return Ok(Fenced::Lost);
        }
        let joined = self.writer.write("join", move |tx| sessions::join(tx, &node)).await;
        if !matches!(joined, Ok(Fenced::Recorded)) {
            self.liveness.end(session);
        }
        joined
    }

    async fn renew(&self, session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error> {
        check_len("leases", held.len(), MAX_BATCH)?;
        // The heartbeat comes first and needs no database: a busy writer, a slow reader or a full disk does not delay it.
        if !self.checks.pass(Check::RenewSession, self.liveness.is_in_time(session)) {
            return Ok(Renewed::Ended);
        }
        self.liveness.beat(session)?;
        // A node that writes nothing for a long time learns here that its file was replaced.
        self.files.check()?;
        let held = held.to_vec();
        let checks = self.checks;
        let news = move |conn: &Connection| {
            let open = sessions::is_open(conn, session)?;
            if !checks.pass(Check::RenewSession, open) {
                return Ok(Renewed::Ended);
            }
            sessions::news(conn, session, &held)
        };
        self.readers.read(news).await
    }

    async fn leave(&self, session: SessionId) -> Result<Fenced, Error> {
        let left =
            self.writer.write("leave", move |tx| poll_now(ostler_sql::sessions::leave(tx, session))).await?;
        if left == Fenced::Recorded {
            self.liveness.end(session);
        }
        Ok(left)
    }

    async fn depart(&self, session: SessionId) -> Result<Fenced, Error> {
        // Written to the liveness file: this needs no database, no turn, and no disk space.
        Ok(if self.liveness.depart(session)? { Fenced::Recorded } else { Fenced::Lost })
    }

    async fn reply(&self, session: SessionId, answer: Reply) -> Result<Fenced, Error> {
        check_reply(&answer)?;
        self.writer
            .write("reply", move |tx| poll_now(ostler_sql::node_commands::reply(tx, session, &answer)))
            .await
    }

    async fn report(
        &self,
        session: SessionId,
        workers: Vec<Worker>,
        closed: Vec<Worker>,
    ) -> Result<Fenced, Error> {
        check_report(&workers, &closed)?;
        self.writer.write("report", move |tx| sessions::report(tx, session, &workers, &closed)).await
    }

    fn liveness_lock(&self, session: SessionId) -> Result<Option<OwnedFd>, Error> {
        self.liveness.liveness_lock(session)
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error> {
        self.bounds.check_tasks(&tasks)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        self.writer.write("enqueue", move |tx| enqueue::run(tx, &tasks)).await
    }

    async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        check_claim(&claim)?;
        self.writer.write("claim", move |tx| claim::run(tx, &claim)).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Fenced>, Error> {
        check_len("starts", starts.len(), MAX_BATCH)?;
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        self.writer.write("start", move |tx| start::run(tx, &starts)).await
    }

    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten> {
        if let Err(error) = self.bounds.check_reports(&reports) {
            return Err(Unwritten { error, reports });
        }
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let kept = Arc::new(reports);
        let reports = Arc::clone(&kept);
        let finished = self.writer.write("finish", move |tx| finish::run(tx, &reports)).await;
        finished.map_err(|error| {
            // The writer drops its reference before it replies. If it died instead, the leases died with it.
            Unwritten { error, reports: Arc::try_unwrap(kept).unwrap_or_default() }
        })
    }

    async fn append(&self, lease: LeaseRef, events: Vec<EventBody>) -> Result<Appended, Error> {
        self.bounds.check_events(&events)?;
        let stored: Vec<StoredEvent> = events.iter().map(stored).collect();
        self.writer.write("append", move |tx| events::append(tx, lease, &events, &stored)).await
    }

    async fn save_step(&self, lease: LeaseRef, step: NewStep) -> Result<Saved, Error> {
        self.bounds.check_step(&step)?;
        self.writer.write("save_step", move |tx| events::save_step(tx, lease, &step)).await
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
        let (queue, liveness, checks) = (queue.to_owned(), Arc::clone(&self.liveness), self.checks);
        let (asked, subscriber) = (queue.clone(), subscriber.to_owned());
        let name = subscriber.clone();
        let look = move |conn: &Connection| {
            let live = sessions::is_open(conn, session)? && liveness.is_in_time(session);
            if !checks.pass(Check::HearSession, live) {
                return Ok(Some(OutboxAnswer::SessionEnded));
            }
            Ok((!outbox::any(conn, &asked, &name)?).then(|| OutboxAnswer::Entries(Vec::new())))
        };
        // Usually there is nothing to dispatch; skip the write.
        if let Some(heard) = self.readers.read(look).await? {
            return Ok(heard);
        }
        self.writer
            .write("take_outbox", move |tx| outbox::take(tx, session, &queue, &subscriber, limit))
            .await
    }

    async fn ack_outbox(&self, session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error> {
        self.bounds.check_deliveries(&deliveries)?;
        if deliveries.is_empty() {
            return Ok(());
        }
        self.writer.write("ack_outbox", move |tx| outbox::ack(tx, session, &deliveries)).await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        self.writer.write("cancel", move |tx| poll_now(ostler_sql::cancel::run(tx, &tasks))).await
    }

    async fn replay(&self, tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        self.bounds.check_payload(how.payload.as_deref())?;
        self.writer.write("replay", move |tx| poll_now(ostler_sql::replay::run(tx, &tasks, &how))).await
    }

    async fn amend(&self, task: TaskId, overrides: Overrides) -> Result<Amended, Error> {
        check_overrides(&overrides)?;
        self.writer.write("amend", move |tx| poll_now(ostler_sql::amend::run(tx, task, &overrides))).await
    }

    async fn command(&self, session: SessionId, order: NodeCommand) -> Result<CommandAnswer, Error> {
        check_command(&order)?;
        self.writer
            .write("command", move |tx| poll_now(ostler_sql::node_commands::command(tx, session, &order)))
            .await
    }

    async fn queue_settings(&self, queue: &str) -> Result<QueueSettings, Error> {
        self.bounds.check_changes(queue, &[])?;
        let queue = queue.to_owned();
        let settings = move |conn: &Connection| Ok(read_queue(conn, &queue)?.map(|queue| queue.settings));
        Ok(self.readers.read(settings).await?.unwrap_or_default())
    }

    async fn configure(&self, queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error> {
        self.bounds.check_changes(queue, &changes)?;
        if changes.is_empty() {
            return self.queue_settings(queue).await;
        }
        let queue = queue.to_owned();
        self.writer
            .write("configure", move |tx| poll_now(ostler_sql::configure::configure(tx, &queue, &changes)))
            .await?
    }

    async fn change_account(&self, name: &str, change: AccountChange) -> Result<Account, Error> {
        check_account(name, &change)?;
        let name = name.to_owned();
        let change = move |tx: &mut Tx<'_>| poll_now(ostler_sql::accounts::change(tx, &name, &change));
        self.writer.write("change_account", change).await?
    }

    async fn call_breaker(&self, name: &str, policy: BreakerPolicy, what: BreakerUse) -> Result<Pass, Error> {
        check_call_breaker(name, policy)?;
        let name = name.to_owned();
        let call = move |tx: &mut Tx<'_>| poll_now(ostler_sql::call_breakers::run(tx, &name, &policy, what));
        self.writer.write("call_breaker", call).await
    }

    async fn put_schedule(&self, schedule: Schedule) -> Result<PutAnswer, Error> {
        check_schedule(&schedule)?;
        self.writer.write("put_schedule", move |tx| poll_now(ostler_sql::schedules::put(tx, &schedule))).await
    }

    async fn change_schedule(&self, name: &str, change: ScheduleChange) -> Result<ScheduleAnswer, Error> {
        let name = name.to_owned();
        let change = move |tx: &mut Tx<'_>| poll_now(ostler_sql::schedules::change(tx, &name, change));
        self.writer.write("change_schedule", change).await
    }

    async fn fire(&self, firing: Firing) -> Result<Fired, Error> {
        self.bounds.check_firing(&firing)?;
        self.writer.write("fire", move |tx| poll_now(ostler_sql::schedules::fire(tx, &firing))).await
    }

    async fn put_job(&self, job: NewJob) -> Result<JobPut, Error> {
        check_job(&job)?;
        self.writer.write("put_job", move |tx| poll_now(ostler_sql::jobs::put(tx, &job))).await
    }

    async fn change_job(&self, job: JobId, change: JobChange) -> Result<JobAnswer, Error> {
        self.writer.write("change_job", move |tx| poll_now(ostler_sql::jobs::change(tx, job, change))).await
    }

    async fn expire(&self, batch: usize) -> Result<Expired, Error> {
        check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
        let suspects = self.readers.read(expire::suspects).await?;
        let is_dead = |session, ttl| self.checks.pass(Check::ExpireDead, self.liveness.is_over(session, ttl));
        let open = suspects.open.into_iter().filter(|(session, ttl)| is_dead(*session, *ttl));
        let over =
            |(session, _)| expire::DeadSession { session, departed: self.liveness.has_departed(session) };
        let dead: Vec<expire::DeadSession> = open.map(over).collect();
        // Usually there is nothing to do; skip the write.
        if dead.is_empty() && !suspects.unswept {
            return Ok(Expired::default());
        }
        let expired = self.writer.write("expire", move |tx| expire::run(tx, &dead, batch)).await?;
        for session in &expired.sessions {
            self.liveness.end(*session);
        }
        Ok(expired)
    }

    async fn make_ready(&self, batch: usize) -> Result<MadeReady, Error> {
        check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
        let now = self.clock.now();
        let next = self.readers.read(move |conn| make_ready::next(conn, now)).await?;
        // Usually there is nothing to do; skip the write.
        if next.is_none_or(|next| next > now) {
            return Ok(MadeReady { next, ..MadeReady::default() });
        }
        self.writer.write("make_ready", move |tx| poll_now(ostler_sql::make_ready::run(tx, batch))).await
    }

    async fn prune(&self, what: Prune) -> Result<Pruned, Error> {
        match what {
            Prune::Retention(keep) => {
                check_len("batch", keep.batch, MAX_MAINTENANCE_BATCH)?;
                self.writer.write("prune", move |tx| prune::retention(tx, &keep)).await
            }
            Prune::Tasks(tasks) => {
                check_len("tasks", tasks.len(), MAX_BATCH)?;
                self.writer.write("prune", move |tx| poll_now(ostler_sql::prune::tasks(tx, &tasks))).await
            }
            Prune::Orphans { older, batch } => {
                check_len("batch", batch, MAX_MAINTENANCE_BATCH)?;
                let sweep = move |tx: &mut Tx<'_>| poll_now(ostler_sql::prune::orphans(tx, older, batch));
                self.writer.write("prune", sweep).await
            }
        }
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        check_len("page", limit, MAX_PAGE)?;
        filter.check_cursor(after)?;
        let liveness = Arc::clone(&self.liveness);
        self.readers
            .read(move |conn| {
                let open: HashSet<SessionId> = match filter.lease {
                    LeaseFilter::Any => HashSet::new(),
                    LeaseFilter::Stale => {
                        expire::suspects(conn)?.open.into_iter().map(|(id, _)| id).collect()
                    }
                };
                let alive = |session| open.contains(&session) && liveness.is_in_time(session);
                let call = ListCall { filter: &filter, after, limit };
                poll_now(ostler_sql::queries::list(&ReadView(conn), &call, alive))
            })
            .await
    }

    async fn show(&self, which: TaskRef) -> Result<Option<TaskDetail>, Error> {
        self.readers.read(move |conn| poll_now(ostler_sql::queries::show(&ReadView(conn), &which))).await
    }

    async fn find_ids(&self, part: IdPart, limit: usize) -> Result<FoundIds, Error> {
        check_len("ids", limit, MAX_PAGE)?;
        let read = move |conn: &_| poll_now(ostler_sql::queries::find_ids(&ReadView(conn), part, limit));
        self.readers.read(read).await
    }

    async fn existing(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>, Error> {
        check_len("tasks", tasks.len(), MAX_PAGE)?;
        self.readers.read(move |conn| poll_now(ostler_sql::queries::existing(&ReadView(conn), &tasks))).await
    }

    async fn read_events(&self, task: TaskId, query: EventQuery) -> Result<Vec<Event>, Error> {
        check_len("events", query.limit, MAX_PAGE)?;
        self.readers.read(move |conn| poll_now(ostler_sql::events::read(&ReadView(conn), task, query))).await
    }

    async fn read_text(
        &self,
        task: TaskId,
        text: TextRef,
        from: u64,
        most: usize,
    ) -> Result<Option<TextPart>, Error> {
        check_len("bytes", most, MAX_EVENT_BYTES)?;
        let read = move |conn: &Connection| {
            poll_now(ostler_sql::events::read_text(&ReadView(conn), task, text, from, most))
        };
        self.readers.read(read).await
    }

    async fn survey(&self) -> Result<Survey, Error> {
        let liveness = Arc::clone(&self.liveness);
        let now = self.clock.now();
        self.readers.read(move |conn| survey::survey(conn, now, |session| liveness.is_in_time(session))).await
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>, Error> {
        let now = self.now().await?;
        self.readers.read(move |conn| survey::accounts(conn, now)).await
    }

    async fn call_breakers(&self) -> Result<Vec<CallBreakerRecord>, Error> {
        self.readers.read(|conn| poll_now(ostler_sql::call_breakers::list(&ReadView(conn)))).await
    }

    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRecord>, Error> {
        check_len("costs", query.limit, MAX_PAGE)?;
        self.readers.read(move |conn| poll_now(ostler_sql::costs::list(&ReadView(conn), &query))).await
    }

    async fn gone_workers(&self, limit: usize) -> Result<Vec<GoneWorker>, Error> {
        check_len("workers", limit, MAX_PAGE)?;
        let read = move |conn: &_| poll_now(ostler_sql::gone_workers::list(&ReadView(conn), limit));
        self.readers.read(read).await
    }

    async fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error> {
        check_backlog(queue, kinds, limit)?;
        let (queue, kinds, now) = (queue.to_owned(), kinds.clone(), self.clock.now());
        self.readers.read(move |conn| survey::backlog(conn, &queue, &kinds, limit, now)).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error> {
        self.readers.read(schedules::list).await
    }

    async fn jobs(&self, filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error> {
        check_len("page", limit, MAX_PAGE)?;
        self.readers.read(move |conn| jobs::list(conn, &filter, limit)).await
    }

    fn wakeups(&self) -> Wakeups {
        self.notifier.listen();
        self.bells.ready.listen()
    }

    fn control(&self) -> Wakeups {
        self.notifier.listen();
        self.bells.control.listen()
    }

    fn changes(&self) -> Changes {
        let notifier = Arc::clone(&self.notifier);
        Changes::new(self.bells.changed.listen(), move || notifier.watch())
    }
}
