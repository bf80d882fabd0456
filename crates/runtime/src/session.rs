//! A node session, from its join to its end, with all tasks that run under it. A node that lost its session rejoins with a
//! new one.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_core::{SessionId, Timestamp};
use ostler_exec::Breakers;
use ostler_schedule::PlannedSchedule;
use ostler_store::calls::{Fenced, NewSession, QueueChange};
use ostler_store::outbox::Subscription;
use ostler_store::schedules::PutAnswer;
use ostler_store::{MAX_NODE_COMMANDS, Store};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::attempt::PoolContext;
use crate::breaker_watch::BreakerWatch;
use crate::call_breakers::StoredBreakers;
use crate::config::{NodeConfig, PoolConfig, TakeOver};
use crate::finisher::Finisher;
use crate::handler_options::HandlerOptions;
use crate::handler_runtime::HandlerRuntimes;
use crate::heartbeat::LeaseKeeper;
use crate::leases::StopReason;
use crate::lifecycle::NodeLifecycle;
use crate::maintenance::Maintenance;
use crate::node::{Drained, NodeDeps, StartError};
use crate::outbox::OutboxDispatcher;
use crate::pool::Pool;
use crate::presence::{Subject, announce};
use crate::recycler::Recycler;
use crate::running_pool::RunningPool;
use crate::schedules::Scheduler;
use crate::settings_conflict::{self, SettingsConflict};
use crate::sizes::Sizes;
use crate::telemetry::Telemetry;
use crate::worker_sets::WorkerSets;

/// How long a draining node waits for the delivery of its last outbox entries. The rest is delivered later.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What all sessions of a node share.
pub(crate) struct SessionDeps {
    pub(crate) parts: NodeDeps,
    pub(crate) config: NodeConfig,
    pub(crate) lifecycle: NodeLifecycle,
    pub(crate) finisher: Finisher,
    pub(crate) sizes: Sizes,
    pub(crate) stages: HandlerRuntimes,
    pub(crate) telemetry: Telemetry,
}

/// Whether a node joins for the first time or rejoins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// The node applies its settings, and may take over.
    First,
    /// The node applies nothing: changes made since its start are kept.
    Again,
}

/// One session and the tasks that run under it.
pub(crate) struct NodeSession {
    pub(crate) session: SessionId,
    pub(crate) worker_sets: WorkerSets,
    store: Arc<dyn Store>,
    lifecycle: NodeLifecycle,
    pools: Vec<RunningPool>,
    maintenance: tokio::task::JoinHandle<()>,
    scheduler: tokio::task::JoinHandle<()>,
    recycler: tokio::task::JoinHandle<()>,
    breaker_watch: tokio::task::JoinHandle<()>,
    dispatchers: JoinSet<()>,
    /// Cancelled when no more attempts will finish under this session.
    over: CancellationToken,
    heartbeat: JoinHandle<()>,
    presence: Option<tokio::task::JoinHandle<()>>,
    grace: Duration,
}

