//! A pool: claims tasks of one queue for its workers, and scales the number of workers.
//!
//! If one waiting task is enough to add a worker, the backlog is not counted: a claim takes as many tasks as there are free
//! workers plus workers that may still be opened, and the tasks beyond the idle workers are the backlog. If more tasks must
//! wait (`scale_up_at`), nothing is claimed for workers that do not exist yet: the store counts its backlog while all
//! workers are busy. Short work is claimed slightly ahead (`prefetch.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{MemoryPressure, PoolLoad, Scale, ScalePolicy, SessionId, Timestamp, WorkerId, cut, scale};
use ostler_exec::Served;
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds, QueueChange};
use ostler_store::gates::WORKERS_FAIL;
use ostler_store::{MAX_CLAIM, MAX_MESSAGE_BYTES, Wakeups};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attempt::{PoolContext, give_back, give_up};
use crate::config::{PoolConfig, PoolSize};
use crate::lifecycle::{Leaving, NodeLifecycle, NodeState};
use crate::node::{Drained, Ids};
use crate::worker_loop;
use crate::workers::{ClaimedTask, SetLoad, WorkerSet};

/// A claimed task that found no worker for this long is handed back: other nodes may have one.
const PATIENCE: Duration = Duration::from_millis(200);
/// The shortest pause between two claims at a gate.
const SHORTEST: Duration = Duration::from_millis(1);
/// How often overdue attempts are checked for, while any run.
const LATE_LOOK: Duration = Duration::from_millis(500);
/// How late an executor may answer on a responsive runtime before its attempt is given up all the same.
const MAX_LATE: Duration = Duration::from_secs(10);
/// The shortest time between two counts of the backlog.
const BACKLOG_EVERY: Duration = Duration::from_millis(50);
/// How long nothing is claimed ahead after a suspect task: if it takes the node down, no other task should be affected.
const CALM: Duration = Duration::from_secs(1);

/// Serves one queue.
pub(crate) struct Pool {
    context: Arc<PoolContext>,
    session: SessionId,
    ids: Ids,
    poll: Duration,
    lifecycle: NodeLifecycle,
    workers: WorkerSet,
    size: watch::Receiver<PoolSize>,
    worker_tasks: JoinSet<()>,
    /// Cancelled when the pool is removed while its node goes on.
    ending: CancellationToken,
    /// Nothing is claimed ahead before this time.
    calm_until: Option<Instant>,
    /// Nothing is claimed beyond the idle workers before this time.
    modest_until: Option<Instant>,
    /// When to check for overdue attempts again, while any run.
    late_at: Instant,
    rests: Rests,
    /// Ready tasks in the store, as counted in this round.
    backlog: usize,
    /// The backlog is not counted again before this time.
    backlog_at: Instant,
}

/// Whether the queue is paused because workers die at their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rests {
    No,
    /// Until the queue is resumed.
    Paused,
}

/// The result of a claim.
enum ClaimResult {
    /// There may be more: the claim was filled, or the store did not answer.
    Filled,
    /// Fewer tasks than could be taken. A gate may admit more at this time.
    Short(Option<Instant>),
    /// The backlog is counted at this time.
    Later(Instant),
}

impl Pool {
    pub(crate) fn new(
        context: PoolContext,
        session: SessionId,
        ids: Ids,
        poll: Duration,
        lifecycle: NodeLifecycle,
        size: watch::Receiver<PoolSize>,
    ) -> Self {
        let PoolConfig { queue, worker_name, executor, .. } = &context.pool;
        let (executor, max) = (Arc::clone(executor), size.borrow().max);
        let workers = WorkerSet::new(queue, worker_name, executor, max, lifecycle.watch());
        Self {
            context: Arc::new(context),
            session,
            ids,
            poll,
            lifecycle,
            workers,
            size,
            worker_tasks: JoinSet::new(),
            ending: CancellationToken::new(),
            calm_until: None,
            modest_until: None,
            late_at: Instant::now(),
            rests: Rests::No,
            backlog: 0,
            backlog_at: Instant::now(),
        }
    }

