//! How the workers of a pool are run.

use std::time::Duration;

use crate::command::Environment;
use crate::folders::Folders;
use crate::sandbox::Sandbox;

/// How the workers of a pool are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPolicy {
    /// What the worker is told that its pool is called.
    pub pool: String,
    /// The program and its arguments, as they are.
    pub argv: Vec<String>,
    /// The variables it gets, beside those of the protocol.
    pub environment: Environment,
    /// How long it may take to say that it is ready.
    pub ready_timeout: Duration,
    /// How long it may take to go when it is told to, before it is told by a signal, and then before it is killed.
    pub grace: Duration,
    /// When it has done its share.
    pub recycle: Recycle,
    /// Bytes of an output. More is a permanent failure.
    pub max_output_bytes: usize,
    /// Bytes of stdout, and as many of stderr, that are kept of one attempt as log lines. More is dropped, and that is said.
    pub max_log_bytes: usize,
    /// Where it starts, and where its tasks work.
    pub folders: Folders,
    /// What it may do at most.
    pub sandbox: Option<Sandbox>,
}

/// When a worker has done its share, and another takes its place. Both are looked at between two tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After so many tasks.
    pub after_tasks: Option<u64>,
    /// Above so many bytes of memory, with all that it started.
    pub above_memory: Option<u64>,
}

/// How long a worker may take to be ready, unless the policy says otherwise.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to go, unless the policy says otherwise.
const GRACE: Duration = Duration::from_secs(5);
/// Output of one attempt, unless the policy says otherwise.
const MAX_OUTPUT_BYTES: usize = super::outgoing::MAX_FRAME_BYTES;
/// Log lines of one attempt, unless the policy says otherwise.
const MAX_LOG_BYTES: usize = 1 << 20;

impl ProcessPolicy {
    /// Runs this, with what is usual for everything else.
    #[must_use]
    pub fn new<A: Into<String>>(pool: impl Into<String>, argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            pool: pool.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            environment: Environment::default(),
            ready_timeout: READY_TIMEOUT,
            grace: GRACE,
            recycle: Recycle::default(),
            max_output_bytes: MAX_OUTPUT_BYTES,
            max_log_bytes: MAX_LOG_BYTES,
            folders: Folders::default(),
            sandbox: None,
        }
    }
}
