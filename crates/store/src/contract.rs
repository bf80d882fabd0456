//! The contract: the verbs that every store speaks.

use std::os::fd::OwnedFd;

use async_trait::async_trait;
use ostler_core::{JobId, Overrides, SessionId, TaskId, Timestamp, Worker};

use crate::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Enqueued, EventKind, Expired, Fenced, Finished, Kinds,
    MadeReady, NewEvent, NewSession, NewStep, NewTask, Prune, Pruned, QueueChange, Renewed, Replay,
    ReplayAnswer, Report, Saved, Start, Unwritten,
};
use crate::error::Error;
use crate::jobs::{JobAnswer, JobChange, JobFilter, JobPut, JobRecord, NewJob};
use crate::lease::{Lease, LeaseRef};
use crate::node_commands::{CommandAnswer, NodeCommand, Reply};
use crate::outbox::{Ack, OutboxAnswer, OutboxFilter};
use crate::plans::Amended;
use crate::schedules::{Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleRecord};
use crate::views::{Cursor, Event, Filter, Page, QueueSettings, Survey, TaskDetail, TaskRef};
use crate::wake::Wakeups;

/// Where tasks live.
///
/// What a verb has answered is on disk. A verb that answers with an [`Error`] has written nothing. Each verb is
/// one transaction: others see all of it or none. A list of items is answered item by item, in order.
///
/// Rules are not made here: a store asks `ostler_core` what follows, and writes that. The conformance suite
/// (feature `conformance`) is the precise meaning of every verb; [`Memory`](crate::Memory) is the readable one.
#[async_trait]
pub trait Store: Send + Sync {
    // ---- nodes: a session is a node's proof of life ----

    /// A node comes up. Its session must be new.
    async fn join(&self, node: NewSession) -> Result<Fenced, Error>;

