//! Isolation on threads: each worker of the pool is a thread of the node that runs functions, one at a time.
//!
//! For trusted code only. A script in a builtin that cannot be interrupted keeps its thread: its attempt ends, the worker is reported as
//! unresponsive and replaced, and the thread ends when the script does.

mod host;

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{AttemptResult, Control, Executor, Served, Work, WorkerOpening};
use ostler_process::{Links, TaskFolders};
use tokio::sync::oneshot;

use self::host::{NodeSide, ThreadHost, ThreadSide};
use super::calls::NodeCalls;
use super::functions::Functions;
use super::policy::IsolatePolicy;
use crate::call::{CallInfo, FunctionCall, deadline_in};
use crate::engine::quickjs::QuickJs;
use crate::fetch::Fetcher;
use crate::function::FunctionSource;
use crate::stop::{Interrupter, LimitCause};
use crate::verdict::{self, verdict};
use crate::watchdog::{DeafCall, Watchdog};
use crate::worker::FunctionWorker;

/// How long a stopped call may run on, in CPU time, before its thread is given up.
const PATIENCE: Duration = Duration::from_millis(100);
/// Calls that wait for a thread: a worker runs one at a time.
const MAX_WAITING_CALLS: usize = 1;

/// Executor that runs functions on threads of its own.
pub(super) struct ThreadIsolates {
    policy: IsolatePolicy,
    functions: Functions,
    folders: TaskFolders,
    fetcher: Fetcher,
    watchdog: Arc<Watchdog>,
    shared: Arc<Mutex<Threads>>,
}

#[derive(Default)]
struct Threads {
    open: HashMap<WorkerId, IsolateThread>,
    /// Receivers of the reports about running calls, by the name of their thread.
    deaf: HashMap<String, oneshot::Sender<DeafCall>>,
}

/// The thread of one worker.
struct IsolateThread {
    jobs: SyncSender<QueuedCall>,
    /// Completes when the thread has ended.
    ended: oneshot::Receiver<()>,
}

/// A call for a thread.
struct QueuedCall {
    source: FunctionSource,
    payload: String,
    info: CallInfo,
    timeout: Duration,
    side: ThreadSide,
    begun: oneshot::Sender<Interrupter>,
    done: oneshot::Sender<AttemptResult>,
}

impl ThreadIsolates {
    pub(super) fn new(policy: &IsolatePolicy, functions: Functions) -> io::Result<Self> {
        let shared = Arc::<Mutex<Threads>>::default();
        let reports = Arc::clone(&shared);
        let watchdog = Watchdog::start(PATIENCE, move |call| {
            let receiver = lock(&reports).deaf.remove(&call.thread);
            // A call that has ended meanwhile is not deaf.
            if let Some(receiver) = receiver {
                let _ = receiver.send(call);
            }
        })?;
        Ok(Self {
            folders: TaskFolders::new(&policy.folders, Links::Trusted),
            fetcher: policy.fetcher(),
            functions,
            watchdog: Arc::new(watchdog),
            shared,
            policy: policy.clone(),
        })
    }

    fn start(&self, worker: WorkerId) -> io::Result<IsolateThread> {
        let (jobs, waiting) = sync_channel(MAX_WAITING_CALLS);
        let (ending, ended) = oneshot::channel();
        let (policy, watchdog) = (self.policy.clone(), Arc::clone(&self.watchdog));
        let body = move || {
            // Dropped at the end, whatever happens.
            let _ending: oneshot::Sender<()> = ending;
            let watch = watchdog.watch_this_thread();
            let mut runner =
                FunctionWorker::new(Box::new(QuickJs::default()), policy.limits.clone(), policy.reuse)
                    .watched(watch);
            // Before the watchdog is dropped with this closure, which may join its thread.
            serve(&mut runner, &waiting);
        };
        let builder = std::thread::Builder::new().name(thread_name(worker));
        builder.stack_size(self.policy.limits.thread_stack_bytes()).spawn(body)?;
        Ok(IsolateThread { jobs, ended })
    }

    /// The source, the folder and the host of an attempt.
    async fn prepare(
        &self,
        work: &Work,
        control: &Control,
    ) -> Result<(FunctionSource, ThreadSide, NodeSide), Failure> {
        let folder = self.folders.own(work)?;
        let source = self.functions.find(&work.kind).await?;
        let calls = NodeCalls::new(folder, control.events.clone(), self.fetcher.session());
        let (side, calls) = ThreadSide::new(control, calls, self.policy.secrets.clone());
        Ok((source, side, calls))
    }
}

