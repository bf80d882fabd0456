//! The executor of functions: each kind is a file of a folder, run in an isolate.
//!
//! - `policy.rs`: the settings of a pool. `functions.rs`: its folder of functions. `calls.rs`: what functions ask the node to do.
//! - `hosts.rs`: isolation in host processes, for any code. Only the end of a process ends every script.
//! - `threads.rs`: isolation on threads of the node, for code that is trusted: a script that cannot be interrupted keeps its thread.

mod calls;
mod functions;
mod hosts;
mod policy;
mod threads;

use std::sync::Arc;

use ostler_exec::Executor;
use ostler_process::supervisor::Supervisor;

use self::functions::Functions;
pub(crate) use self::functions::MAX_KINDS;
use self::hosts::HostExtension;
use self::threads::ThreadIsolates;
pub use policy::{HostProgram, IsolatePolicy, Isolation};

/// Makes executors of functions.
#[derive(Clone, Copy, Debug)]
pub struct IsolateExecutor;

/// Why a pool of functions cannot run.
#[derive(Debug, thiserror::Error)]
pub enum IsolateFault {
    #[error("the folder of functions \"{0}\" cannot be opened: {1}")]
    Folder(String, std::io::Error),
    #[error("{0}")]
    Engine(&'static str),
    #[error("isolation = \"thread\" needs the engine \"quickjs\"")]
    ThreadsWithV8,
    #[error(transparent)]
    Process(#[from] ostler_process::PolicyError),
    #[error("the watchdog of the functions cannot be started: {0}")]
    Watchdog(std::io::Error),
}

impl IsolateExecutor {
    /// Functions in host processes: children of this supervisor.
    ///
    /// # Errors
    /// When there can be none with this policy.
    pub fn in_hosts(
        policy: &IsolatePolicy,
        supervisor: Supervisor,
    ) -> Result<Arc<dyn Executor>, IsolateFault> {
        if let Some(why) = policy.engine.missing() {
            return Err(IsolateFault::Engine(why));
        }
        hosts::executor(policy, supervisor, Arc::new(HostExtension::new(policy, functions(policy)?)))
    }

    /// Functions on threads of this process.
    ///
    /// # Errors
    /// When there can be none with this policy.
    pub fn on_threads(policy: &IsolatePolicy) -> Result<Arc<dyn Executor>, IsolateFault> {
        match policy.engine {
            crate::EngineName::QuickJs => {}
            crate::EngineName::V8 => return Err(IsolateFault::ThreadsWithV8),
        }
        let threads = ThreadIsolates::new(policy, functions(policy)?).map_err(IsolateFault::Watchdog)?;
        Ok(Arc::new(threads))
    }
}

fn functions(policy: &IsolatePolicy) -> Result<Functions, IsolateFault> {
    let opened = Functions::open(&policy.scripts);
    opened.map_err(|error| IsolateFault::Folder(policy.scripts.display().to_string(), error))
}
