//! A pool: it claims for one queue as much as it has free slots, and never more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::{Ending, SessionId, TaskId, Timestamp, Worker, WorkerId, WorkerState};
use ostler_exec::{Served, Slot};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds};
use ostler_store::{Clock, Wakeups};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::attempt::{self, Bench};
use crate::node::{Drained, Ids, NodeState};

/// The workers of a pool, as they are reported. Clones are the same.
#[derive(Clone)]
pub(crate) struct Roster(Arc<Mutex<Vec<Worker>>>);

impl Roster {
    fn new(pool: &str, workers: usize, ids: &Ids, now: Timestamp) -> Self {
        let worker = |_| Worker {
            id: WorkerId(ids()),
            pool: pool.to_owned(),
            pid: None,
            state: WorkerState::Idle,
            memory_bytes: None,
            started_at: now,
            done: 0,
            failed: 0,
            task: None,
        };
        Self(Arc::new(Mutex::new((0..workers).map(worker).collect())))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn workers(&self) -> Vec<Worker> {
        self.lock().clone()
    }

    fn idle(&self) -> Vec<usize> {
        let workers = self.lock();
        (0..workers.len()).filter(|place| workers[*place].state == WorkerState::Idle).collect()
    }

    fn busy(&self, place: usize, task: TaskId, now: Timestamp) -> WorkerId {
        let worker = &mut self.lock()[place];
        worker.state = WorkerState::Busy;
        worker.task = Some((task, now));
        worker.id
    }

    fn free(&self, place: usize, ending: Ending, slot: Slot, ids: &Ids) {
        let worker = &mut self.lock()[place];
        worker.state = WorkerState::Idle;
        worker.task = None;
        match ending {
            Ending::Success => worker.done += 1,
            Ending::Failed(_) => worker.failed += 1,
            Ending::NodeDied | Ending::HandedBack | Ending::Cancelled => {}
        }
        if slot == Slot::Deaf {
            // Its handler still holds the old one; another worker has its place.
            worker.id = WorkerId(ids());
        }
    }
}

/// Serves one queue.
pub(crate) struct Pool {
    pub(crate) bench: Bench,
    pub(crate) session: SessionId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Ids,
    pub(crate) poll: Duration,
    pub(crate) state: watch::Sender<NodeState>,
    pub(crate) roster: Roster,
}

/// What a claim led to.
enum Look {
    /// There may be more: every free slot was filled, or the store could not say.
    Filled,
    /// There was less than there are free slots.
    Short,
    /// The session is over.
    Ended,
}

impl Pool {
    pub(crate) fn roster(config: &crate::config::PoolConfig, ids: &Ids, now: Timestamp) -> Roster {
        Roster::new(&config.queue, config.workers, ids, now)
    }

    /// Claims and runs until the node drains and the last attempt has ended. Answers what became of those that ran when
    /// the drain began.
    pub(crate) async fn serve(self) -> Drained {
        let mut watching = self.state.subscribe();
        let mut wakeups: Wakeups = self.bench.store.wakeups();
        let mut running: JoinSet<(Ending, Slot)> = JoinSet::new();
        let mut places = HashMap::new();
        let mut drained = Drained::default();
        loop {
            let state = *watching.borrow_and_update();
            wakeups.arm();
            let look = match state {
                NodeState::Running => self.claim(&mut running, &mut places).await,
                NodeState::Draining | NodeState::Fenced | NodeState::Ended if running.is_empty() => {
                    return drained;
                }
                NodeState::Draining | NodeState::Fenced | NodeState::Ended => Look::Filled,
            };
            if matches!(look, Look::Ended) {
                NodeState::Fenced.instead_of_running(&self.state);
                continue;
            }
            let hungry = matches!(look, Look::Short);
            tokio::select! {
                Some(ended) = running.join_next_with_id(), if !running.is_empty() => {
                    self.ended(ended, &mut places, &mut drained);
                    while let Some(ended) = running.try_join_next_with_id() {
                        self.ended(ended, &mut places, &mut drained);
                    }
                }
                () = wakeups.wait(), if hungry => {}
                () = tokio::time::sleep(self.poll) => {}
                _ = watching.changed() => {}
            }
        }
    }

    /// Fills the free slots.
    async fn claim(
        &self,
        running: &mut JoinSet<(Ending, Slot)>,
        places: &mut HashMap<tokio::task::Id, usize>,
    ) -> Look {
        let idle = self.roster.idle();
        if idle.is_empty() {
            return Look::Filled;
        }
        let kinds = match self.bench.pool.executor.served() {
            Served::Any => Kinds::Any,
            Served::Only(kinds) => Kinds::Only(kinds),
        };
        let queue = self.bench.pool.queue.clone();
        let claim = Claim { session: self.session, queue, kinds, limit: idle.len() };
        let tasks: Vec<Claimed> = match self.bench.store.claim(claim).await {
            Ok(ClaimAnswer::Tasks(tasks)) => tasks,
            Ok(ClaimAnswer::SessionEnded) => return Look::Ended,
            // The keeper knows whether the store is away for good; here the poll comes back.
            Err(_) => return Look::Filled,
        };
        let look = if tasks.len() < idle.len() { Look::Short } else { Look::Filled };
        for (place, claimed) in idle.into_iter().zip(tasks) {
            let worker = self.roster.busy(place, claimed.lease.task(), self.clock.now());
            let handle = running.spawn(attempt::run(self.bench.clone(), claimed, worker));
            places.insert(handle.id(), place);
        }
        look
    }

    fn ended(
        &self,
        ended: Result<(tokio::task::Id, (Ending, Slot)), tokio::task::JoinError>,
        places: &mut HashMap<tokio::task::Id, usize>,
        drained: &mut Drained,
    ) {
        let (id, (ending, slot)) = match ended {
            Ok(ended) => ended,
            // An attempt that panicked is a defect of ours; its lease ends with the node, and its slot goes on.
            Err(error) => (error.id(), (Ending::NodeDied, Slot::Free)),
        };
        if let Some(place) = places.remove(&id) {
            self.roster.free(place, ending, slot, &self.ids);
        }
        // As it is now: the drain may have begun since this loop last looked.
        if *self.state.borrow() != NodeState::Running {
            match ending {
                Ending::HandedBack | Ending::NodeDied => drained.handed_back += 1,
                Ending::Success | Ending::Failed(_) | Ending::Cancelled => drained.finished += 1,
            }
        }
    }
}
