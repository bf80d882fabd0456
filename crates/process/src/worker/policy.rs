//! Worker policy: how the workers of a pool are run.

use std::time::Duration;

use ostler_exec::Secrets;

use crate::command::Environment;
use crate::folders::Folders;
use crate::sandbox::Sandbox;

/// How the workers of a pool are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPolicy {
    /// The name of the pool, as sent to the worker.
    pub pool: String,
    /// The program and its arguments, verbatim.
    pub argv: Vec<String>,
    /// The variables besides those of the protocol.
    pub environment: Environment,
    /// Further variables, whose values are redacted.
    pub secrets: Secrets,
    /// How long a worker may take to become ready.
    pub ready_timeout: Duration,
    /// How long a worker may take to exit after a stop frame, before it gets SIGTERM, and then before it is killed.
    pub grace: Duration,
    /// An attempt is stuck, and ended, when it gives no sign of life for this long: no frame, no output, no CPU time. `None`: it has its
    /// whole timeout.
    pub stuck_after: Option<Duration>,
    pub recycle: Recycle,
    /// How many tasks a worker runs at once, if it can.
    pub per_worker: usize,
    /// Bytes of an output, at most. More is a permanent failure.
    pub max_output_bytes: usize,
    /// Bytes of stdout, and as many of stderr, that are kept of one attempt as log lines. The rest is dropped, with a warning.
    pub max_log_bytes: usize,
    /// The worker's working directory, and its tasks' folders.
    pub folders: Folders,
    pub sandbox: Option<Sandbox>,
}

/// When a worker is replaced by a new one. Both limits are checked between two tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After this many tasks.
    pub after_tasks: Option<u64>,
    /// Above this many bytes of memory, with all descendants.
    pub above_memory: Option<u64>,
}

/// Tasks that a worker may run at once.
pub const MAX_PER_WORKER: usize = 1_000;
/// The default of `ready_timeout`.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The default of `grace`.
const GRACE: Duration = Duration::from_secs(5);
/// The default of `max_output_bytes`.
const MAX_OUTPUT_BYTES: usize = super::outgoing::MAX_FRAME_BYTES;
/// The default of `max_log_bytes`.
const MAX_LOG_BYTES: usize = 1 << 20;

impl ProcessPolicy {
    /// Creates a policy that runs this program, with defaults for everything else.
    #[must_use]
    pub fn new<A: Into<String>>(pool: impl Into<String>, argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            pool: pool.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            environment: Environment::default(),
            secrets: Secrets::default(),
            ready_timeout: READY_TIMEOUT,
            grace: GRACE,
            stuck_after: None,
            recycle: Recycle::default(),
            per_worker: 1,
            max_output_bytes: MAX_OUTPUT_BYTES,
            max_log_bytes: MAX_LOG_BYTES,
            folders: Folders::default(),
            sandbox: None,
        }
    }
}
