//! Serves the jobs that `ostler map --detach` leaves to a running node: each gets a pool of its own while it lasts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ostler_core::JobId;
use ostler_ops::jobs::{self, JobSpec, ServedBy};
use ostler_process::Command;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{NodeHandle, TakeOver};
use ostler_store::jobs::{JobFilter, JobRecord, queue_of};
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::job::JobState;
use tokio::task::JoinSet;

use super::run::{policy, pool_of};
use crate::exit::{say, warn};

/// The maximum number of jobs served at once; the others wait.
const MAX_SERVED: usize = 4;
/// The maximum number of jobs examined.
const MAX_LOOKED: usize = 10_000;
/// The polling interval for jobs and their progress.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct JobServer {
    pub(crate) store: Arc<dyn Store>,
    /// The serving node.
    pub(crate) node: NodeHandle,
    pub(crate) supervisor: Supervisor,
    /// How long running tasks may take to finish when a job is over.
    pub(crate) patience: Duration,
}

impl JobServer {
    /// Serves jobs until it is dropped. Pools that it has added by then are the node's to drain.
    pub(crate) async fn serve(self) {
        let mut news = self.store.control();
        let mut served = HashSet::new();
        let mut at_work = JoinSet::new();
        // What was said last of each job that could not be served: it is tried again, and said once.
        let mut said: HashMap<JobId, String> = HashMap::new();
        loop {
            news.arm();
            // If the store does not answer, the next poll may.
            for record in self.open_jobs().await.unwrap_or_default() {
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
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Unfinished jobs left to nodes, oldest first.
    async fn open_jobs(&self) -> anyhow::Result<Vec<JobRecord>> {
        let mut open = Vec::new();
        let mut before = None;
        for _ in 0..MAX_LOOKED / MAX_PAGE {
            let page = self.store.jobs(JobFilter { before, ..JobFilter::default() }, MAX_PAGE).await?;
            before = page.last().map(|record| record.job.id);
            open.extend(page.into_iter().filter(is_for_nodes));
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
        let executor = Arc::new(Command::of_payload(self.supervisor.clone(), policy())?);
        // If another process serves the same job, the newer one wins.
        self.node.add_pool(pool_of(executor, id, &spec), TakeOver::Yes).await?;
        say(&format!("running job {id} ({})", record.job.name));
        let over = self.until_over(id).await;
        self.node.remove_pool(&queue_of(id), self.patience).await;
        over
    }

    async fn until_over(&self, id: JobId) -> anyhow::Result<()> {
        loop {
            match jobs::by_id(self.store.as_ref(), id).await {
                Ok(Some(record)) if is_for_nodes(&record) => {}
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
    let something_left = record.counts.ended() < record.job.items && record.counts.open() > 0;
    match JobState::of(record) {
        JobState::Running | JobState::Unfinished | JobState::Paused => by_node && something_left,
        JobState::Completed | JobState::Failed | JobState::Cancelled => false,
    }
}
