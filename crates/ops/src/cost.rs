//! Costs and budgets: what was spent on models, and what queues may spend.

use ostler_core::{Budget, Timestamp};
use ostler_store::costs::{CostBy, CostQuery, CostRecord, CostSums};
use ostler_store::jobs::job_of;
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::cost::{BudgetView, CostReport, CostView};

use crate::budgets;
use crate::error::OpsError;
use crate::overview::Overview;

/// What costs are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostDimension {
    Task,
    Attempt,
    Job,
    Queue,
    Pool,
    Account,
    Model,
    Day,
}

impl CostDimension {
    pub const ALL: [Self; 8] = [
        Self::Task,
        Self::Attempt,
        Self::Job,
        Self::Queue,
        Self::Pool,
        Self::Account,
        Self::Model,
        Self::Day,
    ];

    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Attempt => "attempt",
            Self::Job => "job",
            Self::Queue => "queue",
            Self::Pool => "pool",
            Self::Account => "account",
            Self::Model => "model",
            Self::Day => "day",
        }
    }

    const fn by(self) -> CostBy {
        match self {
            Self::Task => CostBy::Task,
            Self::Attempt => CostBy::Attempt,
            Self::Job | Self::Queue => CostBy::Queue,
            Self::Pool => CostBy::Pool,
            Self::Account => CostBy::Account,
            Self::Model => CostBy::Model,
            Self::Day => CostBy::Day,
        }
    }

    fn has(self, record: &CostRecord) -> bool {
        let of_job =
            || matches!(&record.key, ostler_store::costs::CostKey::Name(name) if job_of(name).is_some());
        self != Self::Job || of_job()
    }
}

/// Which costs to add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRequest {
    pub by: CostDimension,
    /// From this day of UTC on.
    pub since: Option<Timestamp>,
    /// Up to this day.
    pub until: Option<Timestamp>,
    pub queue: Option<String>,
}

/// The costs, by one dimension. Those of tasks and attempts are of tasks that are still stored.
///
/// # Errors
/// When the store cannot be read.
pub async fn report(store: &dyn Store, request: &CostRequest) -> Result<CostReport, OpsError> {
    let CostRequest { by, since, until, queue } = request.clone();
    let query = CostQuery { by: by.by(), since, until, queue, limit: MAX_PAGE };
    let mut total = CostSums::default();
    let mut costs = Vec::new();
    for record in store.costs(query).await?.iter().filter(|record| by.has(record)) {
        total.merge(&record.sums);
        costs.push(CostView::new(by.name(), record));
    }
    Ok(CostReport { costs, total: CostView::total(&total) })
}

/// What the tasks of a queue have cost, pruned ones included.
///
/// # Errors
/// When the store cannot be read.
pub async fn of_queue(store: &dyn Store, queue: &str) -> Result<CostView, OpsError> {
    let request =
        CostRequest { by: CostDimension::Queue, since: None, until: None, queue: Some(queue.to_owned()) };
    Ok(report(store, &request).await?.total)
}

/// Sets the budget of a queue, such as that of a job. A queue that a reached budget has paused is resumed, if the new one is larger.
///
/// # Errors
/// As for [`budgets::set`].
pub async fn set_budget(store: &dyn Store, queue: &str, budget: Budget) -> Result<BudgetView, OpsError> {
    budgets::set(store, queue, queue, budget).await?;
    let overview = Overview::take(store).await?;
    let spending = overview.record(queue)?.spending.clone().unwrap_or_default();
    Ok(BudgetView::new(&budget, &spending))
}
