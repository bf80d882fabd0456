//! The store contract: the verbs that every store implements.

use std::os::fd::OwnedFd;

use async_trait::async_trait;
use ostler_core::{
    Account, AccountChange, BreakerPolicy, EventBody, IdPart, JobId, Overrides, Pass, SessionId, TaskId,
    Timestamp, Worker,
};

use crate::accounts::AccountRecord;
use crate::call_breakers::{BreakerUse, CallBreakerRecord};
use crate::calls::Amended;
use crate::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Enqueued, Expired, Fenced, Finished, Kinds, MadeReady,
    NewSession, NewStep, NewTask, Prune, Pruned, QueueChange, Renewed, Replay, ReplayAnswer, Report, Saved,
    Start, Unwritten,
};
use crate::changes::Changes;
use crate::costs::{CostQuery, CostRecord};
use crate::error::Error;
use crate::events::{Event, EventQuery, TextPart, TextRef};
use crate::jobs::{JobAnswer, JobChange, JobFilter, JobPut, JobRecord, NewJob};
use crate::lease::LeaseRef;
use crate::node_commands::{CommandAnswer, NodeCommand, Reply};
use crate::outbox::{Ack, OutboxAnswer};
use crate::schedules::{Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, ScheduleRecord};
use crate::views::{Cursor, Filter, FoundIds, GoneWorker, Page, QueueSettings, Survey, TaskDetail, TaskRef};
use crate::wake::Wakeups;

/// A durable store of tasks.
///
/// When a verb returns `Ok`, its effect is durable. A verb that returns an [`Error`] has written nothing. Each verb is
/// one transaction: other callers see all of its effect or none. A verb that takes a list answers item by item, in order.
///
/// A store makes no rules: it asks `ostler_core` for each decision and writes the answer. The conformance suite
/// is the precise specification of every verb; the in-memory reference beside it is the readable one.
#[async_trait]
pub trait Store: Send + Sync {
    // ---- nodes: a live session proves that its node is alive ----

    /// Registers a node under a new session. [`Fenced::Lost`]: the session exists already.
    async fn join(&self, node: NewSession) -> Result<Fenced, Error>;

