//! Costs: the tokens and the money that attempts spent on models, by day, queue, pool, account and model. They outlive the tasks.

use ostler_core::{Cost, TaskId, Timestamp, Usage, day_of, day_start};

/// Days for which costs are kept.
pub const MAX_COST_DAYS: i64 = 3 * 366;
/// Attempts that one query for the costs of tasks or attempts reads, the newest tasks first.
pub const MAX_COST_ROWS: usize = 10_000;

/// What costs are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostBy {
    /// Tasks that are still stored, the newest first.
    Task,
    /// Their attempts.
    Attempt,
    Queue,
    Pool,
    Account,
    Model,
    Day,
}

/// Which costs to add up. All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostQuery {
    pub by: CostBy,
    /// Of this day of UTC or later; of a task, of the day of its end, or else of its creation.
    pub since: Option<Timestamp>,
    /// Of this day or earlier.
    pub until: Option<Timestamp>,
    pub queue: Option<String>,
    /// At most this many records.
    pub limit: usize,
}

impl CostQuery {
    /// The first and the last day.
    #[must_use]
    pub fn days(&self) -> (i64, i64) {
        (self.since.map_or(i64::MIN, day_of), self.until.map_or(i64::MAX, day_of))
    }

    /// The times between which a task must have ended, or else been created, in milliseconds; the second one is excluded.
    #[must_use]
    pub fn times(&self) -> (i64, i64) {
        let (first, last) = self.days();
        (day_start(first).millis(), day_start(last.saturating_add(1)).millis())
    }
}

/// What a sum of costs is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostKey {
    Task(TaskId),
    Attempt {
        task: TaskId,
        number: u32,
    },
    /// A queue, pool, account or model; empty where the source does not name it.
    Name(String),
    /// A day, counted from 1970-01-01.
    Day(i64),
}

/// A sum of costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRecord {
    pub key: CostKey,
    pub sums: CostSums,
}

/// Tokens and money, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostSums {
    /// Attempts, each counted with the model that it used first.
    pub runs: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub reasoning_tokens: u64,
    /// What is known of the cost.
    pub cost: Cost,
    /// The part of it that is estimated.
    pub estimated: Cost,
}

impl CostSums {
    /// Adds what an attempt spent. It is not counted as a run.
    pub fn add(&mut self, usage: &Usage) {
        let cost = usage.cost.unwrap_or_default();
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(usage.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(usage.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(usage.reasoning_tokens);
        self.cost = self.cost + cost;
        if usage.source.is_estimated() {
            self.estimated = self.estimated + cost;
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost = self.cost + other.cost;
        self.estimated = self.estimated + other.estimated;
    }
}
