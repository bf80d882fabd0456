//! One term of a node: a session from its join to its end, and all that works under it. A node that lost its session comes
//! back with another term.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_core::{SessionId, Timestamp};
use ostler_store::calls::{Fenced, NewSession, QueueChange};
use ostler_store::schedules::PutAnswer;
use ostler_store::{MAX_ORDERS, Store};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::attempt::PoolContext;
use crate::config::{NodeConfig, TakeOver};
use crate::finisher::Finisher;
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
use crate::schedules::{PlannedSchedule, Scheduler};
use crate::settings_conflict;
use crate::sizes::Sizes;
use crate::workers::WorkerSet;

/// How long a node that drains waits for those who are told how its last attempts ended. What is not told then is told later.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What stays the same from term to term.
pub(crate) struct SessionDeps {
    pub(crate) parts: NodeDeps,
    pub(crate) config: NodeConfig,
    pub(crate) lifecycle: NodeLifecycle,
    pub(crate) finisher: Finisher,
    pub(crate) sizes: Sizes,
    pub(crate) stages: HandlerRuntimes,
}

/// Whether a node comes up, or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// It brings its settings, and may take over.
    First,
    /// It brings nothing: what was changed since, was changed by somebody.
    Again,
}

/// One session, and what works under it.
pub(crate) struct NodeSession {
    pub(crate) session: SessionId,
    pub(crate) worker_sets: Vec<WorkerSet>,
    store: Arc<dyn Store>,
    lifecycle: NodeLifecycle,
    pools: JoinSet<Drained>,
    upkeep: tokio::task::JoinHandle<()>,
    scheduler: tokio::task::JoinHandle<()>,
    recycler: tokio::task::JoinHandle<()>,
    tellers: JoinSet<()>,
    /// Cancelled when nothing more will end under this session.
    over: CancellationToken,
    heartbeat: JoinHandle<()>,
    presence: Option<tokio::task::JoinHandle<()>>,
    grace: Duration,
}

impl NodeSession {
    /// Joins with a new session, and begins to work.
    pub(crate) async fn begin(deps: &SessionDeps, arrival: Join) -> Result<Self, StartError> {
        let SessionDeps { parts: NodeDeps { store, ids, .. }, config, .. } = deps;
        let session = SessionId(ids());
        let node = NewSession {
            id: session,
            name: config.name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ttl: config.lease.ttl,
            settings: settings_conflict::text(&config.pools),
        };
        if store.join(node).await? == Fenced::Lost {
            return Err(StartError::NotNew);
        }
        let begun = match prepare(deps, session, arrival).await {
            Ok(()) => Self::work(deps, session),
            Err(refused) => Err(refused),
        };
        if begun.is_err() {
            // It was there for a moment, and had nothing.
            let _ = store.leave(session).await;
        }
        begun
    }

    /// Starts the parts, in order.
    fn work(deps: &SessionDeps, session: SessionId) -> Result<Self, StartError> {
        let SessionDeps { parts, config, lifecycle, finisher, sizes, stages } = deps;
        let NodeDeps { store, clock, ids } = parts;
        lifecycle.run();
        let (recycles, orders) = mpsc::channel(MAX_ORDERS);
        let heartbeat = LeaseKeeper {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            session,
            times: config.lease,
            lifecycle: lifecycle.clone(),
            sizes: sizes.clone(),
            finisher: finisher.clone(),
            guard: config.guard.clone(),
            recycles,
        };
        let heartbeat = heartbeat.start()?;
        let mut pools = JoinSet::new();
        let mut worker_sets = Vec::new();
        let (mut tellers, over) = (JoinSet::new(), CancellationToken::new());
        for pool in &config.pools {
            if let Some(listener) = &pool.listener {
                let teller = OutboxDispatcher {
                    store: Arc::clone(store),
                    session,
                    queue: pool.queue.clone(),
                    listener: Arc::clone(listener),
                    poll: config.lease.poll,
                    over: over.clone(),
                    stages: stages.clone(),
                };
                tellers.spawn(teller.serve());
            }
            let size = sizes.watch(pool);
            let context = PoolContext {
                stages: stages.clone(),
                store: Arc::clone(store),
                clock: Arc::clone(clock),
                pool: pool.clone(),
                held: lifecycle.held.clone(),
                finisher: finisher.clone(),
                memory: Arc::clone(&config.memory),
                suspects: Mutex::default(),
            };
            let pool =
                Pool::new(context, session, Arc::clone(ids), config.lease.poll, lifecycle.clone(), size);
            worker_sets.push(pool.workers());
            pools.spawn(pool.serve());
        }
        let recycler =
            Recycler { store: Arc::clone(store), session, worker_sets: worker_sets.clone(), orders };
        let recycler = tokio::spawn(recycler.serve());
        let upkeep = Maintenance {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            session,
            every: config.upkeep,
            retention: config.retention,
            worker_sets: worker_sets.clone(),
            state: lifecycle.watch(),
        };
        let upkeep = tokio::spawn(upkeep.serve());
        let scheduler =
            Scheduler { store: Arc::clone(store), ids: Arc::clone(ids), state: lifecycle.watch() };
        let scheduler = tokio::spawn(scheduler.serve());
        let presence = config.presence.clone().map(|presence| {
            let (worker_sets, clock) = (worker_sets.clone(), Arc::clone(clock));
            let (name, state) = (config.name.clone(), lifecycle.watch());
            tokio::spawn(announce(presence, Subject { session, name, worker_sets, clock, state }))
        });
        let grace = config.pools.iter().map(|pool| pool.grace).max().unwrap_or_default();
        let (store, lifecycle) = (Arc::clone(store), lifecycle.clone());
        Ok(Self {
            session,
            worker_sets,
            store,
            lifecycle,
            pools,
            upkeep,
            scheduler,
            recycler,
            tellers,
            over,
            heartbeat,
            presence,
            grace,
        })
    }

