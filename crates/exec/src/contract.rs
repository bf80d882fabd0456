//! The contract between a pool and whatever runs its work.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, Outcome, TaskId, WorkerId};
use tokio_util::sync::CancellationToken;

use crate::notes::NoteSender;
use crate::steps::Steps;

/// One attempt to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The task.
    pub task: TaskId,
    /// The token of its lease.
    pub token: u64,
    /// The worker that runs it: one that was opened, and is not closed yet.
    pub worker: WorkerId,
    /// The number of the attempt, counted from one.
    pub attempt: u32,
    /// The task's queue.
    pub queue: Arc<str>,
    /// What sort of work it is.
    pub kind: Arc<str>,
    /// What to work on: JSON text.
    pub payload: String,
    /// How long the attempt may take.
    pub timeout: Duration,
    /// How long it may take to stop when it is told to.
    pub grace: Duration,
    /// The folder it works in.
    pub folder: Option<String>,
}

/// The strings that a pool holds while an attempt runs.
#[derive(Clone, Debug)]
pub struct Control {
    /// Cancelled when the attempt is to stop: somebody asked for it, the pool drains, or the lease is lost.
    pub cancel: CancellationToken,
    /// Cancelled, together with `cancel`, when the lease is lost or about to be: the work is ended at once, without grace.
    /// Nothing it says counts any more.
    pub lost: CancellationToken,
    /// Where progress and logs go.
    pub notes: NoteSender,
    /// Where steps are kept.
    pub steps: Steps,
}

impl Control {
    /// Strings that nobody has pulled yet, and steps that nobody keeps.
    #[must_use]
    pub fn new(notes: NoteSender) -> Self {
        Self {
            cancel: CancellationToken::new(),
            lost: CancellationToken::new(),
            notes,
            steps: Steps::ephemeral(),
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    /// What the rules decide by.
    pub outcome: Outcome,
    /// What came out, after a success: JSON text.
    pub output: Option<String>,
    /// Whether the slot can be used again at once.
    pub slot: WorkerFate,
    /// Whose word the class of a failure is.
    pub classing: ClassSource,
    /// What the node lacks, if that kept the work from beginning. It is handed back then, and the pool waits before it tries again.
    pub shortage: Option<String>,
}

/// Whose word the class of a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassSource {
    /// The work's, its policy's, or the system's.
    Given,
    /// Nobody's: it is transient because something has to be assumed. A pool may assume otherwise.
    Assumed,
}

/// What became of the slot that ran an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFate {
    /// It is free.
    Reusable,
    /// The work did not stop when it was told to, and cannot be ended from outside: it still holds its thread.
    Unresponsive,
    /// Its worker has done its share: it takes no more, and is closed. Another comes where one is needed.
    Spent,
    /// Its worker is dead, or was ended with the work. Another comes where one is needed.
    Dead,
}

impl AttemptResult {
    /// The work is done.
    #[must_use]
    pub const fn success(output: Option<String>) -> Self {
        Self {
            outcome: Outcome::Success,
            output,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
        }
    }

