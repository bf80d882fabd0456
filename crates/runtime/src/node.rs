//! The node: starts its parts in order, and stops them in reverse.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_core::{Id, SessionId};
use ostler_store::calls::{Fenced, NewSession};
use ostler_store::{Clock, Store};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::attempt::Bench;
use crate::config::{InvalidConfig, NodeConfig, TakeOver};
use crate::crew::Crew;
use crate::finisher::Finisher;
use crate::held::Stop;
use crate::keeper::LeaseKeeper;
use crate::pool::Pool;
use crate::settings::{self, Difference};
use crate::stand::{NodeState, Stand};
use crate::upkeep::Upkeep;

/// Makes ids; the edge of the system brings the chance.
pub type Ids = Arc<dyn Fn() -> Id + Send + Sync>;

/// What became of the attempts that ran when a drain began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// They ended by themselves.
    pub finished: usize,
    /// They were given back, and run elsewhere.
    pub handed_back: usize,
}

/// What a node is made of, besides its settings.
#[derive(Clone)]
pub struct Parts {
    /// Where tasks live.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Names for sessions and workers.
    pub ids: Ids,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its settings cannot work.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] ostler_store::Error),
    /// The system gave no thread.
    #[error("no thread for the heartbeat: {0}")]
    Thread(#[from] std::io::Error),
    /// The session's id was not new.
    #[error("the store knows a session of this id already")]
    NotNew,
    /// Another living node has other settings for a queue.
    #[error("{0}")]
    Differs(Difference),
}

/// A running node.
pub struct Node {
    session: SessionId,
    store: Arc<dyn Store>,
    stand: Stand,
    crews: Vec<Crew>,
    pools: JoinSet<Drained>,
    upkeep: tokio::task::JoinHandle<()>,
    finisher: tokio::task::JoinHandle<()>,
    keeper: JoinHandle<()>,
    written: watch::Sender<u64>,
    grace: Duration,
}

impl Node {
    /// Starts a node: it joins, beats, and claims.
    ///
    /// # Errors
    /// When its settings cannot work, or the store refuses.
    pub async fn start(parts: Parts, config: NodeConfig) -> Result<Self, StartError> {
        config.check()?;
        let Parts { store, clock, ids } = parts;
        let session = SessionId(ids());
        let node = NewSession {
            id: session,
            name: config.name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ttl: config.lease.ttl,
            settings: settings::text(&config.pools),
        };
        if store.join(node).await? == Fenced::Lost {
            return Err(StartError::NotNew);
        }
        if let Err(refused) = bring_settings(store.as_ref(), session, &config).await {
            // It was there for a moment, and had nothing.
            let _ = store.leave(session).await;
            return Err(refused);
        }
        let stand = Stand::new();
        let written = watch::Sender::new(0);
        let keeper = LeaseKeeper {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            session,
            times: config.lease,
            stand: stand.clone(),
        };
        let keeper = keeper.start()?;
        let (finisher, finishing) = Finisher::start(Arc::clone(&store), stand.watch(), written.clone());
        let mut pools = JoinSet::new();
        let mut crews = Vec::new();
        let grace = config.pools.iter().map(|pool| pool.grace).max().unwrap_or_default();
        for pool in config.pools {
            let size = watch::Sender::new(pool.size).subscribe();
            let bench = Bench {
                store: Arc::clone(&store),
                clock: Arc::clone(&clock),
                pool,
                held: stand.held.clone(),
                finisher: finisher.clone(),
                suspects: Mutex::default(),
            };
            let pool = Pool::new(bench, session, Arc::clone(&ids), config.lease.poll, stand.clone(), size);
            crews.push(pool.crew());
            pools.spawn(pool.serve());
        }
        let upkeep = Upkeep {
            store: Arc::clone(&store),
            clock,
            session,
            every: config.upkeep,
            retention: config.retention,
            crews: crews.clone(),
            state: stand.watch(),
        };
        let upkeep = tokio::spawn(upkeep.serve());
        Ok(Self { session, store, stand, crews, pools, upkeep, finisher: finishing, keeper, written, grace })
    }

    /// Its session.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Where it stands, and where it goes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.stand.watch()
    }

    /// Changes whenever ends of attempts were written by this node: a hint to look.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    /// How many attempts run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.crews.iter().map(Crew::running).sum()
    }

    /// What does not work, in sentences: workers that do not come up.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        self.crews.iter().filter_map(Crew::trouble).map(|failure| failure.message).collect()
    }

    /// Takes no more work, waits for what runs, and after `timeout` gives the rest back. Nothing is lost, and nothing is
    /// counted as a failure.
    pub async fn drain(mut self, timeout: Duration) -> Drained {
        self.stand.drain();
        let mut drained = Drained::default();
        let in_time = tokio::time::timeout(timeout, collect(&mut self.pools, &mut drained)).await.is_ok();
        if !in_time {
            self.stand.held.stop_all(Stop::HandBack);
            // An executor answers within two graces. What does not is left behind, and its lease goes back below.
            let _ = tokio::time::timeout(self.grace * 3, collect(&mut self.pools, &mut drained)).await;
        }
        self.pools.abort_all();
        while self.pools.join_next().await.is_some() {}
        // Everybody who reports is gone: what they reported is written, then the finisher ends.
        let _ = self.finisher.await;
        // Whatever is still held goes back with the session. A node that was fenced says nothing any more.
        if self.stand.now() != NodeState::Fenced {
            let _ = self.store.leave(self.session).await;
        }
        self.stand.end();
        let _ = self.upkeep.await;
        // The thread sees the state at its next look, within a second.
        let keeper = self.keeper;
        let _ = tokio::task::spawn_blocking(move || keeper.join()).await;
        drained
    }
}

/// Brings the settings of the node's queues, unless a living node has others. The node has joined before: of two that come up
/// at once, the later one sees the earlier.
async fn bring_settings(
    store: &dyn Store,
    session: SessionId,
    config: &NodeConfig,
) -> Result<(), StartError> {
    let nodes = store.survey().await?.nodes;
    match (config.take_over, settings::difference(&nodes, session, &settings::text(&config.pools))) {
        (TakeOver::No, Some(difference)) => return Err(StartError::Differs(difference)),
        (TakeOver::Yes, Some(_)) | (TakeOver::No | TakeOver::Yes, None) => {}
    }
    for pool in config.pools.iter().filter(|pool| !pool.settings.is_empty()) {
        store.configure(&pool.queue, pool.settings.clone()).await?;
    }
    Ok(())
}

/// Waits for all pools, and adds up what they say. Whoever stops waiting keeps what was said so far.
async fn collect(pools: &mut JoinSet<Drained>, drained: &mut Drained) {
    while let Some(pool) = pools.join_next().await {
        let pool = pool.unwrap_or_default();
        drained.finished += pool.finished;
        drained.handed_back += pool.handed_back;
    }
}
