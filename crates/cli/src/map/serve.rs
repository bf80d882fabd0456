//! Serves the jobs that `ostler map --detach` leaves to a running node: each gets a pool of its own for as long as it lasts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::JobId;
use ostler_process::Command;
use ostler_process::supervisor::Containment;
use ostler_runtime::{Drained, NodeConfig, NodeState};
use ostler_store::calls::Retention;
use ostler_store::jobs::{JobFilter, JobRecord};
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::job::JobState;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::job;
use super::plan::{ServedBy, Spec};
use super::progress::ended;
use super::run::{is_transient, node_name, policy, pool_of, start};
use crate::commands::start_supervisor;
use crate::config::PresenceSettings;
use crate::exit::say;

/// Jobs that are served at once; the others wait.
const MAX_SERVED: usize = 4;
/// Jobs that are looked through.
const MAX_LOOKED: usize = 10_000;
/// How often it is looked for jobs, and how far they are, when nobody says anything.
const LOOK: Duration = Duration::from_secs(2);

/// What jobs are served with.
#[derive(Clone)]
pub(crate) struct JobServer {
    pub(crate) store: Arc<dyn Store>,
    /// What the node is called that serves them.
    pub(crate) name: String,
    pub(crate) containment: Containment,
    pub(crate) keep: Retention,
    /// How long what runs may take to its end when the node goes.
    pub(crate) patience: Duration,
    /// Where the nodes of jobs say that they are there.
    pub(crate) presence: Option<PresenceSettings>,
    /// Told when somebody orders the node of a job to drain: it is a part of the program, which then drains as a whole.
    pub(crate) ordered: Arc<Notify>,
}

/// Whether the program that serves jobs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Going {
    /// It stays.
    Not,
    /// What runs may end.
    Drains,
    /// What runs is ended, and handed back.
    AtOnce,
}

impl JobServer {
    /// Serves jobs until it is told to go, and then until nothing of them runs here. Answers what became of what ran then.
    pub(crate) async fn serve(self, mut going: watch::Receiver<Going>) -> Drained {
        let mut news = self.store.control();
        let mut served = HashSet::new();
        let mut at_work = JoinSet::new();
        loop {
            news.arm();
            // If the store does not answer, the next look may find more.
            for record in self.open_jobs().await.unwrap_or_default() {
                let id = record.job.id;
                if at_work.len() < MAX_SERVED && served.insert(id) {
                    let (server, going) = (self.clone(), going.clone());
                    at_work.spawn(async move {
                        let drained = server.serve_one(&record, going).await.unwrap_or_else(|error| {
                            say(&format!("the job {id} is not served any more: {error:#}"));
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

    /// The jobs that are left to nodes and have something to do, the oldest first.
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
        let spec: Spec = serde_json::from_str(&record.job.spec)?;
        // A supervisor holds the proof of life of one node, and this is one of its own.
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
        say(&format!("serving the job {id} ({})", record.job.name));
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
            match job::by_id(self.store.as_ref(), id).await {
                Ok(Some(record)) if is_for_nodes(&record) => {}
                Ok(Some(_) | None) => return Ok(()),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Waits until the program goes at once. One that is gone says nothing any more.
async fn at_once(going: &mut watch::Receiver<Going>) {
    if going.wait_for(|going| *going == Going::AtOnce).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until a node is to drain, or is over.
async fn goes(state: &mut watch::Receiver<NodeState>) {
    let goes = |state: &NodeState| matches!(state, NodeState::Draining | NodeState::Ended);
    let _ = state.wait_for(goes).await;
}

fn is_for_nodes(record: &JobRecord) -> bool {
    let by_node =
        serde_json::from_str::<Spec>(&record.job.spec).is_ok_and(|spec| spec.served_by == ServedBy::Node);
    let counts = &record.counts;
    let something_left =
        ended(counts) < record.job.items && counts.queued + counts.claimed + counts.running > 0;
    match job::state(record) {
        JobState::Running | JobState::Unfinished | JobState::Paused => by_node && something_left,
        JobState::Completed | JobState::Failed | JobState::Cancelled => false,
    }
}
