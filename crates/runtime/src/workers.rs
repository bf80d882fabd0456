//! The worker set of a pool: its workers, and the backlog of claimed tasks that wait for one.
//!
//! A worker takes its next task from here by itself; the pool is notified when that changes what it should do: a worker is
//! idle, or the backlog runs low. Nothing here blocks: all state is behind one lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::{Failure, TaskId, Timestamp, Worker, WorkerId, WorkerState};
use ostler_exec::{Executor, Vitals, WorkerFate};
use ostler_store::MAX_GONE_WORKERS;
use ostler_store::calls::Claimed;
use ostler_store::node_commands::WorkerChoice;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::attempt::{ALONE_AFTER_DEATHS, AttemptEnding};
use crate::leases::StopSignals;
use crate::lifecycle::NodeState;
use crate::node::Drained;
use crate::start_backoff::STEADY;

mod load;
mod slots;
mod state;
pub(crate) use load::SetLoad;
pub use slots::Reservation;
use state::{SetState, Sharing, WorkerEntry};

/// Maximum workers that ignore their stop signal, each holding a thread. Beyond it, no worker is opened.
const MAX_UNRESPONSIVE: usize = 256;

/// A claimed task that waits for a worker.
pub(crate) struct ClaimedTask {
    pub(crate) claimed: Claimed,
    pub(crate) signals: StopSignals,
    pub(crate) since: Instant,
}

impl ClaimedTask {
    /// Whether it shares a worker with no other task: workers, or nodes, have died while they ran it.
    const fn runs_alone(&self) -> bool {
        self.claimed.node_deaths >= ALONE_AFTER_DEATHS
    }
}

/// What a worker does next.
pub(crate) enum NextTask {
    /// Runs this task.
    Run(Box<ClaimedTask>),
    /// Waits for a notification.
    Wait,
    /// Exits.
    Go,
}

/// The worker set of a pool. Clones share the same state.
#[derive(Clone)]
pub(crate) struct WorkerSet(Arc<Shared>);

struct Shared {
    pool: String,
    /// Its workers are named after it, and numbered.
    worker_name: String,
    executor: Arc<dyn Executor>,
    state: watch::Receiver<NodeState>,
    book: Mutex<SetState>,
    changed: Notify,
}

/// The result of a recycle command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RecycleReport {
    /// Workers that exit.
    pub(crate) recycled: Vec<WorkerId>,
    /// Busy workers, which stay.
    pub(crate) busy: Vec<WorkerId>,
}

impl WorkerSet {
    pub(crate) fn new(
        pool: impl Into<String>,
        worker_name: impl Into<String>,
        executor: Arc<dyn Executor>,
        max: usize,
        state: watch::Receiver<NodeState>,
    ) -> Self {
        let book = Mutex::new(SetState { max, ..SetState::default() });
        let (pool, worker_name) = (pool.into(), worker_name.into());
        Self(Arc::new(Shared { pool, worker_name, executor, state, book, changed: Notify::new() }))
    }

    /// The queue of the pool.
    pub(crate) fn pool(&self) -> &str {
        &self.0.pool
    }

    fn lock(&self) -> MutexGuard<'_, SetState> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change that concerns the pool.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    // ---- for the pool ----

    pub(crate) fn load(&self) -> SetLoad {
        let book = self.lock();
        SetLoad {
            total: book.staying(),
            idle: book.idle.len(),
            open: book.open(),
            per_worker: self.0.executor.per_worker(),
            starting: book
                .workers
                .values()
                .filter(|worker| worker.record.state == WorkerState::Starting)
                .count(),
            backlog: book.backlog.len(),
            suspects: book.suspects,
            oldest_idle: book
                .idle
                .front()
                .and_then(|id| book.workers.get(id))
                .map(|worker| worker.idle_since),
            oldest_waiting: book.backlog.front().map(|waiting| waiting.since),
            open_again: book.starts.open_again(),
            gave_up: book.starts.given_up().is_some() || book.unresponsive() >= MAX_UNRESPONSIVE,
            prefetch: book.prefetch,
        }
    }