impl NodeSession {
    /// Joins with a new session and starts to work.
    pub(crate) async fn begin(deps: &SessionDeps, arrival: Join) -> Result<Self, StartError> {
        let SessionDeps { parts: NodeDeps { store, ids, .. }, config, .. } = deps;
        let session = SessionId(ids());
        let node = NewSession {
            id: session,
            name: config.name.clone(),
            host: host(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ttl: config.lease.ttl,
            settings: settings_conflict::session_text(config),
        };
        if store.join(node).await? == Fenced::Lost {
            return Err(StartError::NotNew);
        }
        let begun = match prepare(deps, session, arrival).await {
            Ok(()) => {
                if arrival == Join::First {
                    deps.telemetry.node_started(session, &host());
                }
                Self::work(deps, session)
            }
            Err(refused) => Err(refused),
        };
        if begun.is_err() {
            // It joined, but held nothing.
            let _ = store.leave(session).await;
        }
        begun
    }

    /// Starts all parts of the session.
    fn work(deps: &SessionDeps, session: SessionId) -> Result<Self, StartError> {
        let SessionDeps { parts, config, lifecycle, finisher, sizes, stages: _, telemetry } = deps;
        let NodeDeps { store, clock, ids } = parts;
        lifecycle.run();
        let (request, requests) = mpsc::channel(MAX_NODE_COMMANDS);
        let heartbeat = LeaseKeeper {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            session,
            times: config.lease,
            lifecycle: lifecycle.clone(),
            sizes: sizes.clone(),
            finisher: finisher.clone(),
            guard: config.guard.clone(),
            requests: request,
        };
        let heartbeat = heartbeat.start()?;
        let worker_sets = WorkerSets::default();
        let recycler = Recycler {
            store: Arc::clone(store),
            session,
            worker_sets: worker_sets.clone(),
            requests,
            telemetry: telemetry.clone(),
        };
        let recycler = tokio::spawn(recycler.serve());
        let breaker_watch = BreakerWatch {
            store: Arc::clone(store),
            worker_sets: worker_sets.clone(),
            telemetry: telemetry.clone(),
        };
        let breaker_watch = tokio::spawn(breaker_watch.serve());
        let maintenance = Maintenance {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            session,
            every: config.maintenance,
            heartbeat: config.lease.heartbeat,
            retention: config.retention,
            worker_sets: worker_sets.clone(),
            state: lifecycle.watch(),
            telemetry: telemetry.clone(),
        };
        let maintenance = tokio::spawn(maintenance.serve());
        let scheduler =
            Scheduler { store: Arc::clone(store), ids: Arc::clone(ids), state: lifecycle.watch() };
        let scheduler = tokio::spawn(scheduler.serve());
        let presence = config.presence.clone().map(|presence| {
            let (worker_sets, clock) = (worker_sets.clone(), Arc::clone(clock));
            let (name, state) = (config.name.clone(), lifecycle.watch());
            tokio::spawn(announce(presence, Subject { session, name, worker_sets, clock, state }))
        });
        let mut begun = Self {
            session,
            worker_sets,
            store: Arc::clone(store),
            lifecycle: lifecycle.clone(),
            pools: Vec::new(),
            maintenance,
            scheduler,
            recycler,
            breaker_watch,
            dispatchers: JoinSet::new(),
            over: CancellationToken::new(),
            heartbeat,
            presence,
            grace: Duration::ZERO,
        };
        config.pools.iter().for_each(|pool| begun.add_pool(deps, pool));
        Ok(begun)
    }

    /// Starts to claim for a pool. The settings of its queue are written.
    pub(crate) fn add_pool(&mut self, deps: &SessionDeps, pool: &PoolConfig) {
        let SessionDeps { parts, config, lifecycle, finisher, sizes, stages, telemetry } = deps;
        let NodeDeps { store, clock, ids } = parts;
        let over = self.over.child_token();
        for listener in &pool.listeners {
            let dispatcher = OutboxDispatcher {
                store: Arc::clone(store),
                session: self.session,
                queue: pool.queue.clone(),
                listener: Arc::clone(listener),
                poll: config.lease.poll,
                over: over.clone(),
                stages: stages.clone(),
            };
            self.dispatchers.spawn(dispatcher.serve());
        }
        let context = PoolContext {
            stages: stages.clone(),
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            pool: pool.clone(),
            held: lifecycle.held.clone(),
            finisher: finisher.clone(),
            memory: Arc::clone(&config.memory),
            suspects: Arc::default(),
            options: HandlerOptions::default(),
            breakers: Breakers::kept(Arc::new(StoredBreakers(Arc::clone(store)))),
            telemetry: telemetry.clone(),
        };
        let (size, poll) = (sizes.watch(pool), config.lease.poll);
        let serving = Pool::new(context, self.session, Arc::clone(ids), poll, lifecycle.clone(), size);
        self.worker_sets.add(serving.workers());
        self.grace = self.grace.max(pool.grace);
        telemetry.pool_started(&pool.queue, pool.size);
        self.pools.push(RunningPool::start(serving, pool.grace, over, telemetry.clone()));
    }

    /// The pool of this queue, which may be about to leave.
    pub(crate) fn pool(&mut self, queue: &str) -> Option<&RunningPool> {
        self.reap();
        self.pools.iter().find(|pool| pool.queue() == queue)
    }

    /// Forgets pools that were removed and have ended: what they did is reported already.
    fn reap(&mut self) {
        self.pools.retain(|pool| !pool.is_gone());
        while self.dispatchers.try_join_next().is_some() {}
    }

    /// The session is lost: waits until its stopped attempts have ended.
    pub(crate) async fn stop(mut self) {
        self.collect_in_time(&mut Drained::default()).await;
        self.end().await;
    }

    /// Drains: waits for running attempts, and hands the rest back after `timeout`. An immediate stop ends them at once.
    pub(crate) async fn wind_down(
        &mut self,
        timeout: Duration,
        hurry: &CancellationToken,
        drained: &mut Drained,
    ) {
        self.reap();
        let in_time = tokio::select! {
            biased;
            () = hurry.cancelled() => false,
            collected = tokio::time::timeout(timeout, collect(&mut self.pools, drained)) => collected.is_ok(),
        };
        if in_time {
            return;
        }
        let held = self.lifecycle.held.clone();
        held.stop_all(StopReason::HandBack);
        let end_at_once = async {
            hurry.cancelled().await;
            held.end_all();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = end_at_once => {}
            () = self.collect_in_time(drained) => {}
        }
    }

    /// Leaves; leases still held are released with the session. Outbox entries are delivered first, unless an immediate
    /// stop is requested.
    pub(crate) async fn leave(&mut self, hurry: &CancellationToken) {
        self.over.cancel();
        let delivered = async { while self.dispatchers.join_next().await.is_some() {} };
        tokio::select! {
            _ = tokio::time::timeout(LAST_WORDS, delivered) => {}
            () = hurry.cancelled() => {}
        }
        // Its workers have closed since the last report, with what they had done.
        let closed = self.worker_sets.take_closed().into();
        let _ = self.store.report(self.session, Vec::new(), closed).await;
        let _ = self.store.leave(self.session).await;
    }

    /// Ends the remaining parts. They may be waiting for an unavailable store, and are aborted.
    pub(crate) async fn end(mut self) {
        self.dispatchers.abort_all();
        self.maintenance.abort();
        self.scheduler.abort();
        self.recycler.abort();
        self.breaker_watch.abort();
        let _ = self.maintenance.await;
        let _ = self.scheduler.await;
        // The thread checks the state before and after each renewal, and while it waits.
        let heartbeat = self.heartbeat;
        let _ = tokio::task::spawn_blocking(move || heartbeat.join()).await;
        // It removes its presence, within a second.
        if let Some(presence) = self.presence {
            let _ = presence.await;
        }
    }

    /// An executor answers within two grace periods. Attempts that do not are left behind, and their leases end with the
    /// session.
    async fn collect_in_time(&mut self, drained: &mut Drained) {
        let _ = tokio::time::timeout(self.grace * 3, collect(&mut self.pools, drained)).await;
        self.pools.iter().for_each(RunningPool::abort);
        // What they held is given up when this returns.
        collect(&mut self.pools, &mut Drained::default()).await;
    }
}

/// The host name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Waits for all pools and adds up their results. If cancelled, the sum so far is kept.
async fn collect(pools: &mut Vec<RunningPool>, drained: &mut Drained) {
    while let Some(pool) = pools.last_mut() {
        let Drained { finished, handed_back } = pool.ended().await;
        pools.pop();
        drained.finished += finished;
        drained.handed_back += handed_back;
    }
}

/// Everything that must precede the first claim.
async fn prepare(deps: &SessionDeps, session: SessionId, arrival: Join) -> Result<(), StartError> {
    let SessionDeps { parts: NodeDeps { store, .. }, config, .. } = deps;
    bring_settings(store.as_ref(), session, &config.pools, config.take_over, arrival).await?;
    if arrival == Join::First && !config.schedules.is_empty() {
        bring_schedules(store.as_ref(), &config.schedules, store.now().await?).await?;
    }
    match (&config.guard, store.liveness_lock(session)?) {
        (Some(guard), Some(liveness_lock)) => guard.hold(liveness_lock).await.map_err(StartError::Guard),
        // There is no guard, or this store proves liveness in another way.
        (Some(_) | None, _) => Ok(()),
    }
}

/// Puts the configured schedules. One that is removed later stays away until the next start.
async fn bring_schedules(
    store: &dyn Store,
    plans: &[PlannedSchedule],
    now: Timestamp,
) -> Result<(), StartError> {
    for plan in plans {
        match store.put_schedule(plan.schedule(now)).await? {
            PutAnswer::Created | PutAnswer::Replaced => {}
            PutAnswer::TooMany { limit } => {
                return Err(StartError::TooManySchedules { name: plan.name.clone(), limit });
            }
        }
    }
    Ok(())
}

/// Why the settings of queues were not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
    /// Another live node has different ones.
    #[error("{0}")]
    Differs(SettingsConflict),
}

