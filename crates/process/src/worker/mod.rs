//! The worker executor: long-lived child processes in any language, which run many tasks, one after the other or `per_worker` at
//! once, and talk to the node over a socket. The protocol is documented in `docs/guide/worker-protocol.md`.
//!
//! A worker of the pool is one child, for life. `open` starts it and waits until it is ready; `run` sends it a task, and returns
//! the worker's fate in the slot; between two tasks `ended` reads its output and sees it die; `close` tells it to exit. A caller of
//! `run` drives all I/O: there is no extra thread or task, and so no way to lose a result.

mod attempt;
mod connection;
mod conversation_frames;
mod end_reason;
mod ending;
mod extension;
mod incoming;
mod line_buffer;
mod outgoing;
mod policy;
mod processing;
mod ready;
mod recent_attempts;
mod serving;
mod steps;
mod task_frames;
mod worker_process;

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, Overrides, WorkerId};
use ostler_exec::{AttemptResult, Control, Executor, Served, Vitals, Work, WorkerFate, WorkerOpening};
use tokio::time::{Instant, Sleep};

use crate::command::PolicyError;
use crate::folders::{Links, TaskFolder, TaskFolders};
use crate::memory::family_bytes;
use crate::sandbox::SandboxInstance;
use crate::supervisor::Supervisor;
use attempt::Attempt;
pub use extension::{
    AttemptExtension, CallFuture, FrameField, MAX_OPEN_CALLS, WorkerExtension, WorkerSocket,
};
pub use outgoing::MAX_FRAME_BYTES;
pub use policy::{MAX_PER_WORKER, ProcessPolicy, Recycle};
use ready::WorkerKinds;
use serving::Arrivals;
use steps::earlier;
use worker_process::{NotUp, WorkerProcess};

/// How often a worker's memory is measured: it costs about as much as a small task.
const WEIGH_EVERY: Duration = Duration::from_millis(100);
/// How often its memory is measured for reports.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Executor that runs tasks on long-lived workers.
///
/// A task is cancelled by a frame; after the grace period its worker gets SIGTERM, and after another one it is killed. At the
/// deadline SIGTERM is sent at once. When the lease is lost there is no grace period. A worker that dies takes at most the task
/// with it that it runs, and that is a crash, unless its result had arrived.
pub struct Process {
    supervisor: Supervisor,
    policy: ProcessPolicy,
    sandbox: Option<SandboxInstance>,
    folders: TaskFolders,
    extension: Option<Arc<dyn WorkerExtension>>,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    taken: HashMap<WorkerId, Arc<Seat>>,
    /// The pids of workers that are not ready yet.
    starting: HashMap<WorkerId, i32>,
    /// The kinds of the workers that started last, for when there are none.
    known: WorkerKinds,
    /// The options that the last worker gave its kinds.
    options: BTreeMap<String, Overrides>,
}

/// The slot of one worker, as long as it lives.
struct Seat {
    worker: tokio::sync::Mutex<Option<WorkerProcess>>,
    arrivals: Arrivals,
    /// How many attempts it runs at once.
    slots: usize,
    pid: i32,
    kinds: WorkerKinds,
    told: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Seat {
    fn serves(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|known| known == kind))
    }
}

impl Process {
    /// Creates an executor that runs workers by this policy, as children of this supervisor.
    ///
    /// # Errors
    /// When the policy names no program, or its sandbox cannot be enforced.
    pub fn new(supervisor: Supervisor, policy: ProcessPolicy) -> Result<Self, PolicyError> {
        if policy.argv.first().is_none_or(String::is_empty) {
            return Err(PolicyError::NoProgram);
        }
        let words: Vec<&str> = policy.argv.iter().map(String::as_str).collect();
        let sandbox = policy.sandbox.clone().map(|sandbox| {
            SandboxInstance::new(supervisor.clone(), sandbox, &words, &policy.environment, &policy.folders)
        });
        let sandbox = sandbox.transpose()?;
        let folders = TaskFolders::new(&policy.folders, Links::of(sandbox.as_ref()));
        Ok(Self { supervisor, sandbox, folders, policy, extension: None, seats: Mutex::default() })
    }

