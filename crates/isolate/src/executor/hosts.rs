//! Isolation in host processes: the extension of the worker protocol, as the node speaks it.

use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure};
use ostler_exec::{Control, Executor, Served, Work};
use ostler_process::supervisor::{Exit, Supervisor};
use ostler_process::{
    AttemptExtension, CallFuture, Environment, FrameField, MAX_FRAME_BYTES, Process, ProcessPolicy,
    TaskFolder, WorkerExtension, WorkerSocket,
};
use rustix::process::Signal;

use super::IsolateFault;
use super::calls::NodeCalls;
use super::functions::Functions;
use super::policy::IsolatePolicy;
use crate::dialect::{FunctionModules, FunctionRef, HostSetup, decode_call, encode_answer, hash_of};
use crate::fetch::Fetcher;
use crate::function::FunctionSource;
use crate::verdict;

/// Bytes of a function's modules in a task frame. Payload and steps have the rest.
const MAX_SENT_BYTES: usize = MAX_FRAME_BYTES / 2;

/// Host processes as workers of a pool.
pub(super) fn executor(
    policy: &IsolatePolicy,
    supervisor: Supervisor,
    extension: Arc<dyn WorkerExtension>,
) -> Result<Arc<dyn Executor>, IsolateFault> {
    let process = ProcessPolicy {
        environment: Environment { keep: Vec::new(), set: policy.program.env.clone() },
        grace: policy.grace,
        folders: policy.folders.clone(),
        ..ProcessPolicy::new(policy.pool.clone(), policy.program.argv.clone())
    };
    Ok(Arc::new(Process::with_extension(supervisor, process, extension)?))
}

/// What a node tells its hosts, and does for them.
pub(super) struct HostExtension {
    functions: Functions,
    /// The setup of every host: JSON text.
    setup: String,
    fetcher: Fetcher,
}

impl HostExtension {
    pub(super) fn new(policy: &IsolatePolicy, functions: Functions) -> Self {
        let secrets = policy.secrets.iter();
        let setup = HostSetup {
            engine: policy.engine,
            limits: policy.limits.clone(),
            reuse: policy.reuse,
            secrets: secrets.map(|secret| (secret.name().to_owned(), secret.expose().to_owned())).collect(),
        };
        // Texts and numbers are always JSON.
        let setup = serde_json::to_string(&setup).unwrap_or_else(|_| "null".to_owned());
        Self { functions, setup, fetcher: policy.fetcher() }
    }
}

#[async_trait]
impl WorkerExtension for HostExtension {
    fn served(&self) -> Option<Served> {
        Some(Served::Only(self.functions.kinds()))
    }

    fn socket(&self) -> WorkerSocket {
        WorkerSocket::StandardInput
    }

    fn hello(&self) -> Vec<FrameField> {
        vec![("setup", self.setup.clone())]
    }

    async fn prepare(
        &self,
        work: &Work,
        folder: Option<&TaskFolder>,
        control: &Control,
    ) -> Result<Arc<dyn AttemptExtension>, Failure> {
        let source = self.functions.find(&work.kind).await?;
        let bytes: usize = source.modules().map(|(_, module)| module.text.len()).sum();
        if bytes > MAX_SENT_BYTES {
            let kind = &work.kind;
            let message =
                format!("the function \"{kind}\" and its modules have more than {MAX_SENT_BYTES} bytes");
            return Err(Failure::new(ErrorClass::Permanent, message));
        }
        let calls = NodeCalls::new(folder.cloned(), control.events.clone(), self.fetcher.session());
        Ok(Arc::new(HostAttempt { hash: hash_of(&source), source, queue: work.queue.to_string(), calls }))
    }
}

/// One attempt in a host.
struct HostAttempt {
    source: FunctionSource,
    hash: String,
    queue: String,
    calls: NodeCalls,
}

impl AttemptExtension for HostAttempt {
    fn fields(&self) -> Vec<FrameField> {
        let function = FunctionRef { queue: self.queue.clone(), hash: self.hash.clone() };
        vec![("function", json(&function))]
    }

    fn content_key(&self) -> &str {
        &self.hash
    }

    fn content(&self) -> Vec<FrameField> {
        vec![("modules", json(&FunctionModules::from(&self.source)))]
    }

    fn call(self: Arc<Self>, call: String) -> CallFuture {
        Box::pin(async move {
            encode_answer(match decode_call(&call) {
                Ok(call) => self.calls.answer(call).await,
                Err(error) => Err(error),
            })
        })
    }

    fn death(&self, exit: Exit) -> Option<Failure> {
        // Engines abort their process if the system refuses them memory in a place where they cannot do without. Whatever else makes
        // an engine give up ends it by another signal.
        (exit == Exit::Signal(Signal::ABORT.as_raw())).then(verdict::exhausted)
    }
}

/// Texts are always JSON.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