    /// Adds a worker. Returns the notification that wakes it for a task or to exit.
    pub(crate) fn enlist(&self, id: WorkerId, stage: usize, now: Timestamp) -> Arc<Notify> {
        let bell = Arc::new(Notify::new());
        let mut book = self.lock();
        let number = book.free_number();
        let record = Worker {
            id,
            name: format!("{}-{number}", self.0.worker_name),
            pool: self.0.pool.clone(),
            pid: None,
            state: WorkerState::Starting,
            memory_bytes: None,
            started_at: now,
            done: 0,
            failed: 0,
            task: None,
        };
        let worker = WorkerEntry {
            record,
            number,
            stage,
            lost: false,
            idle_since: Instant::now(),
            up_since: None,
            bell: Arc::clone(&bell),
            slots: 1,
            tasks: Vec::new(),
            sharing: Sharing::Yes,
        };
        book.workers.insert(id, worker);
        drop(book);
        bell
    }

    /// All workers with the numbers of their handler runtimes.
    pub(crate) fn stages(&self) -> BTreeMap<WorkerId, usize> {
        self.lock().workers.iter().map(|(id, worker)| (*id, worker.stage)).collect()
    }

    /// Gives up the workers on handler runtimes before this one that run no attempt: they would wait forever, for a task, for the start of
    /// one, or to go on after its end.
    pub(crate) fn retire(&self, before: usize, runs: impl Fn(TaskId) -> bool) {
        let mut book = self.lock();
        let SetState { workers, idle, .. } = &mut *book;
        for (id, worker) in workers.iter_mut().filter(|(_, worker)| worker.stage < before) {
            let running = worker.tasks.iter().filter(|(task, _)| runs(*task)).count();
            if running == 0 && !worker.lost {
                worker.record.state = WorkerState::Killed;
                worker.lost = true;
                worker.bell.notify_one();
                idle.retain(|other| other != id);
            }
        }
        // Another worker takes the task they were about to take.
        book.ring();
    }

    /// Dismisses the worker that has been idle longest.
    pub(crate) fn dismiss_idlest(&self) {
        let mut book = self.lock();
        if let Some(id) = book.idle.pop_front() {
            book.dismiss(id);
        }
    }

    /// Dismisses the selected workers that are idle. One that is about to take a task counts as busy.
    pub(crate) fn recycle(&self, who: WorkerChoice) -> RecycleReport {
        let mut book = self.lock();
        let free =
            book.idle.len().saturating_sub(book.backlog.len().div_ceil(self.0.executor.per_worker().max(1)));
        // The worker that has been idle longest is the last to be given a task.
        let idle: Vec<WorkerId> = book.idle.iter().take(free).copied().collect();
        let stays = |worker: &WorkerEntry| {
            !matches!(
                worker.record.state,
                WorkerState::Draining | WorkerState::Unresponsive | WorkerState::Killed
            )
        };
        let staying = book.workers.iter().filter(|(_, worker)| stays(worker)).map(|(id, _)| *id);
        let is_meant = |id: &WorkerId| match who {
            WorkerChoice::One(one) => one == *id,
            WorkerChoice::Any | WorkerChoice::All => true,
        };
        let (mut recycled, busy): (Vec<_>, Vec<_>) =
            staying.filter(is_meant).partition(|id| idle.contains(id));
        if who == WorkerChoice::Any {
            recycled = idle.first().copied().into_iter().collect();
        }
        for id in &recycled {
            book.idle.retain(|other| other != id);
            book.dismiss(*id);
        }
        RecycleReport { recycled, busy }
    }

    /// Why no more workers are opened, if that is so.
    pub(crate) fn given_up(&self) -> Option<Failure> {
        self.lock().starts.given_up().cloned()
    }

    /// Allows workers to be opened again after giving up.
    pub(crate) fn try_again(&self) {
        self.lock().starts.proved();
    }

    /// Adds claimed tasks and wakes as many idle workers, the most recently busy first.
    pub(crate) fn add(&self, tasks: impl Iterator<Item = ClaimedTask>, low_water: usize) {
        let mut book = self.lock();
        for task in tasks {
            book.suspects += usize::from(task.claimed.suspect);
            if !book.promised.is_empty() {
                book.promised.remove(&task.claimed.lease.task());
            }
            book.backlog.push_back(task);
        }
        book.low_water = low_water;
        book.ring();
    }

    /// Removes waiting tasks, newest first, down to this many.
    pub(crate) fn take_back(&self, down_to: usize) -> Vec<ClaimedTask> {
        let mut book = self.lock();
        let keep = book.backlog.len().min(down_to);
        let taken: Vec<ClaimedTask> = book.backlog.drain(keep..).collect();
        book.suspects -= taken.iter().filter(|waiting| waiting.claimed.suspect).count();
        taken
    }

