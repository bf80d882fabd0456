//! Serves the jobs that `ostler map --detach` leaves to a running node: each gets a pool of its own while it lasts.
//!
//! A job over a pool of the config is served by every node that has the pool. A job that brings a command or a pool of its own is served
//! only with `serve_jobs`.

use std::collections::{HashMap, HashSet};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use ostler_config::Resources;
use ostler_core::JobId;
use ostler_core::price::PriceTable;
use ostler_ops::jobs::pilot::{self, PilotState};
use ostler_ops::jobs::{self, JobPool, JobSpec, ServedBy, synthesis};
use ostler_process::Command;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{NodeHandle, NodeState, PoolConfig, TakeOver};
use ostler_store::jobs::{JobFilter, JobRecord, queue_of};
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::job::JobState;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::command::{policy, pool_of};
use super::pool::{self, PoolSource};
use super::unserved::KindWatch;
use crate::config::{DetachedJobs, PoolSettings};
use crate::exit::{say, warn};
use crate::leftovers::mark_of;
use crate::store_location::StoreLocation;
use crate::up::{pools, sandbox};

/// The maximum number of jobs served at once; the others wait.
const MAX_SERVED: usize = 4;
/// The maximum number of jobs examined.
const MAX_LOOKED: usize = 10_000;
/// The polling interval for jobs and their progress.
const LOOK: Duration = Duration::from_secs(2);
/// The polling interval for jobs of a node that serves only those over its pools, which are rare.
const SELDOM: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct JobServer {
    pub(crate) store: Arc<dyn Store>,
    /// The serving node.
    pub(crate) node: NodeHandle,
    pub(crate) supervisor: Supervisor,
    /// How long running tasks may take to finish when a job is over.
    pub(crate) patience: Duration,
    /// The pools of its config.
    pub(crate) pools: Arc<[PoolSettings]>,
    pub(crate) resources: Resources,
    /// What models cost.
    pub(crate) prices: Arc<PriceTable>,
    /// Whether it serves jobs that bring what they run.
    pub(crate) commands: DetachedJobs,
    pub(crate) place: StoreLocation,
}

impl JobServer {
    /// Serves jobs until it is dropped. Pools that it has added by then are the node's to drain.
    pub(crate) async fn serve(self) {
        let mut news = self.store.control();
        let look = match self.commands {
            DetachedJobs::Served => LOOK,
            DetachedJobs::Left => SELDOM,
        };
        let mut served = HashSet::new();
        let mut at_work = JoinSet::new();
        // What was said last of each job that could not be served: it is tried again, and said once.
        let mut said: HashMap<JobId, String> = HashMap::new();
        loop {
            news.arm();
            let state = *self.node.state().borrow();
            let open = match state {
                // If the store does not answer, the next poll may.
                NodeState::Running | NodeState::Fenced => self.open_jobs().await.unwrap_or_default(),
                // It takes no pool, unless its drain is taken back.
                NodeState::Draining | NodeState::Ended => Vec::new(),
            };
            for record in open {
                let id = record.job.id;
                if at_work.len() < MAX_SERVED && served.insert(id) {
                    let server = self.clone();
                    at_work.spawn(async move { (id, server.serve_one(&record).await) });
                }
            }
            tokio::select! {
                Some(Ok((id, ended))) = at_work.join_next() => {
                    served.remove(&id);
                    match ended.map_err(|error| format!("stopped running job {id}: {error:#}")) {
                        Ok(()) => drop(said.remove(&id)),
                        Err(why) => {
                            if said.get(&id) != Some(&why) {
                                warn(&why);
                            }
                            said.insert(id, why);
                        }
                    }
                }
                () = news.wait() => {}
                () = tokio::time::sleep(look) => {}
            }
        }
    }

