//! The executor contract: how a pool runs attempts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{
    AccountReading, Charging, ErrorClass, Failure, Outcome, Overrides, TaskId, Traceparent, WorkerId,
};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::account::AccountFeed;
use crate::breaker::Breakers;
use crate::events::EventSender;
use crate::secrets::Secrets;
use crate::steps::Steps;
use crate::task_calls::TaskCalls;

/// One attempt to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    pub task: TaskId,
    /// The token of its lease.
    pub token: u64,
    /// The worker that runs it: opened, and not yet closed.
    pub worker: WorkerId,
    /// The number of the attempt, counted from one.
    pub attempt: u32,
    pub queue: Arc<str>,
    pub kind: Arc<str>,
    /// The input: JSON text.
    pub payload: String,
    /// The timeout of the attempt.
    pub timeout: Duration,
    /// The grace period: how long it may take to stop after a stop signal.
    pub grace: Duration,
    /// The working directory.
    pub folder: Option<String>,
    /// The trace that the task belongs to: children get it as `TRACEPARENT`.
    pub traceparent: Option<Traceparent>,
}

/// The stop signals of a running attempt, and the sinks for its notes and steps.
#[derive(Clone, Debug)]
pub struct Control {
    /// Cancelled when the attempt should stop: a cancellation was requested, the pool drains, or the lease is lost.
    pub cancel: CancellationToken,
    /// Cancelled, together with `cancel`, when the lease is lost or about to be: the work is killed at once, without grace.
    /// Nothing that it reports counts any more.
    pub lost: CancellationToken,
    /// Receives progress and logs.
    pub events: EventSender,
    /// Saves steps.
    pub steps: Steps,
    /// The secrets of the pool.
    pub secrets: Secrets,
    /// Submits and looks up tasks.
    pub tasks: TaskCalls,
    /// Breakers around calls.
    pub breakers: Breakers,
    /// The account that the pool uses.
    pub account: AccountFeed,
    /// Whether a budget is charged: nothing may be asked of a model whose price is not known.
    pub charging: Charging,
    /// The span of the attempt: an executor runs Rust code of its work in it.
    pub span: Span,
}

impl Control {
    /// Signals that are not set, steps that are not saved, no secrets, no other tasks, breakers that never open, and no account.
    #[must_use]
    pub fn new(events: EventSender) -> Self {
        Self {
            cancel: CancellationToken::new(),
            lost: CancellationToken::new(),
            events,
            steps: Steps::ephemeral(),
            secrets: Secrets::default(),
            tasks: TaskCalls::refused(),
            breakers: Breakers::none(),
            account: AccountFeed::none(),
            charging: Charging::Free,
            span: Span::none(),
        }
    }
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    pub outcome: Outcome,
    /// The output after a success: JSON text.
    pub output: Option<String>,
    /// What became of the worker.
    pub slot: WorkerFate,
    pub classing: ClassSource,
    /// The resource that the node lacked, if that kept the work from starting. The work is then handed back, and the pool backs off.
    pub shortage: Option<String>,
    /// How much of its allowance the account of the pool has used, if the work knows it.
    pub reading: Option<AccountReading>,
}

/// Where the class of a failure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassSource {
    /// Set by the work, its policy, or the system.
    Given,
    /// Not set: transient by default. A pool may assume another class.
    Assumed,
}

/// What became of the worker that ran an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFate {
    /// Ready for the next attempt.
    Reusable,
    /// The work did not stop on the stop signal, and cannot be killed from outside: it still holds its thread.
    Unresponsive,
    /// The worker has run its maximum: it takes no more, and is closed. The pool starts another if needed.
    Spent,
    /// The worker died, or was killed with the work. The pool starts another if needed.
    Dead,
}

impl AttemptResult {
    /// A success.
    #[must_use]
    pub const fn success(output: Option<String>) -> Self {
        Self {
            outcome: Outcome::Success,
            output,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
            reading: None,
        }
    }

