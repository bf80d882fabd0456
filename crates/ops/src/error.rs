//! Errors of use cases. The sentences name no command: how to go on depends on whether the caller is a program, a page or a tool.

use std::time::Duration;

use ostler_core::visible;
use ostler_core::{IdPart, JobId, SessionId, StateName, TaskId, WorkerId};
use ostler_store::views::IdScan;

/// Why a use case did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpsError {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Failed(#[from] Unsuccessful),
    /// The queue has reached its limit of waiting tasks.
    #[error("the queue \"{}\" is full: {limit} tasks are waiting, its limit", visible(.queue))]
    QueueFull { queue: String, limit: u64 },
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
}

impl OpsError {
    /// Why, as a word for programs, which never changes; `None`: the sentence says it all.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Missing(missing) => Some(missing.reason()),
            Self::Refused(Refusal::TooManySchedules { .. }) => Some("too_many_schedules"),
            Self::Refused(Refusal::NoPool(_)) => Some("pool_gone"),
            Self::Refused(Refusal::JobRunning { .. }) => Some("job_running"),
            Self::Refused(Refusal::Unpriced(_)) => Some("unpriced"),
            Self::Failed(Unsuccessful::NotFinished(_)) => Some("not_finished"),
            Self::Failed(Unsuccessful::NoReply { .. }) => Some("no_reply"),
            Self::Refused(
                Refusal::TooManyTasks(_)
                | Refusal::SeveralTasks { .. }
                | Refusal::Finished { .. }
                | Refusal::Delays
                | Refusal::IdTaken { .. }
                | Refusal::SeveralNodes { .. }
                | Refusal::SeveralWorkers { .. }
                | Refusal::SeveralJobs { .. }
                | Refusal::Size { .. }
                | Refusal::NothingToApprove(_)
                | Refusal::OtherItems(_)
                | Refusal::NotFinished { .. }
                | Refusal::NoConversation(_),
            )
            | Self::Failed(
                Unsuccessful::WorkerBusy(_)
                | Unsuccessful::NoneIdle(_)
                | Unsuccessful::NodeStopping(_)
                | Unsuccessful::JobHasTasks { .. },
            )
            | Self::QueueFull { .. }
            | Self::Store(_) => None,
        }
    }

    /// The id of the task or job that the reason is about.
    #[must_use]
    pub fn about(&self) -> Option<String> {
        match self {
            Self::Refused(Refusal::JobRunning { job, .. }) => Some(job.to_string()),
            Self::Failed(Unsuccessful::NotFinished(task)) => Some(task.to_string()),
            Self::Missing(_)
            | Self::Refused(_)
            | Self::Failed(_)
            | Self::QueueFull { .. }
            | Self::Store(_) => None,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Missing(_) | Self::Refused(_) | Self::Failed(_) | Self::QueueFull { .. } => false,
        }
    }
}

/// What was named and does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("there is no task {0}")]
    Task(TaskId),
    #[error("there is no task whose id begins or ends with {part}{}", cut(*.scan))]
    Part { part: IdPart, scan: IdScan },
    #[error("there is no task with the key \"{}\" in the queue \"{}\"", visible(.key), visible(.queue))]
    Key { queue: String, key: String },
    #[error("there is no task {0} to run after; nothing was enqueued")]
    Dependency(TaskId),
    /// It existed when the use case began.
    #[error("{0} was removed while waiting for it")]
    Removed(TaskId),
    #[error("{id} is not a dead letter: it is {}", .state.name())]
    DeadLetter { id: TaskId, state: StateName },
    #[error("there is no queue \"{}\"", visible(.0))]
    Queue(String),
    #[error("the queue \"{}\" has no subscriber \"{}\"", visible(.queue), visible(.name))]
    Subscriber { queue: String, name: String },
    #[error("no node \"{}\" is running", visible(.0))]
    Node(String),
    #[error("no running node has a pool \"{}\"", visible(.0))]
    Pool(String),
    #[error("no worker \"{}\" is running", visible(.0))]
    Worker(String),
    #[error("no running node has workers for \"{}\"", visible(.0))]
    WorkersOf(String),
    #[error("there is no account \"{}\"", visible(.0))]
    Account(String),
    #[error("there is no schedule \"{}\"", visible(.0))]
    Schedule(String),
    #[error("there is no job \"{}\"", visible(.0))]
    Job(String),
    /// It existed when the use case began.
    #[error("job {0} was removed")]
    JobRemoved(JobId),
    #[error("no process is running job {0}")]
    JobProcess(JobId),
}

