//! The state of a worker set: its workers with their tasks, and which of them takes the next task.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ostler_core::{Ending, TaskId, Timestamp, Worker, WorkerId, WorkerState};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ClaimedTask;
use crate::attempt::AttemptEnding;
use crate::lifecycle::NodeState;
use crate::node::Drained;
use crate::prefetch::PrefetchEstimate;
use crate::start_backoff::StartBackoff;

#[derive(Default)]
pub(super) struct SetState {
    pub(super) workers: BTreeMap<WorkerId, WorkerEntry>,
    /// In order of idle time, longest first.
    pub(super) idle: VecDeque<WorkerId>,
    pub(super) backlog: VecDeque<ClaimedTask>,
    /// Tasks that are about to be enqueued, and have a worker promised.
    pub(super) promised: BTreeSet<TaskId>,
    pub(super) suspects: usize,
    /// The pool is notified when the backlog has fallen to this.
    pub(super) low_water: usize,
    pub(super) max: usize,
    pub(super) prefetch: PrefetchEstimate,
    pub(super) closing: bool,
    pub(super) drained: Drained,
    pub(super) starts: StartBackoff,
    /// The worker that takes nothing more, so that a task can have it alone.
    pub(super) reserved: Option<WorkerId>,
    /// The last records of workers that were closed, until they are reported; the oldest first.
    pub(super) closed: VecDeque<Worker>,
}

pub(super) struct WorkerEntry {
    pub(super) record: Worker,
    /// In its name; no other worker of the pool has it.
    pub(super) number: usize,
    /// The number of the handler runtime that it is on.
    pub(super) stage: usize,
    /// Not waited for: it may never move again.
    pub(super) lost: bool,
    pub(super) idle_since: Instant,
    /// When it became ready.
    pub(super) up_since: Option<Instant>,
    pub(super) bell: Arc<Notify>,
    /// How many attempts it runs at once.
    pub(super) slots: usize,
    /// Those that it runs, and since when; the oldest first.
    pub(super) tasks: Vec<(TaskId, Timestamp)>,
    pub(super) sharing: Sharing,
}

/// Whether a worker runs several tasks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Yes,
    /// Its task must run alone.
    No,
}

impl WorkerEntry {
    /// Free slots, besides the task that it may be about to take.
    pub(super) fn open(&self) -> usize {
        match (self.record.state, self.sharing) {
            (WorkerState::Idle, _) => self.slots,
            (WorkerState::Busy, Sharing::Yes) if self.slots > 1 => {
                self.slots - self.tasks.len().min(self.slots)
            }
            (
                WorkerState::Starting
                | WorkerState::Busy
                | WorkerState::Draining
                | WorkerState::Killed
                | WorkerState::Unresponsive,
                Sharing::Yes | Sharing::No,
            ) => 0,
        }
    }

    pub(super) fn takes(&mut self, task: TaskId, now: Timestamp) {
        self.tasks.push((task, now));
        self.record.task = self.tasks.first().copied();
    }

    pub(super) fn ended(&mut self, task: TaskId) {
        self.tasks.retain(|(other, _)| *other != task);
        self.record.task = self.tasks.first().copied();
        if self.tasks.is_empty() {
            self.sharing = Sharing::Yes;
        }
    }
}

impl SetState {
    /// The lowest number from one on that no worker has.
    pub(super) fn free_number(&self) -> usize {
        let mut taken = vec![false; self.workers.len() + 1];
        for worker in self.workers.values() {
            if let Some(mark) = taken.get_mut(worker.number - 1) {
                *mark = true;
            }
        }
        1 + taken.iter().take_while(|mark| **mark).count()
    }

    pub(super) fn staying(&self) -> usize {
        let goes =
            |state| matches!(state, WorkerState::Draining | WorkerState::Unresponsive | WorkerState::Killed);
        self.workers.values().filter(|worker| !goes(worker.record.state)).count()
    }

    /// The tasks that its workers run.
    pub(super) fn running(&self) -> usize {
        self.workers.values().filter(|worker| !worker.lost).map(|worker| worker.tasks.len()).sum()
    }

    pub(super) fn unresponsive(&self) -> usize {
        self.workers.values().filter(|worker| worker.record.state == WorkerState::Unresponsive).count()
    }

    /// Wakes as many idle workers as the tasks need, the most recently busy first, and then those with free slots.
    pub(super) fn ring(&self) {
        let mut some = self.backlog.len();
        for worker in self.idle.iter().rev().filter_map(|id| self.workers.get(id)) {
            if some == 0 {
                return;
            }
            worker.bell.notify_one();
            some = some.saturating_sub(worker.slots);
        }
        let shared = |worker: &&WorkerEntry| worker.slots > 1 && worker.record.state == WorkerState::Busy;
        for worker in self.workers.values().filter(shared).filter(|worker| worker.open() > 0) {
            if some == 0 {
                return;
            }
            worker.bell.notify_one();
            some = some.saturating_sub(worker.open());
        }
    }

    /// Free slots. A worker that is reserved has one: for the task that it is reserved for.
    pub(super) fn open(&self) -> usize {
        let open = |(id, worker): (&WorkerId, &WorkerEntry)| match self.reserved {
            Some(reserved) if reserved == *id => worker.open().min(1),
            Some(_) | None => worker.open(),
        };
        self.workers.iter().map(open).sum()
    }

    /// Takes the next task for a worker. One that must run alone gets a worker that runs nothing else. If none is idle, the first
    /// worker that asks is reserved: it takes nothing more, until what it runs has ended.
    pub(super) fn next_for(&mut self, id: WorkerId) -> Option<ClaimedTask> {
        let Self { workers, backlog, idle, reserved, .. } = self;
        let worker = workers.get_mut(&id)?;
        if worker.slots == 1 {
            return backlog.pop_front();
        }
        let alone = backlog.iter().position(ClaimedTask::runs_alone);
        if alone.is_none() {
            *reserved = None;
        }
        if worker.sharing == Sharing::No || worker.tasks.len() >= worker.slots {
            return None;
        }
        let place = match alone {
            Some(alone) if worker.tasks.is_empty() => {
                worker.sharing = Sharing::No;
                *reserved = None;
                alone
            }
            Some(_) if reserved.is_none() && idle.is_empty() => {
                *reserved = Some(id);
                return None;
            }
            Some(_) if *reserved == Some(id) => return None,
            Some(_) => backlog.iter().position(|waiting| !waiting.runs_alone())?,
            None => 0,
        };
        backlog.remove(place)
    }

    pub(super) fn dismiss(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.bell.notify_one();
        if !matches!(worker.record.state, WorkerState::Unresponsive | WorkerState::Killed) {
            worker.record.state = WorkerState::Draining;
        }
    }

    pub(super) fn account(&mut self, id: WorkerId, done: &AttemptEnding, state: NodeState) {
        self.suspects -= usize::from(done.suspect);
        if let Some(took) = done.took {
            self.prefetch.ran(took);
            self.starts.proved();
        }
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.ended(done.task);
        match done.ending {
            Ending::Success => worker.record.done += 1,
            Ending::Failed(_) => worker.record.failed += 1,
            Ending::NodeDied | Ending::HandedBack | Ending::Cancelled => {}
        }
        // The current state: the pool may not have run since the drain began. A pool that is removed drains alone.
        if self.closing || state != NodeState::Running {
            match done.ending {
                Ending::HandedBack | Ending::NodeDied => self.drained.handed_back += 1,
                Ending::Success | Ending::Failed(_) | Ending::Cancelled => self.drained.finished += 1,
            }
        }
    }
}
