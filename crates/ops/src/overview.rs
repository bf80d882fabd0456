//! An overview of the system: one survey of a store, and the views that are built from it.

use ostler_core::{StateName, Timestamp};
use ostler_store::jobs::{FORMER_JOBS, job_of};
use ostler_store::views::{Filter, QueueRecord, Survey};
use ostler_store::{MAX_GONE_WORKERS, Store};
use ostler_wire::limits::{BreakerView, QueueView};
use ostler_wire::overview::OverviewView;
use ostler_wire::system::{FindingView, GoneWorkerView, NodeView, StatsView, WorkerView};
use ostler_wire::task::Summary;

use crate::accounts;
use crate::error::{Missing, OpsError};

/// Running tasks in a view of everything.
pub const MAX_RUNNING_SHOWN: usize = 200;

/// Whether lists have the queues of jobs, of which there may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobQueues {
    Listed,
    Hidden,
}

impl JobQueues {
    /// Whether a list has this queue.
    #[must_use]
    pub fn lists(self, queue: &str) -> bool {
        match self {
            Self::Listed => true,
            Self::Hidden => job_of(queue).is_none() && queue != FORMER_JOBS,
        }
    }
}

/// The system at one moment.
#[derive(Clone, Debug)]
pub struct Overview {
    pub survey: Survey,
}

impl Overview {
    /// # Errors
    /// When the store cannot be read.
    pub async fn take(store: &dyn Store) -> Result<Self, OpsError> {
        Ok(Self { survey: store.survey().await? })
    }

    /// Statistics of the store, or of one queue.
    #[must_use]
    pub fn stats(&self, queue: Option<&str>) -> StatsView {
        StatsView::new(&self.survey, queue)
    }

    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        NodeView::all(&self.survey)
    }

    #[must_use]
    pub fn workers(&self, now: Timestamp) -> Vec<WorkerView> {
        WorkerView::all(&self.survey, now)
    }

    #[must_use]
    pub fn queues(&self, jobs: JobQueues) -> Vec<QueueView> {
        let mut all = QueueView::all(&self.survey);
        all.retain(|view| jobs.lists(&view.queue));
        all
    }

    /// # Errors
    /// When there is no such queue.
    pub fn queue(&self, name: &str) -> Result<QueueView, OpsError> {
        Ok(QueueView::new(&self.survey, self.record(name)?))
    }

    fn breakers(&self) -> Vec<BreakerView> {
        BreakerView::all(&self.survey)
    }

    /// The breaker of a queue, or of one of its limit keys.
    ///
    /// # Errors
    /// When there is no such queue.
    pub fn breaker(&self, queue: &str, key: Option<&str>) -> Result<BreakerView, OpsError> {
        Ok(BreakerView::new(&self.survey, self.record(queue)?, key))
    }

    /// # Errors
    /// When there is no such queue.
    pub fn record(&self, queue: &str) -> Result<&QueueRecord, OpsError> {
        let found = self.survey.queues.iter().find(|record| record.name == queue);
        found.ok_or_else(|| Missing::Queue(queue.to_owned()).into())
    }
}

/// The last records of workers that are gone, the newest first.
///
/// # Errors
/// When the store cannot be read.
pub async fn gone_workers(store: &dyn Store) -> Result<Vec<GoneWorkerView>, OpsError> {
    let gone = store.gone_workers(MAX_GONE_WORKERS).await?;
    Ok(gone.iter().map(GoneWorkerView::from).collect())
}

/// The breakers of queues and of their limit keys, and those around calls of handlers that are not closed or have counted something.
///
/// # Errors
/// When the store cannot be read.
pub async fn breakers(store: &dyn Store) -> Result<Vec<BreakerView>, OpsError> {
    let of_queues = Overview::take(store).await?.breakers();
    let of_calls = store.call_breakers().await?.into_iter().map(BreakerView::from);
    Ok(of_queues.into_iter().chain(of_calls).collect())
}

/// Everything in one view, with what the doctor has found.
///
/// # Errors
/// When the store cannot be read.
pub async fn whole(store: &dyn Store, findings: Vec<FindingView>) -> Result<OverviewView, OpsError> {
    let overview = Overview::take(store).await?;
    let now = store.now().await?;
    let filter = Filter { state: Some(StateName::Running), ..Filter::default() };
    let running = store.list(filter, None, MAX_RUNNING_SHOWN).await?;
    Ok(OverviewView {
        as_of: now.into(),
        stats: overview.stats(None),
        nodes: overview.nodes(),
        queues: overview.queues(JobQueues::Hidden),
        workers: overview.workers(now),
        running: running.tasks.iter().map(Summary::from).collect(),
        accounts: accounts::list(store).await?,
        findings,
    })
}