impl Missing {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Task(_) | Self::Part { .. } | Self::Dependency(_) | Self::Removed(_) => "no_task",
            Self::Key { .. } => "no_key",
            Self::DeadLetter { .. } => "no_dead_letter",
            Self::Queue(_) => "no_queue",
            Self::Subscriber { .. } => "no_subscriber",
            Self::Node(_) => "no_node",
            Self::Pool(_) => "no_pool",
            Self::Worker(_) | Self::WorkersOf(_) => "no_worker",
            Self::Account(_) => "no_account",
            Self::Schedule(_) => "no_schedule",
            Self::Job(_) => "no_job",
            Self::JobRemoved(_) => "job_removed",
            Self::JobProcess(_) => "no_job_process",
        }
    }
}

/// A request that cannot be granted as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("more than {0} tasks match, the maximum for one command; add filters")]
    TooManyTasks(usize),
    #[error("{part} may be any of these; give more of the id: {}{}", ids(.tasks), more(*.scan))]
    SeveralTasks { part: IdPart, tasks: Vec<TaskId>, scan: IdScan },
    #[error("{id} is {}: only a task that has not finished can be amended", .state.name())]
    Finished { id: TaskId, state: StateName },
    #[error("the first delay must not be longer than the longest delay")]
    Delays,
    #[error("the id {id} belongs to another task: \"{}\" in the queue \"{}\"; nothing was enqueued", visible(.kind), visible(.queue))]
    IdTaken { id: TaskId, queue: String, kind: String },
    #[error("{} nodes are named \"{}\"; use an id: {}", .nodes.len(), visible(.name), ids(.nodes))]
    SeveralNodes { name: String, nodes: Vec<SessionId> },
    #[error("\"{}\" may be any of {} workers; use an id: {}", visible(.named), .workers.len(), ids(.workers))]
    SeveralWorkers { named: String, workers: Vec<WorkerId> },
    #[error("{} may be any of these jobs; give more of the id: {}", visible(.part), ids(.jobs))]
    SeveralJobs { part: String, jobs: Vec<JobId> },
    #[error("the minimum ({min}) must not exceed the maximum ({max})")]
    Size { min: u32, max: u32 },
    #[error("the store has {limit} schedules, the maximum")]
    TooManySchedules { limit: usize },
    #[error("job {job} is running in process {pid} (node \"{}\")", visible(.node))]
    JobRunning { job: JobId, pid: u32, node: String },
    #[error("job {0} has no pilot that waits for approval")]
    NothingToApprove(JobId),
    #[error(
        "job {0} was not made from items over a pool without prompts, so items cannot be added to it here"
    )]
    OtherItems(JobId),
    #[error("{id} is {}: only the conversation of a finished task can be continued", .state.name())]
    NotFinished { id: TaskId, state: StateName },
    #[error("{0} has no conversation to continue")]
    NoConversation(TaskId),
    #[error("{0} belongs to a job with a pool of its own, which is gone with the job")]
    NoPool(TaskId),
    #[error("a budget cannot be kept: {0}")]
    Unpriced(String),
}

/// Something that was tried, and did not work out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuccessful {
    #[error("{0} has not finished in time and continues")]
    NotFinished(TaskId),
    #[error("worker {0} is busy, and only idle workers are replaced; try again when it is idle")]
    WorkerBusy(WorkerId),
    #[error("no worker of the pool \"{}\" is idle; busy workers are not replaced", visible(.0))]
    NoneIdle(String),
    #[error("node {0} is stopping, and its drain cannot be taken back any more")]
    NodeStopping(SessionId),
    #[error("node {node} has not replied for {} s", .waited.as_secs())]
    NoReply { node: SessionId, waited: Duration },
    #[error(
        "removed {removed} tasks of job {job}, but some are still running or other tasks depend on them; try again"
    )]
    JobHasTasks { job: JobId, removed: usize },
}

fn ids<T: ToString>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// How far the ends of ids were searched.
const fn cut(scan: IdScan) -> &'static str {
    match scan {
        IdScan::Whole => "",
        IdScan::Cut => " (of ids that end so, only those of the newest tasks were looked at)",
    }
}

const fn more(scan: IdScan) -> &'static str {
    match scan {
        IdScan::Whole => "",
        IdScan::Cut => ", …",
    }
}
