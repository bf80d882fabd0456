//! Tasks on the isolate's thread of a host: one call each, and the function host that passes on to the node what it asks for.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, Level};
use ostler_exec::ClassSource;
use ostler_process::MAX_FRAME_BYTES;
use serde_json::value::RawValue;

use super::frames::{self, AttemptKey, TaskFrame};
use super::memory::DataGauge;
use super::session::HostSession;
use super::weakened::native_call;
use crate::call::{CallInfo, FunctionCall, deadline_in};
use crate::dialect::{HostSetup, encode_call};
use crate::end::FunctionEnd;
use crate::function::FunctionSource;
use crate::host::{FunctionHost, FunctionProgress, HostAnswer, HostCall, HostError, HostReply};
use crate::verdict::{Verdict, verdict};
use crate::watchdog::ThreadWatch;
use crate::worker::FunctionWorker;

/// Bytes of a frame besides the value or the output that it carries.
const FRAME_ROOM_BYTES: usize = 64 * 1024;

/// Runs tasks, one after the other.
pub(super) struct TaskRunner {
    worker: FunctionWorker,
    functions: HashMap<String, FunctionSource>,
    secrets: Rc<HashMap<String, String>>,
    session: Arc<HostSession>,
    gauge: Arc<DataGauge>,
}

impl TaskRunner {
    /// # Panics
    /// When this program does not have the engine, which was asked before.
    pub(super) fn new(
        setup: HostSetup,
        watch: ThreadWatch,
        session: Arc<HostSession>,
        gauge: Arc<DataGauge>,
    ) -> Self {
        let HostSetup { engine, limits, reuse, secrets } = setup;
        let engine = engine.engine().unwrap_or_else(|why| panic!("{why}"));
        let worker = FunctionWorker::new(engine, limits, reuse).watched(watch);
        Self { worker, functions: HashMap::new(), secrets: Rc::new(secrets), session, gauge }
    }

    /// Runs a task, and sends its result.
    pub(super) fn run(&mut self, task: TaskFrame) {
        let TaskFrame { id, token, attempt, kind, payload, timeout_ms, steps, function, modules, forget } =
            task;
        let key = AttemptKey { id, token };
        if forget {
            self.functions.clear();
        }
        if let Some(source) = modules.and_then(|modules| modules.source()) {
            self.functions.insert(function.hash.clone(), source);
        }
        let result = match self.functions.get(&function.hash).cloned() {
            Some(source) => {
                let timeout = Duration::from_millis(timeout_ms);
                let info = CallInfo {
                    task: key.id.clone(),
                    queue: function.queue,
                    kind,
                    attempt,
                    deadline: Some(deadline_in(timeout_ms)),
                };
                let host = Rc::new(TaskHost {
                    key: key.clone(),
                    steps,
                    secrets: Rc::clone(&self.secrets),
                    session: Arc::clone(&self.session),
                });
                let call = FunctionCall::new(payload.get(), info, host).within(timeout);
                self.session.begin(call.interrupter());
                self.worker.run(&source, call)
            }
            None => Err(FunctionEnd::Module("the host did not get the modules of the function".to_owned())),
        };
        let result = match result {
            Ok(Some(output)) if output.len() > MAX_FRAME_BYTES - FRAME_ROOM_BYTES => Err(FunctionEnd::Output),
            other => other,
        };
        if self.gauge.has_grown() {
            // The node takes another host for the next task.
            self.session.say(&frames::leaving());
        }
        self.session.end(&match result.map_err(|end| verdict(&end)) {
            Ok(output) => key.done(output.as_deref()),
            Err(Verdict::Failed(failure, source)) => key.failed(&failure, source),
            // The node has asked for it, and knows.
            Err(Verdict::Cancelled) => {
                let failure = Failure::new(ErrorClass::Transient, FunctionEnd::Cancelled.to_string());
                key.failed(&failure, ClassSource::Given)
            }
        });
    }
}

/// The host of one task's function.
struct TaskHost {
    key: AttemptKey,
    steps: HashMap<String, Box<RawValue>>,
    secrets: Rc<HashMap<String, String>>,
    session: Arc<HostSession>,
}

impl FunctionHost for TaskHost {
    fn log(&self, level: Level, line: &str) {
        self.session.say(&self.key.log(level, line));
    }

    fn progress(&self, progress: &FunctionProgress) {
        self.session.say(&self.key.progress(progress));
    }

    fn secret(&self, name: &str) -> Option<String> {
        self.secrets.get(name).cloned().or_else(|| native_call(name))
    }

    fn call(&self, call: HostCall, reply: HostReply) {
        match call {
            HostCall::BeginStep { name } => {
                let saved = self.steps.get(&name).map(|value| HostAnswer::Json(value.get().to_owned()));
                reply.send(Ok(saved.unwrap_or(HostAnswer::Nothing)));
            }
            HostCall::SaveStep { name, value } if name.len() + value.len() > MAX_FRAME_BYTES / 2 => {
                reply.send(Err(HostError(format!("the value of the step \"{name}\" is too large"))));
            }
            HostCall::SaveStep { name, value } => {
                self.session.saving(&name, reply);
                self.session.say(&self.key.step(&name, &value));
            }
            HostCall::WriteFile { .. }
            | HostCall::Fetch(_)
            | HostCall::FetchBody { .. }
            | HostCall::FetchClose { .. } => match encode_call(call) {
                Err(error) => reply.send(Err(error)),
                Ok(call) => {
                    if let Some(number) = self.session.asking(reply) {
                        self.session.say(&self.key.call(number, &call));
                    }
                }
            },
        }
    }
}