    pub(crate) fn workers(&self) -> WorkerSet {
        self.workers.clone()
    }

    pub(crate) fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }

    /// The state of the node, as far as this pool is concerned.
    fn state(&self, node: NodeState) -> NodeState {
        match node {
            NodeState::Running if self.ending.is_cancelled() => NodeState::Draining,
            NodeState::Running | NodeState::Draining | NodeState::Fenced | NodeState::Ended => node,
        }
    }

    /// Claims and runs until the node drains, or the pool is removed, and the last attempt has ended. Returns what happened to the attempts that
    /// were running when the drain began. While a drain can still be taken back, the workers stay.
    pub(crate) async fn serve(mut self) -> Drained {
        let (mut state, mut leaving) = (self.lifecycle.watch(), self.lifecycle.leaving());
        let mut before = NodeState::Running;
        let mut stops = self.context.held.stops();
        let mut wakeups: Wakeups = self.context.store.wakeups();
        loop {
            state.mark_unchanged();
            leaving.mark_unchanged();
            let (node, may_resume) = self.lifecycle.now_and_leaving();
            let now = self.state(node);
            if (before, now) == (NodeState::Draining, NodeState::Running) {
                self.workers.forget_drained();
            }
            before = now;
            self.give_up_overdue().await;
            let look = match now {
                NodeState::Running => {
                    wakeups.arm();
                    self.hand_back_stale().await;
                    self.rest_or_go_on().await;
                    self.backlog = 0;
                    self.scale();
                    let look = self.claim().await;
                    let look = self.count_backlog(look).await;
                    self.scale();
                    look
                }
                NodeState::Draining if may_resume == Leaving::Revocable && !self.ending.is_cancelled() => {
                    self.give_back(self.workers.take_back(0)).await;
                    ClaimResult::Filled
                }
                NodeState::Draining | NodeState::Fenced | NodeState::Ended => {
                    self.workers.close();
                    self.give_back(self.workers.take_back(0)).await;
                    if self.workers.is_empty() {
                        return self.workers.drained();
                    }
                    ClaimResult::Filled
                }
            };
            let (hungry, gate) = match look {
                ClaimResult::Short(gate) => (true, gate),
                ClaimResult::Later(at) => (false, Some(at)),
                ClaimResult::Filled => (false, None),
            };
            let until = gate.into_iter().fold(self.next_look(), Instant::min);
            let ending = self.ending.clone();
            tokio::select! {
                () = self.workers.changed() => {}
                Some(_) = self.worker_tasks.join_next(), if !self.worker_tasks.is_empty() => {}
                () = wakeups.wait(), if hungry => {}
                () = tokio::time::sleep_until(until) => {}
                _ = stops.changed() => self.give_back(self.workers.take_stopped()).await,
                Ok(()) = self.size.changed() => self.resize().await,
                _ = state.changed() => {}
                _ = leaving.changed() => {}
                () = ending.cancelled(), if !ending.is_cancelled() => {}
            }
        }
    }

    /// Applies the scaling rules until they call for no more changes.
    fn scale(&mut self) {
        let size = *self.size.borrow();
        let policy = ScalePolicy {
            min: count(size.min),
            max: count(size.max),
            scale_up_at: count(size.scale_up_at),
            idle_timeout: size.idle_timeout,
        };
        // Each round changes the set by at least one worker.
        for _ in 0..=MAX_CLAIM {
            let now = Instant::now();
            let load = self.workers.load();
            let may_open = !load.gave_up && load.open_again.is_none_or(|at| at <= now);
            match scale(&policy, &pool_load(&load, self.backlog, now, (self.context.memory)())) {
                Scale::Up(more) if may_open => self.open(more),
                Scale::Hold | Scale::Up(_) => return,
                Scale::Down => self.workers.dismiss_idlest(),
            }
        }
    }

    fn open(&mut self, more: u32) {
        for _ in 0..more {
            let (id, stage) = (WorkerId((self.ids)()), self.context.stages.now());
            let bell = self.workers.enlist(id, stage.number, self.context.clock.now());
            let worker = worker_loop::serve(Arc::clone(&self.context), self.workers.clone(), id, bell);
            self.worker_tasks.spawn_on(worker, &stage.handle);
        }
    }

    /// Gives up attempts whose executor should have answered by now: their runtime is blocked. They fail with a timeout,
    /// and other workers continue on another runtime.
    async fn give_up_overdue(&mut self) {
        let now = Instant::now();
        if now < self.late_at {
            return;
        }
        self.late_at = now + LATE_LOOK;
        let mine = self.workers.stages();
        let late = self.context.held.late(now.into_std());
        let stages: BTreeSet<usize> = late.iter().filter_map(|worker| mine.get(worker)).copied().collect();
        for stage in stages {
            // An executor may be late for its own reasons: if its runtime is responsive, it will usually answer. What a blocked thread
            // was to run next stays with that thread, however responsive the others are.
            let moves = self.context.stages.moves(stage).await;
            let due = if moves { now.into_std().checked_sub(MAX_LATE) } else { Some(now.into_std()) };
            let stuck = |worker: WorkerId| mine.get(&worker) == Some(&stage);
            let overdue = due.map(|due| self.context.held.overdue(due, stuck)).unwrap_or_default();
            for (worker, done) in give_up(&self.context, overdue).await {
                self.context.telemetry.worker_ran(&self.context.pool.queue, worker, done.ending, done.slot);
                self.workers.mark_unresponsive(worker, &done);
            }
            if !moves {
                self.context.stages.leave(stage, self.size.borrow().max);
                let held = &self.context.held;
                self.workers.retire(self.context.stages.now().number, |task| held.runs_or_forget(task));
            }
        }
    }

    /// Applies a new size: waiting tasks are handed back, idle workers above the maximum exit immediately, busy ones when
    /// they are done.
    async fn resize(&mut self) {
        self.workers.set_max(self.size.borrow_and_update().max);
        self.give_back(self.workers.take_back(0)).await;
    }

    /// Claims as many tasks as can run, plus the prefetch.
    async fn claim(&mut self) -> ClaimResult {
        let now = Instant::now();
        let load = self.workers.load();
        let (growth, ahead) = (self.growth(&load, now), self.ahead(&load, now));
        let room = match (self.context.memory)() {
            MemoryPressure::Free => room(&load, growth, ahead),
            // One at a time: a task waiting for memory that others hold would wait forever.
            MemoryPressure::Tight => room(&load, growth, ahead).min(usize::from(load.is_at_rest())),
        };
        if room == 0 {
            return ClaimResult::Filled;
        }
        let queue = self.context.pool.queue.clone();
        let claim = Claim { session: self.session, queue, kinds: self.kinds(), limit: room };
        // Until the claimed tasks are registered, the heartbeat may see them as orphans.
        let _claiming = self.context.held.claiming();
        let answer = tokio::select! {
            answer = self.context.store.claim(claim) => answer,
            // Tasks that may have been claimed are released with the session.
            () = self.lifecycle.lost() => return ClaimResult::Filled,
        };
        let (tasks, next): (Vec<Claimed>, _) = match answer {
            Ok(ClaimAnswer::Tasks { tasks, next }) => (tasks, next),
            Ok(ClaimAnswer::SessionEnded) => {
                self.lifecycle.fence();
                return ClaimResult::Filled;
            }
            // The heartbeat decides whether the store is lost; here the next poll retries.
            Err(_) => return ClaimResult::Filled,
        };
        if next.is_some() {
            self.context.telemetry.breakers.look();
        }
        let short = tasks.len() < room;
        self.take(tasks, growth, ahead).await;
        match next {
            Some(next) if short => ClaimResult::Short(Some(Instant::now() + self.wait_for_gate(next).await)),
            None if short => ClaimResult::Short(None),
            Some(_) | None => ClaimResult::Filled,
        }
    }

    /// How long to wait for a gate that opens at this time, by the clock of the store.
    async fn wait_for_gate(&self, opens: Timestamp) -> Duration {
        let now = self.context.store.now().await.unwrap_or_else(|_| self.context.clock.now());
        opens.since(now).max(SHORTEST).min(self.poll)
    }

    async fn take(&mut self, tasks: Vec<Claimed>, growth: usize, ahead: usize) {
        let suspect = tasks.iter().any(|task| task.suspect);
        let signals = self.context.held.take(tasks.iter().map(|task| task.lease.as_ref()));
        let since = Instant::now();
        let tasks = tasks.into_iter().zip(signals);
        let tasks = tasks.map(|(claimed, signals)| ClaimedTask { claimed, signals, since });
        // The state of the node may have changed during the claim.
        if self.state(self.lifecycle.now()) != NodeState::Running {
            return self.give_back(tasks.collect()).await;
        }
        self.workers.add(tasks, ahead / 2);
        if suspect {
            // Beside a suspect, hold no task without a current or upcoming worker.
            self.calm_until = Some(since + CALM);
            let load = self.workers.load();
            self.give_back(self.workers.take_back(load.open + load.coming() + growth)).await;
        }
    }

    fn kinds(&self) -> Kinds {
        match self.context.pool.executor.served() {
            Served::Any => Kinds::Any,
            Served::Only(kinds) => Kinds::Only(kinds),
        }
    }

    /// If a minimum number of tasks must wait for another worker to be added, the store counts them while no worker is
    /// free. New tasks trigger another count.
    async fn count_backlog(&mut self, look: ClaimResult) -> ClaimResult {
        let (load, now) = (self.workers.load(), Instant::now());
        let more = self.openable(&load, now);
        let is_useful = self.grows_by_backlog(&load)
            && more > 0
            && load.free() == 0
            && matches!(look, ClaimResult::Filled)
            && (self.context.memory)() == MemoryPressure::Free;
        if !is_useful {
            return look;
        }
        if now < self.backlog_at {
            return ClaimResult::Later(self.backlog_at);
        }
        self.backlog_at = now + BACKLOG_EVERY;
        let enough = self.size.borrow().scale_up_at.saturating_add(load.coming());
        let limit = enough.max(more * load.per_worker + load.coming()).min(MAX_CLAIM);
        let kinds = self.kinds();
        let counted = tokio::select! {
            counted = self.context.store.backlog(&self.context.pool.queue, &kinds, limit) => counted,
            () = self.lifecycle.lost() => return ClaimResult::Filled,
        };
        match counted {
            Ok(counted) => {
                self.backlog = counted;
                ClaimResult::Short(None)
            }
            // As after a failed claim, the next poll retries.
            Err(_) => ClaimResult::Filled,
        }
    }

    /// Whether the size of the backlog decides about another worker. The first worker is added for any task.
    fn grows_by_backlog(&self, load: &SetLoad) -> bool {
        self.size.borrow().scale_up_at > 1 && load.total > 0
    }

    /// How many slots of workers that do not exist yet a claim may count on.
    fn growth(&self, load: &SetLoad, now: Instant) -> usize {
        let is_modest = self.grows_by_backlog(load) || is_before(now, self.modest_until);
        if is_modest { 0 } else { self.openable(load, now) * load.per_worker }
    }

    /// How many workers could still be opened for waiting tasks.
    fn openable(&self, load: &SetLoad, now: Instant) -> usize {
        if load.gave_up || is_before(now, load.open_again) {
            return 0;
        }
        self.size.borrow().max.saturating_sub(load.total)
    }

    /// How many tasks to claim ahead.
    fn ahead(&self, load: &SetLoad, now: Instant) -> usize {
        let slots = self.size.borrow().max * load.per_worker;
        let bound = self.context.pool.claims_ahead().most(slots);
        let quiet = load.suspects > 0 || is_before(now, self.calm_until) || is_before(now, self.modest_until);
        if quiet { 0 } else { load.prefetch.ahead((load.total - load.starting) * load.per_worker, bound) }
    }

    /// Hands back tasks that found no worker in time: the work was longer than estimated, or too few tasks wait for another
    /// worker.
    async fn hand_back_stale(&mut self) {
        let (load, now) = (self.workers.load(), Instant::now());
        if load.excess() > 0 && load.oldest_waiting.is_some_and(|since| now - since >= PATIENCE) {
            self.modest_until = Some(now + self.poll);
            self.workers.forget_pace();
            self.give_back(self.workers.take_back(load.backlog - load.excess())).await;
        }
    }

    /// Pauses the queue, with the reason, when workers die at their start repeatedly, instead of retrying forever. Resuming
    /// the queue starts workers again.
    async fn rest_or_go_on(&mut self) {
        let Some(failure) = self.workers.given_up() else { return };
        let (store, queue) = (&self.context.store, &self.context.pool.queue);
        // An unavailable store is asked again in the next round.
        let Ok(settings) = store.queue_settings(queue).await else { return };
        match (self.rests, settings.paused) {
            (Rests::Paused, None) => {
                self.rests = Rests::No;
                self.workers.try_again();
            }
            (Rests::No, None) => {
                let reason = cut(&format!("{WORKERS_FAIL}: {}", failure.message), MAX_MESSAGE_BYTES);
                let reason = reason.replace('\0', "\u{fffd}");
                if store.configure(queue, vec![QueueChange::Pause(reason)]).await.is_ok() {
                    self.rests = Rests::Paused;
                }
            }
            // The queue is already paused for another reason.
            (Rests::No, Some(_)) => self.rests = Rests::Paused,
            (Rests::Paused, Some(_)) => {}
        }
    }

    async fn give_back(&self, tasks: Vec<ClaimedTask>) {
        for waiting in tasks {
            give_back(&self.context, waiting.claimed).await;
        }
    }

    /// When to run the next round if nothing happens before.
    fn next_look(&self) -> Instant {
        let (load, now) = (self.workers.load(), Instant::now());
        let idle =
            load.oldest_idle.map(|since| since + self.size.borrow().idle_timeout).filter(|at| *at > now);
        let stale = load.oldest_waiting.filter(|_| load.excess() > 0).map(|since| since + PATIENCE);
        let open = load.open_again.filter(|at| *at > now && !load.gave_up);
        let runs = load.total > load.idle + load.starting;
        let late = runs.then_some(self.late_at);
        [idle, stale, open, late].into_iter().flatten().fold(now + self.poll, Instant::min)
    }
}

/// How many tasks may be claimed.
fn room(load: &SetLoad, growth: usize, ahead: usize) -> usize {
    let here = load.free() + growth.saturating_sub(load.excess());
    // Prefetch is claimed in batches: when half of it is used up, or a claim is made anyway.
    let more = if here > 0 || load.excess() <= ahead / 2 { ahead.saturating_sub(load.excess()) } else { 0 };
    (here + more).min(MAX_CLAIM)
}

/// The load as the scaling rules see it: an idle worker with waiting tasks counts as busy.
fn pool_load(load: &SetLoad, backlog: usize, now: Instant, memory: MemoryPressure) -> PoolLoad {
    PoolLoad {
        total: count(load.total),
        idle: count(load.spare()),
        starting: count(load.starting),
        per_worker: count(load.per_worker),
        waiting: count(load.unserved() + backlog),
        oldest_idle_for: load.oldest_idle.map_or(Duration::ZERO, |since| now - since),
        memory,
    }
}

fn is_before(now: Instant, until: Option<Instant>) -> bool {
    until.is_some_and(|until| now < until)
}

fn count(some: usize) -> u32 {
    u32::try_from(some).unwrap_or(u32::MAX)
}
