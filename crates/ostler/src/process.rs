//! Child processes: queues that are served by commands, or by long-lived workers in any language.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use ostler_config::PoolSpec;
use ostler_exec::LivenessHolder;
pub use ostler_process::sandbox::Sandbox;
use ostler_process::sandbox::{PROBE, probe};
use ostler_process::supervisor::serve;
pub use ostler_process::supervisor::{Containment, Supervisor, SupervisorProgram};
pub use ostler_process::{
    Codes, CommandPolicy, Environment, Folders, Input, OutputForm, ProcessPolicy, Recycle,
};
use ostler_runtime::NodeConfig;

use crate::builder::Builder;
use crate::error::OpenError;

/// The first argument that makes this program the supervisor of a pool's children.
const SUPERVISOR: &str = "ostler-supervisor";

/// Whether `main` has called [`init`].
static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Makes this program able to run child processes. Call it as the first thing in `main`, before threads and runtimes are started:
/// a pool with child processes starts the program once more, as a small supervisor that starts, signals and reaps them. In that
/// process this function does not return.
///
/// ```no_run
/// use ostler::process::CommandPolicy;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     ostler::process::init();
///     let runtime = tokio::runtime::Runtime::new()?;
///     runtime.block_on(async {
///         let pool = ostler::open("jobs.db")?
///             .queue("words")
///             .executor(CommandPolicy::new(["wc", "-w", "{{ payload.file }}"]))
///             .start()
///             .await?;
///         let id = pool.submit("count", &serde_json::json!({ "file": "/etc/hosts" })).await?;
///         println!("{:?}", pool.wait(id).await?.output);
///         Ok(())
///     })
/// }
/// ```
pub fn init() {
    let mut args = std::env::args_os().skip(1);
    let role = args.next();
    let done = match &role {
        Some(word) if word == SUPERVISOR => serve().map_err(|error| error.to_string()),
        Some(word) if word == PROBE => {
            let what = args.next().and_then(|what| what.into_string().ok()).unwrap_or_default();
            probe(&what).map_err(|error| error.to_string())
        }
        #[cfg(feature = "isolate")]
        Some(word) if word == ostler_isolate::host_process::HOST => {
            match ostler_isolate::host_process::run() {
                Ok(never) => match never {},
                Err(fault) => Err(fault.to_string()),
            }
        }
        Some(_) | None => return INITIALIZED.store(true, Ordering::Relaxed),
    };
    let code = done.err().map_or(0, |error| {
        eprintln!("{error}");
        1
    });
    std::process::exit(code);
}

impl Builder {
    /// Serves the queue by child processes: a [`CommandPolicy`] runs a command for each task, a [`ProcessPolicy`] has long-lived
    /// workers that speak the worker protocol, an `AgentPolicy` (feature `agent`) gives each task to an agent, and an `IsolatePolicy`
    /// (feature `isolate`) to a JavaScript function. Such a queue has no handlers. [`init`] must have been called.
    ///
    /// Workers, timeout, retries and account are those of the policy's kind, unless the builder sets them, as in a config.
    #[must_use]
    pub fn executor(mut self, spec: impl PoolSpec + 'static) -> Self {
        self.set_spec(Box::new(spec));
        self
    }

    /// Starts this program as the supervisor of child processes. Default: this program itself, for which [`init`] must have been
    /// called. For programs whose `main` is not their own, such as tests.
    #[must_use]
    pub fn supervisor(mut self, program: SupervisorProgram) -> Self {
        self.set_supervisor(program);
        self
    }
}

pub(crate) async fn start_supervisor(program: Option<SupervisorProgram>) -> Result<Supervisor, OpenError> {
    let program = match program {
        Some(program) => program,
        // Started without its consent, the program would do its own work once more, and start itself again.
        None if !INITIALIZED.load(Ordering::Relaxed) => return Err(OpenError::NoSupervisor),
        None => SupervisorProgram::this([SUPERVISOR]),
    };
    Ok(Supervisor::start(program, Vec::new()).await?)
}

/// The supervisor holds the node's liveness lock too: the node counts as dead only after its children are gone.
pub(crate) fn supervised(config: NodeConfig, supervisor: Option<&Supervisor>) -> NodeConfig {
    let Some(supervisor) = supervisor else { return config };
    let gauge = ostler_process::Gauge::default();
    NodeConfig {
        guard: Some(Arc::new(supervisor.clone()) as Arc<dyn LivenessHolder>),
        memory: Arc::new(move || gauge.memory()),
        ..config
    }
}
