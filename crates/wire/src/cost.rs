//! Costs: what attempts spent on models, added up; and the budgets of queues.

use ostler_core::{Budget, Cost, ExpectedCost, Spending, day_start};
use ostler_store::costs::{CostKey, CostRecord, CostSums};
use ostler_store::jobs::job_of;
use serde::{Deserialize, Serialize};

use crate::time::TimeView;
use crate::word::{self, Word};

/// A sum of costs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostView {
    /// What it is the sum of: `task`, `attempt`, `job`, `queue`, `pool`, `account`, `model`, `day` or `total`.
    #[serde(deserialize_with = "word::read")]
    pub by: Word,
    /// Its id, name or date; null if the source does not name it.
    pub key: Option<String>,
    /// The number of the attempt, if it is one.
    pub attempt: Option<u32>,
    /// Attempts, each counted with the model that it used first.
    pub runs: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub reasoning_tokens: u64,
    /// What is known of the cost.
    pub cost_usd: f64,
    /// The part of it that is estimated.
    pub estimated_usd: f64,
}

impl CostView {
    #[must_use]
    pub fn new(by: &'static str, record: &CostRecord) -> Self {
        let (key, attempt) = match &record.key {
            CostKey::Task(task) => (task.to_string(), None),
            CostKey::Attempt { task, number } => (task.to_string(), Some(*number)),
            CostKey::Name(name) => (job_of(name).map_or_else(|| name.clone(), |job| job.to_string()), None),
            CostKey::Day(day) => (date(*day), None),
        };
        Self { key: Some(key).filter(|key| !key.is_empty()), attempt, ..Self::of(by, &record.sums) }
    }

    /// The sum of all.
    #[must_use]
    pub fn total(sums: &CostSums) -> Self {
        Self::of("total", sums)
    }

    fn of(by: &'static str, sums: &CostSums) -> Self {
        Self {
            by,
            key: None,
            attempt: None,
            runs: sums.runs,
            input_tokens: sums.input_tokens,
            output_tokens: sums.output_tokens,
            cache_read_tokens: sums.cache_read_tokens,
            cache_write_tokens: sums.cache_write_tokens,
            reasoning_tokens: sums.reasoning_tokens,
            cost_usd: sums.cost.usd(),
            estimated_usd: sums.estimated.usd(),
        }
    }
}

/// The date of a day of UTC.
fn date(day: i64) -> String {
    let mut text = TimeView::from(day_start(day)).to_string();
    text.truncate(text.find('T').unwrap_or(text.len()));
    text
}

/// Costs, and their sum.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostReport {
    pub costs: Vec<CostView>,
    pub total: CostView,
}

/// The budget of a queue, and what is spent of it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    pub total_usd: Option<f64>,
    /// For each day of UTC.
    pub per_day_usd: Option<f64>,
    /// The cost of one task that was set, until an attempt has ended; null: the first one runs alone.
    pub reserve_usd: Option<f64>,
    pub spent_usd: f64,
    /// On the last day on which anything was spent.
    pub spent_today_usd: f64,
    /// Held back for attempts in flight.
    pub reserved_usd: f64,
    /// Attempts with a reservation.
    pub in_flight: u64,
    /// What the next task is expected to cost; null: not known, so it runs alone.
    pub expected_usd: Option<f64>,
    /// How much more than the total is spent.
    pub over_usd: f64,
}

impl BudgetView {
    #[must_use]
    pub fn new(budget: &Budget, spending: &Spending) -> Self {
        let usd = |cost: Option<Cost>| cost.map(Cost::usd);
        let expected = match spending.expected(budget) {
            ExpectedCost::Known(cost) => Some(cost),
            ExpectedCost::Unknown => None,
        };
        Self {
            total_usd: usd(budget.total),
            per_day_usd: usd(budget.per_day),
            reserve_usd: usd(budget.reserve),
            spent_usd: spending.spent.usd(),
            spent_today_usd: spending.spent_today.usd(),
            reserved_usd: spending.reserved.usd(),
            in_flight: spending.in_flight,
            expected_usd: usd(expected),
            over_usd: spending.excess(budget).usd(),
        }
    }
}