    /// Whether this node can run the items of a job.
    fn can_run(&self, spec: &JobSpec) -> bool {
        match &spec.pool {
            Some(JobPool { name, section: None, .. }) => self.pools.iter().any(|pool| pool.name == *name),
            Some(JobPool { section: Some(_), .. }) | None => match self.commands {
                DetachedJobs::Served => true,
                DetachedJobs::Left => false,
            },
        }
    }

    /// Unfinished jobs left to nodes, oldest first.
    async fn open_jobs(&self) -> anyhow::Result<Vec<JobRecord>> {
        let mut open = Vec::new();
        let mut before = None;
        for _ in 0..MAX_LOOKED / MAX_PAGE {
            let page = self.store.jobs(JobFilter { before, ..JobFilter::default() }, MAX_PAGE).await?;
            before = page.last().map(|record| record.job.id);
            let ours = |record: &JobRecord| JobSpec::of(record).is_some_and(|spec| self.can_run(&spec));
            open.extend(page.into_iter().filter(is_for_nodes).filter(ours));
            if before.is_none() {
                break;
            }
        }
        open.reverse();
        Ok(open)
    }

    async fn serve_one(&self, record: &JobRecord) -> anyhow::Result<()> {
        let id = record.job.id;
        let spec: JobSpec = serde_json::from_str(&record.job.spec)?;
        let pool = self.pool_for(id, &spec).await?;
        let kinds = spec.pool.as_ref().map(|asked| KindWatch::new(Arc::clone(&pool.executor), asked));
        // If another process serves the same job, the newer one wins.
        self.node.add_pool(pool, TakeOver::Yes).await?;
        say(&format!("running job {id} ({})", record.job.name));
        let over = self.until_over(id, kinds).await;
        self.node.remove_pool(&queue_of(id), self.patience).await;
        over
    }

    async fn pool_for(&self, id: JobId, spec: &JobSpec) -> anyhow::Result<PoolConfig> {
        let Some(asked) = &spec.pool else {
            let policy = policy(spec, mark_of(self.place.url()));
            let executor = Arc::new(Command::of_payload(self.supervisor.clone(), policy)?);
            return Ok(pool_of(executor, id, spec));
        };
        let settings = pool::settings(asked, &self.pools, &self.prices, self.place.url())?;
        if asked.section.is_some() {
            pool::check(&settings, PoolSource::of(asked)).await?;
            sandbox::prove_all(slice::from_ref(&settings), &self.resources).await?;
        }
        let (store, bounds) = (&self.store, self.place.bounds());
        pools::of_job(&settings, id, spec, store, bounds, &self.resources).await
    }

    async fn until_over(&self, id: JobId, mut kinds: Option<KindWatch>) -> anyhow::Result<()> {
        loop {
            if let Some(why) = kinds.as_mut().and_then(|kinds| kinds.complaint(Instant::now())) {
                warn(&format!("job {id}: {why}"));
            }
            match jobs::by_id(self.store.as_ref(), id).await {
                Ok(Some(record)) if is_for_nodes(&record) => {
                    pool::synthesize(self.store.as_ref(), &record, self.place.bounds().payload_bytes).await?;
                    if pilot::state(self.store.as_ref(), &record).await? == PilotState::Waiting {
                        say(&format!(
                            "the pilot of job {id} has ended; to run the other items: ostler job approve {id}"
                        ));
                        return Ok(pilot::wait_for_approval(self.store.as_ref(), id).await?);
                    }
                }
                Ok(Some(_) | None) => return Ok(()),
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn is_for_nodes(record: &JobRecord) -> bool {
    let by_node = JobSpec::of(record).is_some_and(|spec| spec.served_by == ServedBy::Node);
    let something_left = record.counts.ended() < record.job.items && record.counts.open() > 0
        || synthesis::due(record).is_some();
    if record.paused.as_deref() == Some(pilot::PAUSED) {
        return false;
    }
    match JobState::of(record) {
        JobState::Running | JobState::Unfinished | JobState::Paused => by_node && something_left,
        JobState::Completed | JobState::Failed | JobState::Cancelled => false,
    }
}