    /// The node is alive, and so are all its leases. Answers what happened to the tasks it holds, what it holds without naming it, and its
    /// orders.
    async fn renew(&self, session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error>;

    /// The node goes: what it still holds is handed back, the oldest task first, and its session ends. A node that is
    /// late but was not yet found dead may still say so.
    async fn leave(&self, session: SessionId) -> Result<Fenced, Error>;

    /// The node is about to stop on purpose, and may be gone before `leave` is written: when its session is found dead or
    /// overdue, it ends as by `leave`, and no death of a node is counted. Until then nothing changes. Does not wait for a
    /// turn at writing, or for what others have locked.
    async fn depart(&self, session: SessionId) -> Result<Fenced, Error>;

    /// What the node did about an order, for whoever looks: it stands with the node as long as the order does. An order that is not
    /// there any more has no answer.
    async fn reply(&self, session: SessionId, answer: Reply) -> Result<Fenced, Error>;

    /// The node's workers, all of them, replacing what it reported before.
    async fn report(&self, session: SessionId, workers: Vec<Worker>) -> Result<Fenced, Error>;

    /// What keeps the session's death from being known at once: while anybody holds it, or a copy of it, the session is
    /// alive for as long as its last renewal holds. For who has to end the node's work after the node: nobody else
    /// begins with it before. `None`: this store or process has nothing of the sort to give away.
    ///
    /// # Errors
    /// When there is something to give away, but no copy of it can be made.
    fn liveness_lock(&self, _session: SessionId) -> Result<Option<OwnedFd>, Error> {
        Ok(None)
    }

    // ---- the life of a task ----

    /// Takes tasks in. A repeat of an id answers with the task that exists; `ostler_core::conflict` says what a repeat of a
    /// unique key leads to. A task that waits for others is freed, or cancelled, by the verb that ends the last of them, as
    /// `ostler_core::release` says; whom one verb leaves over [`MAX_CASCADE`](crate::MAX_CASCADE), `make_ready` sees to.
    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error>;

    /// Gives the ready tasks of lowest rank to a session, and raises their tokens.
    async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, Error>;

    /// Attempts begin. Saying it twice is saying it once.
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Fenced>, Error>;

    /// Attempts have ended; `ostler_core::decide` says what follows.
    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten>;

    /// Gives leases back: to `finish` with a hand-back, for tasks that have not begun.
    async fn release(&self, leases: Vec<Lease>) -> Result<Vec<Finished>, Unwritten> {
        self.finish(leases.into_iter().map(Report::hand_back).collect()).await
    }

    /// Appends facts to a task, in order, numbered from one.
    async fn append(&self, lease: LeaseRef, events: Vec<NewEvent>) -> Result<Appended, Error>;

    /// Saves a step. A step that was saved stays as it is.
    async fn save_step(&self, lease: LeaseRef, step: NewStep) -> Result<Saved, Error>;

    // ---- tellings: what others are told of, at least once ----

    /// Gives a session the oldest of those tellings of a queue that it wants and that no session has taken. They are its to tell until it ends;
    /// whatever it has not told by then, the next one hears that asks.
    async fn take_outbox(
        &self,
        session: SessionId,
        queue: &str,
        wants: OutboxFilter,
        limit: usize,
    ) -> Result<OutboxAnswer, Error>;

    /// These were told: those that the session has taken are removed, and their warnings appended to the events of their tasks.
    /// Others are left.
    async fn ack_outbox(&self, session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error>;

    // ---- requests from outside ----

    /// Cancels tasks, or asks their workers to stop.
    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error>;

    /// Gives failed and cancelled tasks another life, and waiting ones their turn now.
    async fn replay(&self, tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error>;

    /// Says something else about the policy of a task that has not ended. What is left out stays as it was.
    async fn amend(&self, task: TaskId, overrides: Overrides) -> Result<Amended, Error>;

    /// Asks something of a node. It hears of it when it renews, as often as it renews, until its session ends.
    async fn command(&self, session: SessionId, order: NodeCommand) -> Result<CommandAnswer, Error>;

    /// Changes the settings of a queue, and answers with all of them. No changes: only looks.
    async fn configure(&self, queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error>;

    // ---- schedules ----

    /// Keeps a schedule, in the place of the one with its name.
    async fn put_schedule(&self, schedule: Schedule) -> Result<PutAnswer, Error>;

    /// Removes a schedule. What it has enqueued stays.
    async fn drop_schedule(&self, name: &str) -> Result<ScheduleAnswer, Error>;

    /// Pauses a schedule, or resumes it.
    async fn pause_schedule(&self, name: &str, activity: Activity) -> Result<ScheduleAnswer, Error>;

    /// A moment of a schedule has come: its run is enqueued, as `ostler_core::fire` says, and the schedule goes on to its next
    /// moment. Of all who fire the same moment, one does.
    async fn fire(&self, firing: Firing) -> Result<Fired, Error>;

    // ---- jobs: many tasks made together ----

    /// Keeps a job. Saying it twice is saying it once.
    async fn put_job(&self, job: NewJob) -> Result<JobPut, Error>;

    /// Changes a job.
    async fn change_job(&self, job: JobId, change: JobChange) -> Result<JobAnswer, Error>;

    // ---- maintenance: idempotent, safe on all nodes at once, in batches ----

    /// Ends sessions that are dead or overdue, and takes up to `batch` tasks from ended sessions, the
    /// oldest first; one that [departed](Store::depart) hands all of them back instead. Overdue is who has not renewed for its TTL. Dead is whose death is known sooner: on one host, when nobody holds its
    /// [liveness_lock](Store::liveness_lock); on a server, when its connection is gone and it did not renew for some seconds after that. A
    /// store that cannot know waits for the TTL.
    async fn expire(&self, batch: usize) -> Result<Expired, Error>;

    /// Ends tasks that it is too late for, sees to those that waited for tasks that have ended, then makes tasks ready whose
    /// time has come, up to `batch` in all, those first whose moment came first.
    async fn make_ready(&self, batch: usize) -> Result<MadeReady, Error>;

    /// Removes ended tasks with all that belongs to them, and by their age also jobs without tasks, with their queues; what was counted
    /// there stays counted under [`FORMER_JOBS`](crate::jobs::FORMER_JOBS).
    async fn prune(&self, what: Prune) -> Result<Pruned, Error>;

    // ---- looking ----

    /// The time by which this store decides, whatever the clock of the caller says.
    async fn now(&self) -> Result<Timestamp, Error>;

    /// Tasks that match, the newest first, from `after` on.
    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error>;

    /// One task with its attempts and steps.
    async fn show(&self, which: TaskRef) -> Result<Option<TaskDetail>, Error>;

    /// Events of a task with a number above `after`.
    async fn read_events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<Event>, Error>;

    /// The same, of one kind: what is to be known of a few of them does not cost a look at a long log.
    async fn read_events_of(
        &self,
        task: TaskId,
        kind: EventKind,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, Error>;

    /// Queues, counts, nodes and workers.
    async fn survey(&self) -> Result<Survey, Error>;

    /// How many tasks a claim could take now: those of these kinds that are ready, counted up to `limit`. None of a queue that is
    /// paused or whose gate is shut, and no more than it has places for. A hint for scaling, which costs a look at `limit` rows at
    /// most: keys and ends of tasks are not looked at, and a claim that follows may bring less.
    async fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error>;

    /// All schedules, in order of name.
    async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error>;

    /// Jobs that match, those with the highest ids first.
    async fn jobs(&self, filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error>;

    /// Hints that tasks became ready, or that there is something to tell, from this process or another.
    fn wakeups(&self) -> Wakeups;

    /// Hints that a node should renew now, because a cancel was requested for a leased task or an order was given, or that it
    /// should look at the schedules, because one was changed; by this process or another. Also that the connection is lost by which
    /// others see that the node is alive: a node that then does not renew within some seconds may be taken for dead.
    fn control(&self) -> Wakeups;
}
