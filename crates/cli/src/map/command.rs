//! The pool of a map job that runs a command: each item is a child process, as if it was started from a shell.

use std::sync::Arc;
use std::time::Duration;

use ostler_config::StoreMark;
use ostler_core::{JobId, Overrides, Rate};
use ostler_exec::Executor;
use ostler_ops::jobs::JobSpec;
use ostler_process::{CommandPolicy, Environment, OutputForm, StdoutLog};
use ostler_runtime::{PoolConfig, Prefetch};
use ostler_store::calls::QueueChange;
use ostler_store::jobs::queue_of;

use super::item_folders;

/// Items claimed ahead for each worker, as long as they are short.
const AHEAD: usize = 8;
/// The timeout of an item without --timeout: practically none.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// As with any program started from a shell, the environment is inherited, and the output is not changed.
pub(crate) fn policy(spec: &JobSpec, mark: StoreMark) -> CommandPolicy {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    CommandPolicy {
        environment: Environment { keep: names.collect(), set: Vec::new() },
        output: OutputForm::Exact,
        // It is printed when the item ends, and kept as its output.
        stdout_log: StdoutLog::OfFailures,
        folders: item_folders::of_commands(spec, mark),
        ..CommandPolicy::new(Vec::<String>::new())
    }
}

pub(crate) fn pool_of(executor: Arc<dyn Executor>, job: JobId, spec: &JobSpec) -> PoolConfig {
    let workers = usize::try_from(spec.jobs.unwrap_or(1)).unwrap_or(1);
    let timeout = spec.timeout_ms.map_or(NO_TIMEOUT, Duration::from_millis);
    let attempts = Some(spec.attempts.unwrap_or(1));
    let overrides = Overrides { attempts, timeout: Some(timeout), ..Overrides::NONE };
    PoolConfig {
        // No other queue waits for these workers, so short items may be claimed ahead.
        prefetch: Prefetch::UpTo(workers.saturating_mul(AHEAD)),
        settings: vec![QueueChange::Overrides(overrides), QueueChange::Rate(pace(spec))],
        ..PoolConfig::durable(queue_of(job), executor, workers)
    }
}

/// The rate at which items start.
fn pace(spec: &JobSpec) -> Vec<Rate> {
    let delay = spec.delay_ms.filter(|delay| *delay > 0);
    delay.map(|delay| Rate { amount: 1, per: Duration::from_millis(delay), burst: 1 }).into_iter().collect()
}
