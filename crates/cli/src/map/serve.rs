//! Serves the jobs that `ostler map --detach` leaves to a running node: each gets a pool of its own while it lasts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::JobId;
use ostler_ops::jobs::{self, JobSpec, ServedBy};
use ostler_process::Command;
use ostler_process::supervisor::Containment;
use ostler_runtime::{Drained, NodeConfig, NodeState};
use ostler_store::calls::Retention;
use ostler_store::jobs::{JobFilter, JobRecord};
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::job::JobState;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::run::{node_name, policy, pool_of, start};
use crate::commands::start_supervisor;
use crate::config::PresenceSettings;
use crate::exit::say;

/// The maximum number of jobs served at once; the others wait.
const MAX_SERVED: usize = 4;
/// The maximum number of jobs examined.
const MAX_LOOKED: usize = 10_000;
/// The polling interval for jobs and their progress.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct JobServer {
    pub(crate) store: Arc<dyn Store>,
    /// The name of the serving node.
    pub(crate) name: String,
    pub(crate) containment: Containment,
    pub(crate) keep: Retention,
    /// How long running tasks may take to finish when the node exits.
    pub(crate) patience: Duration,
    /// Presence settings for the jobs' nodes.
    pub(crate) presence: Option<PresenceSettings>,
    /// Notified when the node of a job is asked to drain: it is part of this program, which then drains as a whole.
    pub(crate) ordered: Arc<Notify>,
}

/// Whether the serving program is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Going {
    Not,
    /// Running tasks may finish.
    Drains,
    /// Running tasks are killed and returned to the queue.
    AtOnce,
}

impl JobServer {
    /// Serves jobs until the program stops, and then until none of their tasks runs here. Returns what became of the running tasks.
    pub(crate) async fn serve(self, mut going: watch::Receiver<Going>) -> Drained {
        let mut news = self.store.control();
        let mut served = HashSet::new();
        let mut at_work = JoinSet::new();
        loop {
            news.arm();
            // If the store does not answer, the next poll may.
            for record in self.open_jobs().await.unwrap_or_default() {
                let id = record.job.id;
                if at_work.len() < MAX_SERVED && served.insert(id) {
                    let (server, going) = (self.clone(), going.clone());
                    at_work.spawn(async move {
                        let drained = server.serve_one(&record, going).await.unwrap_or_else(|error| {
                            say(&format!("stopped running job {id}: {error:#}"));
                            Drained::default()
                        });
                        (id, drained)
                    });
                }
            }
            tokio::select! {
                Some(Ok((id, _))) = at_work.join_next() => {
                    served.remove(&id);
                }
                () = news.wait() => {}
                () = tokio::time::sleep(LOOK) => {}
                _ = going.wait_for(|going| *going != Going::Not) => break,
            }
        }
        let mut drained = Drained::default();
        while let Some(ended) = at_work.join_next().await {
            let ended = ended.map(|(_, ended)| ended).unwrap_or_default();
            drained.finished += ended.finished;
            drained.handed_back += ended.handed_back;
        }
        drained
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

    async fn serve_one(
        &self,
        record: &JobRecord,
        mut going: watch::Receiver<Going>,
    ) -> anyhow::Result<Drained> {
        let id = record.job.id;
        let spec: JobSpec = serde_json::from_str(&record.job.spec)?;
        // A supervisor holds the liveness lock of one node, and this is a separate node.
        let supervisor = start_supervisor(self.containment).await?;
        let executor = Arc::new(Command::of_payload(supervisor.clone(), policy())?);
        let pool = pool_of(executor, id, &spec);
        let presence = self.presence.as_ref().map(PresenceSettings::of_a_node);
        let config = NodeConfig {
            retention: self.keep,
            presence,
            ..NodeConfig::new(node_name(&self.name, id), vec![pool])
        };
        let node = start(&self.store, &supervisor, config).await?;
        say(&format!("running job {id} ({})", record.job.name));
        let mut state = node.state();
        let over = tokio::select! {
            over = self.until_over(id) => over,
            () = goes(&mut state) => {
                self.ordered.notify_one();
                Ok(())
            }
            _ = going.wait_for(|going| *going != Going::Not) => Ok(()),
            () = supervisor.gone() => Ok(()),
        };
        let stopper = node.stopper();
        let mut draining = std::pin::pin!(node.drain(self.patience));
        let drained = tokio::select! {
            drained = &mut draining => drained,
            () = at_once(&mut going) => {
                stopper.stop_now();
                draining.await
            }
        };
        supervisor.stop().await;
        over.map(|()| drained)
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

/// Waits until the program stops at once. A closed channel never does.
async fn at_once(going: &mut watch::Receiver<Going>) {
    if going.wait_for(|going| *going == Going::AtOnce).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until a node is asked to drain, or stops.
async fn goes(state: &mut watch::Receiver<NodeState>) {
    let goes = |state: &NodeState| matches!(state, NodeState::Draining | NodeState::Ended);
    let _ = state.wait_for(goes).await;
}

fn is_for_nodes(record: &JobRecord) -> bool {
    let by_node = JobSpec::of(record).is_some_and(|spec| spec.served_by == ServedBy::Node);
    let something_left = record.counts.ended() < record.job.items && record.counts.open() > 0;
    match JobState::of(record) {
        JobState::Running | JobState::Unfinished | JobState::Paused => by_node && something_left,
        JobState::Completed | JobState::Failed | JobState::Cancelled => false,
    }
}