impl From<SettingsError> for StartError {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Store(error) => Self::Store(error),
            SettingsError::Differs(conflict) => Self::Differs(conflict),
        }
    }
}

/// Applies the configured queue settings, unless a live node has different ones. The node has joined before: of two that
/// start at once, the later one sees the earlier.
pub(crate) async fn bring_settings(
    store: &dyn Store,
    session: SessionId,
    pools: &[PoolConfig],
    take_over: TakeOver,
    arrival: Join,
) -> Result<(), SettingsError> {
    let nodes = store.survey().await?.nodes;
    let difference = settings_conflict::difference(&nodes, session, &settings_conflict::text(pools));
    match (arrival, take_over, difference) {
        (Join::First, TakeOver::No, Some(difference)) | (Join::Again, _, Some(difference)) => {
            return Err(SettingsError::Differs(difference));
        }
        (Join::Again, _, None) => return Ok(()),
        (Join::First, TakeOver::Yes, Some(_)) | (Join::First, _, None) => {}
    }
    for pool in pools.iter().filter(|pool| !pool.settings.is_empty()) {
        store.configure(&pool.queue, pool.settings.clone()).await?;
    }
    for pool in pools {
        for listener in &pool.listeners {
            let subscription =
                Subscription { name: listener.subscriber().to_owned(), wants: listener.wants() };
            let now = store.queue_settings(&pool.queue).await?.subscribers.wants_of(&subscription.name);
            if now.and(subscription.wants) != now {
                // Adds to what the subscriber wants, and removes nothing, even if two nodes start at once.
                store.configure(&pool.queue, vec![QueueChange::AlsoSubscribe(subscription)]).await?;
            }
        }
    }
    Ok(())
}