    /// It failed.
    #[must_use]
    pub const fn failed(failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            output: None,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
        }
    }

    /// It failed with this class and message.
    #[must_use]
    pub fn failed_with(class: ErrorClass, message: impl Into<String>) -> Self {
        Self::failed(Failure::new(class, message))
    }

    /// Its deadline has passed.
    #[must_use]
    pub fn too_long(timeout: Duration) -> Self {
        Self::failed_with(ErrorClass::Timeout, format!("it took longer than {timeout:?}"))
    }

    /// It stopped because it was told to.
    #[must_use]
    pub const fn cancelled() -> Self {
        Self {
            outcome: Outcome::Cancelled,
            output: None,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
        }
    }

    /// The same failure, whose class nobody has said: the pool says what is assumed.
    #[must_use]
    pub fn unclassed(self) -> Self {
        Self { classing: ClassSource::Assumed, ..self }
    }

    /// The same failure, with more for whoever looks closer.
    #[must_use]
    pub fn with_details(mut self, details: Option<String>) -> Self {
        if let Outcome::Failed(failure) = &mut self.outcome {
            failure.details = details;
        }
        self
    }

    /// It was not begun, and can be run by somebody else.
    #[must_use]
    pub const fn handed_back() -> Self {
        Self {
            outcome: Outcome::HandedBack,
            output: None,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
        }
    }

    /// It was not begun, for the node lacks what any work needs here: descriptors, memory, processes. A sentence says what.
    #[must_use]
    pub fn short(what: String) -> Self {
        Self { shortage: Some(what), ..Self::handed_back() }.spent()
    }

    /// The same, but the work still holds its thread.
    #[must_use]
    pub fn deaf(self) -> Self {
        Self { slot: WorkerFate::Unresponsive, ..self }
    }

    /// The same, but its worker takes no more.
    #[must_use]
    pub fn spent(self) -> Self {
        Self { slot: WorkerFate::Spent, ..self }
    }

    /// The same, but its worker is dead.
    #[must_use]
    pub fn dead(self) -> Self {
        Self { slot: WorkerFate::Dead, ..self }
    }
}

/// Whether a worker came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerOpening {
    /// It takes work.
    Ready,
    /// It did not. The pool lets it go, and tries another later.
    Failed(Failure),
    /// It could not, for the node lacks what any worker needs: descriptors, memory, processes. A sentence says what. The pool
    /// tries again later, as often as it takes.
    Short(String),
}

/// What can be told of a worker that is a thing of its own, such as a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Its process, to be shown. Nobody may signal it.
    pub pid: Option<u32>,
    /// How much memory it has, with all that it started.
    pub memory_bytes: Option<u64>,
}

/// Which kinds an executor can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// Any kind.
    Any,
    /// These.
    Only(Vec<String>),
}

/// Runs attempts.
///
/// Whatever the work does — return, fail, panic, hang, flood its output, die — `run` answers: within the attempt's timeout
/// and one grace, and when it is told to stop, within two graces: one for the work to stop by itself, one to end it. When
/// the lease is lost the first of these two is left out. It answers once. It never panics, and it keeps nothing of an
/// attempt when it has answered, except where it says [`WorkerFate::Unresponsive`].
///
/// A worker that is a thing of its own lives from its [`open`](Self::open) to its [`close`](Self::close), and is never brought
/// back to life: when it dies, another one with another name takes its place. That it died is told by what `run` says of its slot,
/// or, between two attempts, by [`ended`](Self::ended).
#[async_trait]
pub trait Executor: Send + Sync {
    /// Which kinds it can run.
    fn served(&self) -> Served;

    /// How many attempts it takes at once at most, if it has such a bound: what comes beyond it is handed back. A pool has no more
    /// workers than that.
    fn capacity(&self) -> Option<usize> {
        None
    }

    /// A worker is to come up, before it is given its first attempt. Only executors whose workers are things of their own,
    /// such as processes, have something to do.
    async fn open(&self, _worker: WorkerId) -> WorkerOpening {
        WorkerOpening::Ready
    }

    /// A worker goes: it gets no more attempts, and whatever it was is ended. It is not told of a worker that did not
    /// come up. For one whose slot is [`WorkerFate::Unresponsive`] it answers when nothing holds that any more, however long that takes.
    async fn close(&self, _worker: WorkerId) {}

    /// Waits until an open worker that runs nothing is over, though nobody has closed it: its process died. Says why. Whoever
    /// stops waiting loses nothing.
    async fn ended(&self, _worker: WorkerId) -> Failure {
        std::future::pending().await
    }

    /// Nobody looks after a worker any more, whatever became of it: what is left of it is ended at once.
    fn abandon(&self, _worker: WorkerId) {}

    /// What can be told of a worker now.
    fn vitals(&self, _worker: WorkerId) -> Vitals {
        Vitals::default()
    }

    /// Runs one attempt to its end.
    async fn run(&self, work: Work, control: Control) -> AttemptResult;
}
