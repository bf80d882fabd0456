//! What is said about a task ahead of time: what it waits for, how long it has its key, how long it may take. And what is
//! said otherwise later.

use std::time::Duration;

use ostler_core::{Backoff, OnConflict, OnFailed, Overrides};

use super::tasks::One;
use super::values::{self, TaskName};

/// Of `ostler submit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Plans {
    /// How long it has its key, such as 10m [else: for as long as the task is kept]
    #[arg(long, value_name = "D", value_parser = values::duration, requires = "key")]
    pub(crate) key_for: Option<Duration>,
    /// If another task has the key: keep that one, replace it while it waits, or reject the new one [else: keep]
    #[arg(long, value_name = "W", value_parser = values::on_conflict, requires = "key")]
    pub(crate) if_taken: Option<OnConflict>,
    /// Run after these tasks, by id or key:K in the same queue; give it more than once, or with commas
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = values::task)]
    pub(crate) after: Vec<TaskName>,
    /// If one of those does not complete: cancel this one, run it all the same, or wait for a replay [else: cancel]
    #[arg(long, value_name = "W", value_parser = values::on_failed, requires = "after")]
    pub(crate) if_failed: Option<OnFailed>,
    /// The time for all attempts together: none begins later than this from now
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) deadline: Option<Duration>,
}

/// `ostler amend`.
#[derive(Debug, clap::Args)]
pub(crate) struct Amend {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

/// Rules of a task; at least one of them.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Rules {
    /// How many tries may fail, those that did included
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    attempts: Option<u32>,
    /// How long one attempt may take, from the next one on
    #[arg(long, value_name = "D", value_parser = values::duration)]
    timeout: Option<Duration>,
    /// How waits between tries grow: fixed, linear or exponential
    #[arg(long, value_name = "B", value_parser = values::backoff)]
    backoff: Option<Backoff>,
    /// The first wait
    #[arg(long, value_name = "D", value_parser = values::duration)]
    base: Option<Duration>,
    /// The longest wait
    #[arg(long, value_name = "D", value_parser = values::duration)]
    max: Option<Duration>,
}

impl Rules {
    /// What is said. What is left out stays as it was.
    pub(crate) fn overrides(&self) -> Overrides {
        let Self { attempts, timeout, backoff, base, max } = *self;
        Overrides { attempts, timeout, backoff, base, max, ..Overrides::NONE }
    }
}