    /// The same with an extension of the protocol.
    ///
    /// # Errors
    /// As those of [`new`](Self::new).
    pub fn with_extension(
        supervisor: Supervisor,
        policy: ProcessPolicy,
        extension: Arc<dyn WorkerExtension>,
    ) -> Result<Self, PolicyError> {
        Ok(Self { extension: Some(extension), ..Self::new(supervisor, policy)? })
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self, worker: WorkerId) -> Option<Arc<Seat>> {
        self.lock().taken.get(&worker).cloned()
    }

    fn remove(&self, worker: WorkerId) -> Option<Arc<Seat>> {
        let mut seats = self.lock();
        seats.starting.remove(&worker);
        seats.taken.remove(&worker)
    }

    /// What the extension adds to an attempt.
    async fn extended(
        &self,
        work: &Work,
        folder: Option<&TaskFolder>,
        control: &Control,
        timer: Pin<&mut Sleep>,
    ) -> Result<Option<Arc<dyn AttemptExtension>>, AttemptResult> {
        let Some(extension) = &self.extension else { return Ok(None) };
        tokio::select! {
            biased;
            prepared = extension.prepare(work, folder, control) => {
                prepared.map(Some).map_err(AttemptResult::failed)
            }
            () = control.cancel.cancelled() => Err(AttemptResult::cancelled()),
            () = timer => Err(AttemptResult::too_long(work.timeout)),
        }
    }

    /// The folder of a task. The paths that its worker may change were fixed when the worker was started.
    fn folder(&self, work: &Work) -> Result<Option<TaskFolder>, Failure> {
        let folder = self.folders.own(work)?;
        let (Some(sandbox), Some(given), Some(own)) = (&self.sandbox, &work.folder, &folder) else {
            return Ok(folder);
        };
        let each = self.policy.folders.each.as_deref();
        if sandbox.may_change(&own.opened, each) {
            return Ok(folder);
        }
        let message = format!(
            "the task's folder \"{given}\" is not one that the workers of this pool may change: their sandbox has it \
             neither in \"write\" nor below \"folders\""
        );
        Err(Failure::new(ErrorClass::Permanent, message))
    }
}

#[async_trait]
impl Executor for Process {
    /// The kinds that all living workers serve; without any, those of the last ones.
    fn served(&self) -> Served {
        if let Some(served) = self.extension.as_ref().and_then(|extension| extension.served()) {
            return served;
        }
        let seats = self.lock();
        let mut announced = seats.taken.values().filter_map(|seat| seat.kinds.as_ref());
        let common = match announced.next() {
            Some(first) => {
                let by_all = |kind: &&String| seats.taken.values().all(|seat| seat.serves(kind));
                Some(first.iter().filter(by_all).cloned().collect())
            }
            None if seats.taken.is_empty() => seats.known.clone(),
            None => None,
        };
        common.map_or(Served::Any, Served::Only)
    }

    fn per_worker(&self) -> usize {
        self.policy.per_worker
    }

    fn slots(&self, worker: WorkerId) -> usize {
        self.seat(worker).map_or(1, |seat| seat.slots)
    }