    /// Extends all leases of the session by its TTL. `held` names the leases that the node believes it holds. Returns the leased tasks
    /// with a requested cancellation, the named leases that are lost, the leases that the node did not name, and the node commands.
    /// An ended or overdue session is not renewed.
    async fn renew(&self, session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error>;

    /// Ends the session when its node shuts down: hands back the tasks that it still holds, the oldest first. An overdue node that was
    /// not yet found dead may still leave.
    async fn leave(&self, session: SessionId) -> Result<Fenced, Error>;

    /// Marks the session as shutting down on purpose, in case the node is gone before `leave` is written: when the session is
    /// found dead or overdue, it ends as by `leave`, and no node death is counted. Until then nothing changes. Does not wait for
    /// its turn to write, nor for locks of other writers.
    async fn depart(&self, session: SessionId) -> Result<Fenced, Error>;

    /// Records what the node did about a node command. The reply is shown with the node for as long as the command is kept; a reply to a
    /// command that is no longer kept is dropped.
    async fn reply(&self, session: SessionId, answer: Reply) -> Result<Fenced, Error>;

    /// Records all workers of the node, replacing its previous report, and those that were closed since. The newest
    /// [`MAX_GONE_WORKERS`](crate::MAX_GONE_WORKERS) of these are kept; so are the workers of a session when it ends.
    async fn report(
        &self,
        session: SessionId,
        workers: Vec<Worker>,
        closed: Vec<Worker>,
    ) -> Result<Fenced, Error>;

    /// A file descriptor that holds the session's liveness lock: while any process holds it, or a duplicate of it, the session is
    /// not found dead before its last renewal runs out. For the supervisor that kills the node's work after the node has died: no
    /// other node restarts that work before. `None`: this store or process has no such lock.
    ///
    /// # Errors
    /// When there is a lock, but it cannot be duplicated.
    fn liveness_lock(&self, _session: SessionId) -> Result<Option<OwnedFd>, Error> {
        Ok(None)
    }

    // ---- the life of a task ----

    /// Adds tasks. A repeated id returns the existing task; `ostler_core::conflict` decides about a repeated
    /// unique key. A task with dependencies is freed, or cancelled, by the verb that ends the last of them, as
    /// `ostler_core::release` decides; one verb processes up to [`MAX_CASCADE`](crate::MAX_CASCADE) dependents, and `make_ready` the rest.
    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error>;

    /// Leases the ready tasks of lowest rank to a session, and increments their tokens. Asks the gates of the queue and of limit keys, its
    /// account, and its budgets: each task has the expected cost reserved, until its attempt ends. A reached budget pauses its queue.
    async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, Error>;

    /// Records that attempts have started. Idempotent.
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Fenced>, Error>;

    /// Records the outcomes of attempts, and moves their tasks as `ostler_core::decide` says.
    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten>;

    /// Appends events to a task, in order, numbered from one. Prompt, conversation and usage are recorded with the attempt, too; usage is
    /// also added to the [costs](Store::costs), and spent from the budgets that the attempt is charged to.
    async fn append(&self, lease: LeaseRef, events: Vec<EventBody>) -> Result<Appended, Error>;

    /// Saves a step. A saved step never changes.
    async fn save_step(&self, lease: LeaseRef, step: NewStep) -> Result<Saved, Error>;

    // ---- outbox: outcomes that are delivered at least once ----

    /// Gives a session the oldest outbox entries of a queue for this subscriber that no session has taken. They stay with the session
    /// until it acknowledges them or ends; then the unacknowledged ones are available to the next session that asks.
    async fn take_outbox(
        &self,
        session: SessionId,
        queue: &str,
        subscriber: &str,
        limit: usize,
    ) -> Result<OutboxAnswer, Error>;

    /// Acknowledges outbox entries: those that the session has taken are removed, and their warnings are appended to the events of
    /// their tasks. Others are left as they are.
    async fn ack_outbox(&self, session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error>;

    // ---- user requests ----

    /// Cancels tasks that are not leased; marks leased ones, so that their workers get a stop signal.
    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error>;

    /// Queues failed and cancelled tasks again, and makes tasks due now that wait for a time.
    async fn replay(&self, tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error>;

    /// Changes policy values of a task that is not in a terminal state. Values that are `None` stay unchanged.
    async fn amend(&self, task: TaskId, overrides: Overrides) -> Result<Amended, Error>;

    /// Sends a command to a node. The node receives it with every renewal until its session ends.
    async fn command(&self, session: SessionId, order: NodeCommand) -> Result<CommandAnswer, Error>;

    /// The settings of a queue; the defaults, if there is no such queue.
    async fn queue_settings(&self, queue: &str) -> Result<QueueSettings, Error>;

    /// Changes the settings of a queue, and returns all of them. From then on claims ask the new settings, also for tasks that already wait,
    /// and those that wait for a limit that is now wider are claimable at once.
    ///
    /// What started under one rate counts as used of the next: a lower rate holds at once, for a whole window of it at most; a higher one
    /// does not wait until its burst is refilled, so what its amount has left may start at once, up to its burst. A rate that is raised
    /// and lowered again gives nothing more. A rate that is removed is forgotten: one that is set later begins with a full burst.
    async fn configure(&self, queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error>;

    // ---- breakers around the calls of handlers ----

    /// Asks the breaker of this name whether a call may be made, or reports one: applies the rules of `ostler_core::Breaker`. A
    /// report is answered with [`Pass::Go`]. Reports need no lease: what became of a call is true even if the lease is lost.
    async fn call_breaker(&self, name: &str, policy: BreakerPolicy, what: BreakerUse) -> Result<Pass, Error>;

    // ---- accounts: limits that queues share ----

    /// Holds or releases an account, or sets its concurrency. Returns the account as of now.
    async fn change_account(&self, name: &str, change: AccountChange) -> Result<Account, Error>;

    // ---- schedules ----

    /// Creates a schedule, or replaces the one with the same name.
    async fn put_schedule(&self, schedule: Schedule) -> Result<PutAnswer, Error>;

    /// Removes a schedule, pauses it, or resumes it.
    async fn change_schedule(&self, name: &str, change: ScheduleChange) -> Result<ScheduleAnswer, Error>;

    /// Fires a schedule that is due: enqueues its run, as `ostler_core::fire` decides, and advances the schedule to its next
    /// time. Of all callers that fire the same time, exactly one succeeds.
    async fn fire(&self, firing: Firing) -> Result<Fired, Error>;

    // ---- jobs: many tasks created together ----

    /// Creates a job. Idempotent.
    async fn put_job(&self, job: NewJob) -> Result<JobPut, Error>;

    /// Cancels, reopens or removes a job.
    async fn change_job(&self, job: JobId, change: JobChange) -> Result<JobAnswer, Error>;

    // ---- maintenance: idempotent, safe on all nodes at once, in batches ----

    /// Ends sessions that are dead or overdue, and takes up to `batch` tasks from ended sessions, the oldest first; a session that
    /// [departed](Store::depart) hands back all of its tasks instead. A session is overdue when it has not renewed for its TTL. It is
    /// dead when its end is detected sooner: on one host, when no process holds its [liveness lock](Store::liveness_lock); on a server,
    /// when its connection is gone and it has not renewed for some seconds after that. A store that cannot detect this waits for the TTL.
    async fn expire(&self, batch: usize) -> Result<Expired, Error>;

    /// Ends tasks that are too late, processes dependents of ended tasks, then makes due tasks ready, up to `batch` in all,
    /// the earliest due first.
    async fn make_ready(&self, batch: usize) -> Result<MadeReady, Error>;

    /// Removes tasks in terminal states with everything that belongs to them, and, by retention, old jobs without tasks, with their queues;
    /// their counters are added to the queue [`FORMER_JOBS`](crate::jobs::FORMER_JOBS).
    async fn prune(&self, what: Prune) -> Result<Pruned, Error>;

    // ---- queries ----

    /// The time by which this store decides, regardless of the caller's clock.
    async fn now(&self) -> Result<Timestamp, Error>;

    /// Tasks that match the filter, in its order, starting after the cursor.
    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error>;

    /// One task with its attempts and steps; `None`: there is no such task.
    async fn show(&self, which: TaskRef) -> Result<Option<TaskDetail>, Error>;

    /// Tasks whose id begins or ends with this, the highest ids first, up to `limit`. A beginning is found along an index; for an end
    /// the [`MAX_ID_SCAN`](crate::MAX_ID_SCAN) highest ids are looked at, and no more.
    async fn find_ids(&self, part: IdPart, limit: usize) -> Result<FoundIds, Error>;

    /// Those of these tasks that exist, in the order asked.
    async fn existing(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>, Error>;

    /// Events of a task, in order. Returns fewer than the limit when their texts are long ([`MAX_READ_BYTES`](crate::MAX_READ_BYTES)), and
    /// none only if there are no more. Finding events that are not log lines or progress does not require a scan of a long log.
    async fn read_events(&self, task: TaskId, query: EventQuery) -> Result<Vec<Event>, Error>;

    /// A part of a long text: up to `most` bytes from position `from`. `None`: there is no such text.
    async fn read_text(
        &self,
        task: TaskId,
        text: TextRef,
        from: u64,
        most: usize,
    ) -> Result<Option<TextPart>, Error>;

    /// Queues, counts, nodes and workers.
    async fn survey(&self) -> Result<Survey, Error>;

    /// The last records of workers that are gone, the newest first.
    async fn gone_workers(&self, limit: usize) -> Result<Vec<GoneWorker>, Error>;

    /// The breakers around calls that are not closed or have counted something, ordered by name.
    async fn call_breakers(&self) -> Result<Vec<CallBreakerRecord>, Error>;

    /// The accounts that have state or are used by a queue, ordered by name.
    async fn accounts(&self) -> Result<Vec<AccountRecord>, Error>;

    /// What attempts spent on models. Records of tasks and attempts are the newest first, others ordered by name or day.
    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRecord>, Error>;

    /// The number of tasks that a claim could take now: ready tasks of these kinds, counted up to `limit`. Zero for a queue that is
    /// paused or whose gate or account is closed, and at most the free concurrency of both. A hint for scaling that reads at most `limit`
    /// rows: it does not check limit keys or deadlines, so a claim that follows may return fewer.
    async fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error>;

    /// All schedules, ordered by name.
    async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error>;

    /// Jobs that match the filter, the highest ids first.
    async fn jobs(&self, filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error>;

    /// Wakeup hints that tasks became ready, or that the outbox has new entries, from this process or another.
    fn wakeups(&self) -> Wakeups;

    /// Wakeup hints for a node: renew now, because a cancellation was requested for a leased task or a node command was sent; or read the
    /// schedules, because one was changed; by this process or another. Also sent when the connection by which other nodes see that this
    /// node is alive is lost: a node that then does not renew within some seconds may be considered dead.
    fn control(&self) -> Wakeups;

    /// Wakeup hints that a task ended or an attempt did, that an event was written, or that a node replied, by this process or another: for
    /// callers that wait for a task or follow it. Without a watcher, writers send nothing.
    fn changes(&self) -> Changes;
}