    /// A failure.
    #[must_use]
    pub const fn failed(failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            output: None,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
            reading: None,
        }
    }

    /// A failure with this class and message.
    #[must_use]
    pub fn failed_with(class: ErrorClass, message: impl Into<String>) -> Self {
        Self::failed(Failure::new(class, message))
    }

    /// A timeout.
    #[must_use]
    pub fn too_long(timeout: Duration) -> Self {
        Self::failed_with(ErrorClass::Timeout, format!("it took longer than {timeout:?}"))
    }

    /// The work stopped on the stop signal.
    #[must_use]
    pub const fn cancelled() -> Self {
        Self {
            outcome: Outcome::Cancelled,
            output: None,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
            reading: None,
        }
    }

    /// The same failure without a class: the pool decides what is assumed.
    #[must_use]
    pub fn unclassed(self) -> Self {
        Self { classing: ClassSource::Assumed, ..self }
    }

    /// The same failure with details for debugging.
    #[must_use]
    pub fn with_details(mut self, details: Option<String>) -> Self {
        if let Outcome::Failed(failure) = &mut self.outcome {
            failure.details = details;
        }
        self
    }

    /// The work was not started, and another node or worker can run it.
    #[must_use]
    pub const fn handed_back() -> Self {
        Self {
            outcome: Outcome::HandedBack,
            output: None,
            slot: WorkerFate::Reusable,
            classing: ClassSource::Given,
            shortage: None,
            reading: None,
        }
    }

    /// The worker died with several attempts in flight, and nothing tells which one was to blame: as if the node had died.
    #[must_use]
    pub const fn worker_died() -> Self {
        Self {
            outcome: Outcome::NodeDied,
            output: None,
            slot: WorkerFate::Dead,
            classing: ClassSource::Given,
            shortage: None,
            reading: None,
        }
    }

    /// The work was not started, because the node lacks a resource that any work needs here: descriptors, memory, processes. `what` is
    /// a sentence that names it.
    #[must_use]
    pub fn short(what: String) -> Self {
        Self { shortage: Some(what), ..Self::handed_back() }.spent()
    }

    /// The same, but the work is unresponsive: it still holds its thread.
    #[must_use]
    pub fn unresponsive(self) -> Self {
        Self { slot: WorkerFate::Unresponsive, ..self }
    }

    /// The same, but its worker takes no more attempts.
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

/// Whether a worker started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerOpening {
    /// Ready for work.
    Ready,
    /// The worker did not start. The pool drops it, and tries another later.
    Failed(Failure),
    /// The worker could not start, because the node lacks a resource that any worker needs: descriptors, memory, processes. The
    /// sentence names it. The pool retries until it succeeds.
    Short(String),
}

/// Process id and memory of a worker that is a separate entity, such as a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// The process id. For display only: never signal it.
    pub pid: Option<u32>,
    /// Memory in use, including all child processes.
    pub memory_bytes: Option<u64>,
}

/// The kinds that an executor can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    Any,
    Only(Vec<String>),
}

/// Runs attempts.
///
/// Whatever the work does (return, fail, panic, hang, flood its output, die), `run` returns: within the attempt's timeout
/// plus one grace period, and after a stop signal within two grace periods: one for the work to stop by itself, one to kill it. When
/// the lease is lost, the first of these two is skipped. It returns once. It never panics, and it holds nothing of an
/// attempt after it has returned, unless it reports [`WorkerFate::Unresponsive`].
///
/// A worker that is a separate entity lives from its [`open`](Self::open) to its [`close`](Self::close), and is never
/// revived: when it dies, another one with a new id replaces it. Its death is reported in the [`WorkerFate`] that `run` returns,
/// or, between two attempts, by [`ended`](Self::ended).
#[async_trait]
pub trait Executor: Send + Sync {
    /// The kinds that it can run.
    fn served(&self) -> Served;

    /// The maximum number of concurrent attempts, if there is one: attempts beyond it are handed back. A pool has no more
    /// workers than that.
    fn capacity(&self) -> Option<usize> {
        None
    }

    /// The maximum number of attempts that one worker runs at once, as configured.
    fn per_worker(&self) -> usize {
        1
    }

    /// How many attempts an open worker runs at once.
    fn slots(&self, _worker: WorkerId) -> usize {
        1
    }

    /// Policy values by kind that come with the handlers. Those of the config win.
    fn kind_options(&self) -> BTreeMap<String, Overrides> {
        BTreeMap::new()
    }

    /// Starts a worker, before its first attempt. Only executors whose workers are separate entities,
    /// such as processes, have something to do.
    async fn open(&self, _worker: WorkerId) -> WorkerOpening {
        WorkerOpening::Ready
    }

    /// Stops a worker: it gets no more attempts, and its process, if any, is killed. Not called for a worker that did not
    /// start. For a worker that is [`WorkerFate::Unresponsive`] it returns when nothing holds the worker any more, however long that takes.
    async fn close(&self, _worker: WorkerId) {}

    /// Waits until an open, idle worker ends without having been closed, because its process died. Returns the reason. Cancel
    /// safe: dropping the future loses nothing.
    async fn ended(&self, _worker: WorkerId) -> Failure {
        std::future::pending().await
    }

    /// Kills whatever is left of a worker at once: nothing supervises it any more.
    fn abandon(&self, _worker: WorkerId) {}

    /// The current vitals of a worker.
    fn vitals(&self, _worker: WorkerId) -> Vitals {
        Vitals::default()
    }

    /// Runs one attempt to completion.
    async fn run(&self, work: Work, control: Control) -> AttemptResult;
}
