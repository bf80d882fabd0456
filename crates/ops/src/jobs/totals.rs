//! Totals of a job over its attempts: what they cost, and how long they took.

use std::time::Duration;

use ostler_core::{Cost, StateName, Timestamp};
use ostler_store::Store;
use ostler_store::costs::{CostBy, CostQuery};
use ostler_store::jobs::{JobRecord, queue_of};
use ostler_store::views::TaskRef;

use super::manage::tasks;
use crate::error::OpsError;

/// The maximum number of tasks whose attempts are read. Beyond it the cost is that of the cost records, and times are not known.
const MAX_READ: u64 = 2_000;

/// What the attempts of a job took. Attempts of pruned tasks are not included, unless the job has many tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTotals {
    /// What all attempts cost; `None`: not known.
    pub cost: Option<Cost>,
    /// How long all ended attempts took together.
    pub work: Duration,
    /// From the start of the first attempt to the end of the last one; `None`: no attempt has ended.
    pub span: Option<Duration>,
    /// The items that have ended, and whose cost is known.
    pub priced: u64,
}

impl JobTotals {
    /// # Errors
    /// When the store cannot be read.
    pub async fn of(store: &dyn Store, record: &JobRecord) -> Result<Self, OpsError> {
        if record.counts.ended() + record.counts.running > MAX_READ {
            return Self::of_many(store, record).await;
        }
        let mut totals = Self::default();
        let mut ids = Vec::new();
        for state in [StateName::Completed, StateName::Failed, StateName::Cancelled, StateName::Running] {
            ids.extend(tasks(store, record.job.id, state).await?);
        }
        let (mut first, mut last): (Option<Timestamp>, Option<Timestamp>) = (None, None);
        for id in ids {
            let Some(found) = store.show(TaskRef::Id(id)).await? else { continue };
            let mut cost = None;
            for attempt in &found.attempts {
                cost = sum(cost, attempt.conversation.cost());
                totals.work += attempt.took().unwrap_or_default();
                first = Some(first.map_or(attempt.started_at, |first| first.min(attempt.started_at)));
                last = last.max(attempt.end.as_ref().map(|end| end.finished_at));
            }
            totals.priced += u64::from(cost.is_some());
            totals.cost = sum(totals.cost, cost);
        }
        totals.span = first.zip(last).map(|(first, last)| last.since(first));
        Ok(totals)
    }

    /// From the records of all attempts that have ended, pruned ones included.
    async fn of_many(store: &dyn Store, record: &JobRecord) -> Result<Self, OpsError> {
        let queue = Some(queue_of(record.job.id));
        let query = CostQuery { by: CostBy::Queue, since: None, until: None, queue, limit: 1 };
        let sums = store.costs(query).await?.pop().map(|record| record.sums).unwrap_or_default();
        // An attempt of a model without a price counts as one that cost nothing.
        let cost = Some(sums.cost).filter(|cost| *cost > Cost::default());
        Ok(Self { cost, ..Self::default() })
    }
}

/// A cost stays unknown only if both are.
fn sum(one: Option<Cost>, other: Option<Cost>) -> Option<Cost> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (known, None) | (None, known) => known,
    }
}