    /// The session is lost: waits until the work that was told so has ended.
    pub(crate) async fn stop(mut self) {
        self.collect_in_time(&mut Drained::default()).await;
        self.end().await;
    }

    /// The node drains: waits for what runs, and after `timeout` gives the rest back. When there is a hurry, what still runs is
    /// ended at once.
    pub(crate) async fn wind_down(
        &mut self,
        timeout: Duration,
        hurry: &CancellationToken,
        drained: &mut Drained,
    ) {
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

    /// Whatever is still held goes back with the session. What can still be told is told first, unless there is a hurry.
    pub(crate) async fn leave(&mut self, hurry: &CancellationToken) {
        self.over.cancel();
        let told = async { while self.tellers.join_next().await.is_some() {} };
        tokio::select! {
            _ = tokio::time::timeout(LAST_WORDS, told) => {}
            () = hurry.cancelled() => {}
        }
        let _ = self.store.leave(self.session).await;
    }

    /// The session is over, and its last parts go. They may wait for a store that is away; others look after it.
    pub(crate) async fn end(mut self) {
        self.tellers.abort_all();
        self.upkeep.abort();
        self.scheduler.abort();
        self.recycler.abort();
        let _ = self.upkeep.await;
        let _ = self.scheduler.await;
        // The thread looks at the state before and after each renewal, and while it waits.
        let heartbeat = self.heartbeat;
        let _ = tokio::task::spawn_blocking(move || heartbeat.join()).await;
        // It says farewell, in a second at most.
        if let Some(presence) = self.presence {
            let _ = presence.await;
        }
    }

    /// An executor answers within two graces. What does not is left behind, and its lease ends with the session.
    async fn collect_in_time(&mut self, drained: &mut Drained) {
        let _ = tokio::time::timeout(self.grace * 3, collect(&mut self.pools, drained)).await;
        self.pools.abort_all();
        while self.pools.join_next().await.is_some() {}
    }
}

/// Waits for all pools, and adds up what they say. Whoever stops waiting keeps what was said so far.
async fn collect(pools: &mut JoinSet<Drained>, drained: &mut Drained) {
    while let Some(pool) = pools.join_next().await {
        let pool = pool.unwrap_or_default();
        drained.finished += pool.finished;
        drained.handed_back += pool.handed_back;
    }
}

/// All that must be before the first claim.
async fn prepare(deps: &SessionDeps, session: SessionId, arrival: Join) -> Result<(), StartError> {
    let SessionDeps { parts: NodeDeps { store, .. }, config, .. } = deps;
    bring_settings(store.as_ref(), session, config, arrival).await?;
    if arrival == Join::First && !config.schedules.is_empty() {
        bring_schedules(store.as_ref(), &config.schedules, store.now().await?).await?;
    }
    match (&config.guard, store.liveness_lock(session)?) {
        (Some(guard), Some(liveness_lock)) => guard.hold(liveness_lock).await.map_err(StartError::Guard),
        // Nobody is to hold it, or this store proves life in another way.
        (Some(_) | None, _) => Ok(()),
    }
}

/// Brings the node's schedules. One that somebody removed meanwhile stays away until the next start.
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

/// Brings the settings of the node's queues, unless a living node has others. The node has joined before: of two that come up
/// at once, the later one sees the earlier.
async fn bring_settings(
    store: &dyn Store,
    session: SessionId,
    config: &NodeConfig,
    arrival: Join,
) -> Result<(), StartError> {
    let nodes = store.survey().await?.nodes;
    let difference = settings_conflict::difference(&nodes, session, &settings_conflict::text(&config.pools));
    match (arrival, config.take_over, difference) {
        (Join::First, TakeOver::No, Some(difference)) | (Join::Again, _, Some(difference)) => {
            return Err(StartError::Differs(difference));
        }
        (Join::Again, _, None) => return Ok(()),
        (Join::First, TakeOver::Yes, Some(_)) | (Join::First, _, None) => {}
    }
    for pool in config.pools.iter().filter(|pool| !pool.settings.is_empty()) {
        store.configure(&pool.queue, pool.settings.clone()).await?;
    }
    for pool in &config.pools {
        if let Some(listener) = &pool.listener {
            let (wants, now) = (listener.wants(), store.configure(&pool.queue, Vec::new()).await?.outbox);
            if now.and(wants) != now {
                // What others want to be told of is not taken from them, also by two nodes that come up at once.
                store.configure(&pool.queue, vec![QueueChange::AlsoOutbox(wants)]).await?;
            }
        }
    }
    Ok(())
}