    fn kind_options(&self) -> BTreeMap<String, Overrides> {
        self.lock().options.clone()
    }

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        let spawned = |pid| {
            self.lock().starting.insert(worker, pid);
        };
        let (policy, sandbox) = (&self.policy, self.sandbox.as_ref());
        let (folders, extension) = (&self.folders, self.extension.as_deref());
        let started =
            WorkerProcess::start(&self.supervisor, policy, sandbox, folders, extension, worker, spawned)
                .await;
        self.lock().starting.remove(&worker);
        match started {
            Ok((child, announced)) => {
                let (pid, kinds, slots) = (child.child.pid(), announced.kinds, announced.slots);
                let mut seats = self.lock();
                seats.known.clone_from(&kinds);
                seats.options = announced.options;
                let worker_place = Some(child).into();
                let arrivals = Arrivals::default();
                let seat = Seat { worker: worker_place, arrivals, slots, pid, kinds, told: Mutex::default() };
                seats.taken.insert(worker, Arc::new(seat));
                WorkerOpening::Ready
            }
            Err(NotUp::Short(what)) => WorkerOpening::Short(what),
            Err(NotUp::Failed(failure)) => WorkerOpening::Failed(failure),
        }
    }

    async fn close(&self, worker: WorkerId) {
        let Some(seat) = self.remove(worker) else { return };
        let child = seat.worker.lock().await.take();
        if let Some(child) = child {
            child.end(self.policy.grace).await;
        }
    }

    async fn ended(&self, worker: WorkerId) -> Failure {
        let gone = || Failure::new(ErrorClass::Crash, "the worker is gone");
        let Some(seat) = self.seat(worker) else { return gone() };
        let mut place = seat.worker.lock().await;
        let Some(child) = place.as_mut() else { return gone() };
        let failure = child.rest().await;
        // Remaining processes are killed.
        *place = None;
        self.remove(worker);
        failure
    }

    fn abandon(&self, worker: WorkerId) {
        // Dropping a child kills it.
        drop(self.remove(worker));
    }

    fn vitals(&self, worker: WorkerId) -> Vitals {
        let Some(seat) = self.seat(worker) else {
            let pid = self.lock().starting.get(&worker).and_then(|pid| u32::try_from(*pid).ok());
            return Vitals { pid, memory_bytes: None };
        };
        let now = Instant::now();
        let mut told = seat.told.lock().unwrap_or_else(PoisonError::into_inner);
        let memory_bytes = match *told {
            Some((at, bytes)) if now - at < TELL_EVERY => bytes,
            Some(_) | None => family_bytes(seat.pid),
        };
        if told.is_none_or(|(at, _)| now - at >= TELL_EVERY) {
            *told = Some((now, memory_bytes));
        }
        Vitals { pid: u32::try_from(seat.pid).ok(), memory_bytes }
    }

    async fn run(&self, mut work: Work, control: Control) -> AttemptResult {
        if control.cancel.is_cancelled() {
            return AttemptResult::cancelled();
        }
        let folder = match self.folder(&work) {
            Ok(folder) => folder,
            Err(failure) => return AttemptResult::failed(failure),
        };
        work.folder = folder.as_ref().map(|folder| folder.path.clone());
        let id = work.worker;
        let Some(seat) = self.seat(id) else { return AttemptResult::handed_back().dead() };
        if !seat.serves(&work.kind) {
            // The task was claimed before this was known. It waits for a worker that can run it.
            return AttemptResult::handed_back();
        }
        let mut timer = Box::pin(tokio::time::sleep(work.timeout));
        let earlier = match earlier(&control, work.timeout, timer.as_mut()).await {
            Ok(earlier) => earlier,
            Err(ended) => return ended,
        };
        let extension = match self.extended(&work, folder.as_ref(), &control, timer.as_mut()).await {
            Ok(extension) => extension,
            Err(ended) => return ended,
        };
        let lapses = self.supervisor.lapses();
        let (attempt, mut answer) =
            Attempt::new(&self.policy, work, earlier, folder, extension, control, timer);
        seat.arrivals.add(attempt);
        let ended = tokio::select! {
            biased;
            ended = &mut answer => ended.ok(),
            mut place = seat.worker.lock() => match place.as_mut() {
                // It died before it got the task; or its results were given before.
                None => answer.try_recv().ok(),
                Some(worker) => {
                    let ended = worker.serve(&seat.arrivals, &mut answer).await;
                    if worker.is_over {
                        *place = None;
                    }
                    ended
                }
            },
        };
        let ended = ended.unwrap_or_else(|| AttemptResult::handed_back().dead());
        match ended.slot {
            WorkerFate::Reusable | WorkerFate::Spent => {}
            WorkerFate::Dead | WorkerFate::Unresponsive => drop(self.remove(id)),
        }
        self.supervisor.unless_lapsed(lapses, ended)
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("policy", &self.policy).finish_non_exhaustive()
    }
}
