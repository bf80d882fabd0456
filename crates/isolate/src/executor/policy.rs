//! The policy of a pool of functions.

use std::path::PathBuf;
use std::time::Duration;

use ostler_exec::Secrets;
use ostler_process::Folders;

use crate::engine_name::EngineName;
use crate::fetch::{FetchLimits, FetchRules, Fetcher};
use crate::host_process::HOST;
use crate::limits::FunctionLimits;
use crate::worker::Reuse;

/// How the functions of a pool are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolatePolicy {
    /// The name of the pool.
    pub pool: String,
    /// The folder of functions.
    pub scripts: PathBuf,
    pub engine: EngineName,
    pub isolation: Isolation,
    pub reuse: Reuse,
    /// Limits of each call. The wall time is the timeout of the attempt.
    pub limits: FunctionLimits,
    /// Where functions may send requests.
    pub fetch: FetchRules,
    /// What `ctx.secret` finds.
    pub secrets: Secrets,
    /// The folders of the tasks.
    pub folders: Folders,
    /// How long a host may take to exit, before it is killed.
    pub grace: Duration,
    /// How many tasks the pool may have claimed, running ones included. `None`: `MAX_QUEUED_WORKERS`, or ten for each worker.
    pub max_claimed: Option<u32>,
    /// The program of host processes.
    pub program: HostProgram,
}

/// Where isolates live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In host processes, which hold nothing else.
    #[default]
    Process,
    /// On threads of the node.
    Thread,
}

impl Isolation {
    pub const ALL: [Self; 2] = [Self::Process, Self::Thread];

    /// The word in a config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Thread => "thread",
        }
    }
}

/// The default of `grace`.
const GRACE: Duration = Duration::from_secs(5);

impl IsolatePolicy {
    /// Runs the functions of this folder, with defaults for everything else.
    #[must_use]
    pub fn new(pool: impl Into<String>, scripts: impl Into<PathBuf>) -> Self {
        Self {
            pool: pool.into(),
            scripts: scripts.into(),
            engine: EngineName::default(),
            isolation: Isolation::default(),
            reuse: Reuse::Fresh,
            limits: FunctionLimits::default(),
            fetch: FetchRules::none(),
            secrets: Secrets::default(),
            folders: Folders::default(),
            grace: GRACE,
            max_claimed: None,
            program: HostProgram::default(),
        }
    }
}

impl IsolatePolicy {
    /// What sends the requests of its functions.
    pub(super) fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.fetch.clone(), FetchLimits::default())
    }
}

/// The program of host processes, whose main function calls [`run`](crate::host_process::run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProgram {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its environment: nothing is inherited.
    pub env: Vec<(String, String)>,
}

impl Default for HostProgram {
    /// The running program, found by its inode: node and hosts are the same version even while an update replaces the file.
    fn default() -> Self {
        Self { argv: vec!["/proc/self/exe".to_owned(), HOST.to_owned()], env: Vec::new() }
    }
}