#[async_trait]
impl Executor for ThreadIsolates {
    fn served(&self) -> Served {
        Served::Only(self.functions.kinds())
    }

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        match self.start(worker) {
            Ok(thread) => {
                lock(&self.shared).open.insert(worker, thread);
                WorkerOpening::Ready
            }
            Err(error) => WorkerOpening::Short(format!("the node is short of threads: {error}")),
        }
    }

    async fn close(&self, worker: WorkerId) {
        let thread = lock(&self.shared).open.remove(&worker);
        let Some(IsolateThread { jobs, ended }) = thread else { return };
        drop(jobs);
        let _ = ended.await;
    }

    fn abandon(&self, worker: WorkerId) {
        // Its thread ends with its call.
        drop(lock(&self.shared).open.remove(&worker));
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        if control.cancel.is_cancelled() {
            return AttemptResult::cancelled();
        }
        let prepared = tokio::select! {
            biased;
            prepared = self.prepare(&work, &control) => prepared,
            () = control.cancel.cancelled() => return AttemptResult::cancelled(),
            () = tokio::time::sleep(work.timeout) => return AttemptResult::too_long(work.timeout),
        };
        let (source, side, calls) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => return AttemptResult::failed(failure),
        };
        let (deaf, mut is_deaf) = oneshot::channel();
        let (begun, beginning) = oneshot::channel();
        let (done, mut ending) = oneshot::channel();
        let timeout_ms = u64::try_from(work.timeout.as_millis()).unwrap_or(u64::MAX);
        let info = CallInfo {
            task: work.task.to_string(),
            queue: work.queue.to_string(),
            kind: work.kind.to_string(),
            attempt: work.attempt,
            deadline: Some(deadline_in(timeout_ms)),
        };
        let job =
            QueuedCall { source, payload: work.payload, info, timeout: work.timeout, side, begun, done };
        let jobs = lock(&self.shared).open.get(&work.worker).map(|thread| thread.jobs.clone());
        let sent = jobs.is_some_and(|jobs| jobs.try_send(job).is_ok());
        let interrupter = if sent { beginning.await.ok() } else { None };
        let Some(interrupter) = interrupter else { return AttemptResult::handed_back().dead() };
        lock(&self.shared).deaf.insert(thread_name(work.worker), deaf);
        let unsaved = calls.unsaved();
        let ended = {
            let stopped = stopping(&interrupter, &control, work.grace);
            let answered = calls.answer_all();
            tokio::select! {
                biased;
                ended = &mut ending => ended.map_err(|_| AttemptResult::failed_with(
                    ErrorClass::Crash, "the thread of the function has ended",
                ).dead()),
                deaf = &mut is_deaf => Err(given_up(deaf.ok())),
                () = tokio::time::sleep(work.timeout + work.grace) => {
                    Err(AttemptResult::too_long(work.timeout).unresponsive())
                }
                () = stopped => Err(AttemptResult::cancelled().unresponsive()),
                never = answered => match never {},
            }
        };
        lock(&self.shared).deaf.remove(&thread_name(work.worker));
        match ended {
            // What a function says after a stop signal counts only if it succeeded.
            Ok(ended) if control.cancel.is_cancelled() && ended.outcome.failure().is_some() => {
                AttemptResult { slot: ended.slot, ..AttemptResult::cancelled() }
            }
            Ok(ended) if ended.outcome.failure().is_some() => match unsaved.get() {
                Some(failure) => AttemptResult { slot: ended.slot, ..AttemptResult::failed(failure.clone()) },
                None => ended,
            },
            Ok(ended) | Err(ended) => ended,
        }
    }
}

/// The result of an attempt whose script does not end.
fn given_up(deaf: Option<DeafCall>) -> AttemptResult {
    let failure = match deaf {
        Some(deaf) => match deaf.cause {
            LimitCause::Cancelled => return AttemptResult::cancelled().unresponsive(),
            LimitCause::Cpu
            | LimitCause::Wall
            | LimitCause::LogLines
            | LimitCause::Timers
            | LimitCause::Output => verdict::deaf(&deaf.cause.end()),
        },
        None => Failure::new(ErrorClass::Crash, "the watchdog of the functions has ended"),
    };
    AttemptResult::failed(failure).unresponsive()
}

/// Stops a call when its attempt is to stop: at first by its abort signal, after the grace period by an interruption. Completes when
/// the call should have ended.
async fn stopping(interrupter: &Interrupter, control: &Control, grace: Duration) {
    control.cancel.cancelled().await;
    if !control.lost.is_cancelled() {
        interrupter.cancel();
        tokio::select! {
            () = control.lost.cancelled() => {}
            () = tokio::time::sleep(grace) => {}
        }
    }
    interrupter.stop(LimitCause::Cancelled);
    tokio::time::sleep(grace).await;
}

fn serve(runner: &mut FunctionWorker, waiting: &Receiver<QueuedCall>) {
    while let Ok(job) = waiting.recv() {
        let QueuedCall { source, payload, info, timeout, side, begun, done } = job;
        let call = FunctionCall::new(payload, info, Rc::new(ThreadHost::new(side))).within(timeout);
        if begun.send(call.interrupter()).is_err() {
            continue;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| runner.run(&source, call)));
        let (ended, goes_on) = match ran {
            Ok(Ok(output)) => (AttemptResult::success(output), true),
            Ok(Err(end)) => (verdict(&end).result(), true),
            Err(_) => (AttemptResult::failed_with(ErrorClass::Crash, "the engine panicked").dead(), false),
        };
        // A caller that is gone has given the thread up.
        if done.send(ended).is_err() || !goes_on {
            return;
        }
    }
}

fn thread_name(worker: WorkerId) -> String {
    format!("isolate-{worker}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