    /// Removes waiting tasks that were asked to stop.
    pub(crate) fn take_stopped(&self) -> Vec<ClaimedTask> {
        let mut book = self.lock();
        let all = std::mem::take(&mut book.backlog);
        let (stopped, rest): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|waiting| waiting.signals.cancel.is_cancelled());
        book.backlog = rest;
        book.suspects -= stopped.iter().filter(|waiting| waiting.claimed.suspect).count();
        stopped.into()
    }

    /// Resets the prefetch estimate because work turned out to be long.
    pub(crate) fn forget_pace(&self) {
        self.lock().prefetch.forget();
    }

    /// At most this many workers stay; those above it exit when they are free.
    pub(crate) fn set_max(&self, max: usize) {
        self.lock().max = max;
    }

    /// Dismisses all workers: idle ones immediately, busy ones after their attempt.
    pub(crate) fn close(&self) {
        let mut book = self.lock();
        book.closing = true;
        book.idle.clear();
        let all: Vec<WorkerId> = book.workers.keys().copied().collect();
        all.into_iter().for_each(|id| book.dismiss(id));
    }

    /// Whether no worker is left that can be waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().workers.values().all(|worker| worker.lost)
    }

    pub(crate) fn drained(&self) -> Drained {
        self.lock().drained
    }

    /// A drain was taken back: what ended during it is not counted for the next one.
    pub(crate) fn forget_drained(&self) {
        self.lock().drained = Drained::default();
    }

    // ---- for a worker ----

    /// The worker has started.
    pub(crate) fn ready(&self, id: WorkerId) {
        // Kept for when it is gone.
        let Vitals { pid, .. } = self.0.executor.vitals(id);
        let slots = self.0.executor.slots(id);
        let mut book = self.lock();
        book.starts.came_up();
        if let Some(worker) =
            book.workers.get_mut(&id).filter(|worker| worker.record.state == WorkerState::Starting)
        {
            worker.record.state = WorkerState::Busy;
            worker.record.pid = pid;
            worker.slots = slots.max(1);
            worker.up_since = Some(Instant::now());
        }
    }

    /// The worker failed to start. The backoff before opening others doubles each time.
    pub(crate) fn failed(&self, failure: Failure) {
        self.lock().starts.failed(failure, Instant::now());
    }

    /// The node lacks a resource that the worker needs. Opening others backs off, but is never given up.
    pub(crate) fn short(&self, what: String) {
        self.lock().starts.short(what, Instant::now());
    }

    /// The worker died while idle. If it had only just started, that counts as a failed start.
    pub(crate) fn died(&self, id: WorkerId, failure: Failure) {
        let (mut book, now) = (self.lock(), Instant::now());
        book.idle.retain(|other| *other != id);
        // Another worker takes the task it was about to take.
        book.ring();
        let SetState { workers, starts, .. } = &mut *book;
        let Some(worker) = workers.get_mut(&id) else { return };
        worker.record.state = WorkerState::Killed;
        let has_run = worker.record.done + worker.record.failed > 0;
        if has_run || worker.up_since.is_some_and(|since| now - since >= STEADY) {
            starts.proved();
        } else {
            starts.failed(failure, now);
        }
    }

    /// Records the finished attempt and returns what to do next.
    pub(crate) fn turn(&self, id: WorkerId, done: Option<AttemptEnding>, now: Timestamp) -> NextTask {
        let mut book = self.lock();
        let has_ended = done.is_some();
        if let Some(done) = done {
            book.account(id, &done, *self.0.state.borrow());
        }
        let too_many = book.workers.len() > book.max && book.staying() > book.max;
        let closing = book.closing;
        let book = &mut *book;
        let Some(worker) = book.workers.get_mut(&id) else { return NextTask::Go };
        let goes = matches!(
            worker.record.state,
            WorkerState::Draining | WorkerState::Unresponsive | WorkerState::Killed
        );
        if closing || too_many || goes {
            worker.record.state = WorkerState::Draining;
            book.idle.retain(|other| *other != id);
            // Another worker takes the task it was about to take.
            book.ring();
            return NextTask::Go;
        }
        let was_idle = worker.record.state == WorkerState::Idle;
        if let Some(waiting) = book.next_for(id)
            && let Some(worker) = book.workers.get_mut(&id)
        {
            worker.record.state = WorkerState::Busy;
            worker.takes(waiting.claimed.lease.task(), now);
            if was_idle && let Some(place) = book.idle.iter().rposition(|other| *other == id) {
                book.idle.remove(place);
            }
            if book.backlog.len() == book.low_water {
                self.0.changed.notify_one();
            }
            return NextTask::Run(Box::new(waiting));
        }
        let Some(worker) = book.workers.get_mut(&id) else { return NextTask::Go };
        if !worker.tasks.is_empty() {
            // A slot of it is free.
            if has_ended {
                self.0.changed.notify_one();
            }
        } else if !was_idle {
            worker.record.state = WorkerState::Idle;
            worker.idle_since = Instant::now();
            book.idle.push_back(id);
            self.0.changed.notify_one();
        }
        NextTask::Wait
    }

    /// Records the finished attempt of a worker that takes no more tasks.
    pub(crate) fn last(&self, id: WorkerId, done: &AttemptEnding) {
        let mut book = self.lock();
        book.account(id, done, *self.0.state.borrow());
        if let Some(what) = &done.shortage {
            book.starts.short(what.clone(), Instant::now());
        }
        book.dismiss(id);
        if done.slot == WorkerFate::Dead
            && let Some(worker) = book.workers.get_mut(&id)
        {
            worker.record.state = WorkerState::Killed;
        }
    }

    /// Records the outcome of an attempt whose work still blocks its worker; another worker takes its place. The worker
    /// stays in the set, with its task, until it is gone.
    pub(crate) fn mark_unresponsive(&self, id: WorkerId, done: &AttemptEnding) {
        let mut book = self.lock();
        let task = book.workers.get(&id).and_then(|worker| worker.record.task);
        book.account(id, done, *self.0.state.borrow());
        if let Some(worker) = book.workers.get_mut(&id) {
            worker.record.state = WorkerState::Unresponsive;
            worker.record.task = task;
            worker.lost = true;
        }
        drop(book);
        self.0.changed.notify_one();
    }

    /// Removes the worker.
    pub(crate) fn gone(&self, id: WorkerId) {
        let mut book = self.lock();
        book.idle.retain(|other| *other != id);
        let removed = book.workers.remove(&id);
        book.reserved = book.reserved.filter(|reserved| *reserved != id);
        book.ring();
        let was_starting =
            removed.as_ref().is_some_and(|worker| worker.record.state == WorkerState::Starting);
        if let Some(worker) = removed {
            if book.closed.len() == MAX_GONE_WORKERS {
                book.closed.pop_front();
            }
            book.closed.push_back(worker.record);
        }
        if was_starting && !book.starts.is_resting(Instant::now()) {
            // A defect of the pool or the executor must not make the pool spin.
            let failure = Failure::new(ostler_core::ErrorClass::Crash, "a worker panicked while it started");
            book.starts.failed(failure, Instant::now());
        }
        drop(book);
        self.0.changed.notify_one();
    }

    // ---- for reports ----

    /// The last records of workers that were closed since this was asked.
    pub(crate) fn take_closed(&self) -> VecDeque<Worker> {
        std::mem::take(&mut self.lock().closed)
    }

    /// All workers with process id and memory use. The busy ones of a node that drains are shown as draining, though they stay if the
    /// drain is taken back.
    pub(crate) fn workers(&self) -> Vec<Worker> {
        let records: Vec<Worker> = self.lock().workers.values().map(|worker| worker.record.clone()).collect();
        let drains = *self.0.state.borrow() == NodeState::Draining;
        let with_vitals = |record: Worker| {
            let Vitals { pid, memory_bytes } = self.0.executor.vitals(record.id);
            let is_leaving = drains && record.state == WorkerState::Busy;
            let state = if is_leaving { WorkerState::Draining } else { record.state };
            Worker { pid, memory_bytes, state, ..record }
        };
        records.into_iter().map(with_vitals).collect()
    }

    /// The tasks that workers have taken.
    pub(crate) fn tasks(&self) -> Vec<TaskId> {
        let book = self.lock();
        book.workers.values().flat_map(|worker| &worker.tasks).map(|(task, _)| *task).collect()
    }

    /// How many workers run an attempt.
    pub(crate) fn running(&self) -> usize {
        self.lock().running()
    }

    /// Why workers fail to start, if they do.
    pub(crate) fn trouble(&self) -> Option<Failure> {
        let book = self.lock();
        if book.unresponsive() >= MAX_UNRESPONSIVE {
            let message = format!(
                "{} workers of the pool \"{}\" do not stop, so it starts no more workers: restart the program",
                book.unresponsive(),
                self.0.pool
            );
            return Some(Failure::new(ostler_core::ErrorClass::Stuck, message));
        }
        book.starts.trouble().cloned().or_else(|| book.starts.shortage(Instant::now()))
    }
}

#[cfg(test)]
mod tests;
