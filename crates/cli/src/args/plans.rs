//! Options of `ostler submit` about dependencies, unique keys and deadlines; and `ostler amend`.

use std::time::Duration;

use ostler_core::{Backoff, KeyHold, OnConflict, OnFailed, Overrides};

use super::tasks::One;
use super::values::{self, TaskName};

#[derive(Debug, clap::Args)]
pub(crate) struct Plans {
    /// How long the key stays unique, such as 10m [default: see --key-until]
    #[arg(long, value_name = "D", value_parser = values::duration, requires = "key", conflicts_with = "key_until")]
    pub(crate) key_for: Option<Duration>,
    /// Until when the key stays unique: until the task has ended (end), or as long as it is kept (removed) [default: as the queue says]
    #[arg(long, value_name = "W", value_parser = values::key_hold, requires = "key")]
    pub(crate) key_until: Option<KeyHold>,
    /// If another task has the key: keep that task, replace it while it waits, or reject the new one [default: keep]
    #[arg(long, value_name = "W", value_parser = values::on_conflict, requires = "key")]
    pub(crate) if_taken: Option<OnConflict>,
    /// Run after these tasks, by id or key:K in the same queue; repeat, or separate with commas
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = values::task)]
    pub(crate) after: Vec<TaskName>,
    /// If one of those does not complete: cancel this task, run it anyway, or wait for a replay [default: cancel]
    #[arg(long, value_name = "W", value_parser = values::on_failed, requires = "after")]
    pub(crate) if_failed: Option<OnFailed>,
    /// Start no attempt later than this from now
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) deadline: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Amend {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

/// Retry and timeout settings; at least one is required.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Rules {
    /// Maximum number of attempts, including those made so far
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    attempts: Option<u32>,
    /// Timeout of one attempt, from the next one on
    #[arg(long, value_name = "D", value_parser = values::duration)]
    timeout: Option<Duration>,
    /// How delays between attempts grow: fixed, linear or exponential
    #[arg(long, value_name = "B", value_parser = values::backoff)]
    backoff: Option<Backoff>,
    /// The first delay
    #[arg(long, value_name = "D", value_parser = values::duration)]
    base: Option<Duration>,
    /// The longest delay
    #[arg(long, value_name = "D", value_parser = values::duration)]
    max: Option<Duration>,
}

impl Rules {
    /// The settings that were given; the others do not change.
    pub(crate) fn overrides(&self) -> Overrides {
        let Self { attempts, timeout, backoff, base, max } = *self;
        Overrides { attempts, timeout, backoff, base, max, ..Overrides::NONE }
    }
}
