//! The worker executor: long-lived child processes in any language, which run many tasks, one after the other, and talk
//! to the node over a socket. The protocol is documented in `docs/guide/worker-protocol.md`.
//!
//! A worker of the pool is one child, for life. `open` starts it and waits until it is ready; `run` sends it a task, and returns
//! the worker's fate in the slot; between two tasks `ended` reads its output and sees it die; `close` tells it to exit. The caller
//! drives all I/O: there is no extra thread or task, and so no way to lose a result.

mod attempt;
mod connection;
mod conversation_frames;
mod end_reason;
mod incoming;
mod keeping;
mod line_buffer;
mod outgoing;
mod policy;
mod recent_attempts;
mod steps;
mod worker_process;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{AttemptResult, Control, Executor, Served, Vitals, Work, WorkerFate, WorkerOpening};
use tokio::time::Instant;

use crate::command::PolicyError;
use crate::folders::{Links, TaskFolder, TaskFolders};
use crate::memory::family_bytes;
use crate::sandbox::SandboxInstance;
use crate::supervisor::Supervisor;
use attempt::Attempt;
pub use outgoing::MAX_FRAME_BYTES;
pub use policy::{ProcessPolicy, Recycle};
use worker_process::{NotUp, WorkerKinds, WorkerProcess};

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
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    taken: HashMap<WorkerId, Arc<Seat>>,
    /// The pids of workers that are not ready yet.
    starting: HashMap<WorkerId, i32>,
    /// The kinds of the workers that started last, for when there are none.
    known: WorkerKinds,
}

/// The slot of one worker, as long as it lives.
struct Seat {
    worker: tokio::sync::Mutex<Option<WorkerProcess>>,
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
        Ok(Self { supervisor, sandbox, folders, policy, seats: Mutex::default() })
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

    /// Whether a worker that has just run a task is due for recycling.
    fn is_spent(&self, worker: &mut WorkerProcess) -> bool {
        let Recycle { after_tasks, above_memory } = self.policy.recycle;
        if after_tasks.is_some_and(|most| worker.tasks >= most) {
            return true;
        }
        let Some(most) = above_memory else { return false };
        let now = Instant::now();
        if now - worker.weighed < WEIGH_EVERY {
            return false;
        }
        worker.weighed = now;
        family_bytes(worker.child.pid()).is_some_and(|bytes| bytes > most)
    }
}

#[async_trait]
impl Executor for Process {
    /// The kinds that all living workers serve; without any, those of the last ones.
    fn served(&self) -> Served {
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

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        let spawned = |pid| {
            self.lock().starting.insert(worker, pid);
        };
        let (policy, sandbox) = (&self.policy, self.sandbox.as_ref());
        let started =
            WorkerProcess::start(&self.supervisor, policy, sandbox, &self.folders, worker, spawned).await;
        self.lock().starting.remove(&worker);
        match started {
            Ok((child, kinds)) => {
                let pid = child.child.pid();
                let mut seats = self.lock();
                seats.known.clone_from(&kinds);
                let seat = Seat { worker: Some(child).into(), pid, kinds, told: Mutex::default() };
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
        let mut place = seat.worker.lock().await;
        let Some(worker) = place.as_mut() else { return AttemptResult::handed_back().dead() };
        let lapses = self.supervisor.lapses();
        let ended = Attempt::new(worker, &self.policy, work, folder, control).follow().await;
        let ended = self.supervisor.unless_lapsed(lapses, ended);
        worker.tasks += 1;
        match ended.slot {
            WorkerFate::Reusable if self.is_spent(worker) => ended.spent(),
            WorkerFate::Reusable | WorkerFate::Spent => ended,
            WorkerFate::Dead | WorkerFate::Unresponsive => {
                *place = None;
                self.remove(id);
                ended
            }
        }
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("policy", &self.policy).finish_non_exhaustive()
    }
}
