//! The command executor: runs one child process per task.

mod attempt;
mod live;
mod output;
mod policy;
mod template;
pub(crate) mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, WorkerId};
use ostler_exec::{AttemptResult, Control, Executor, Served, Vitals, Work};

use serde::Deserialize;

use crate::argument::Argument;
use crate::files::FilePatterns;
use crate::folders::{Links, TaskFolder, TaskFolders};
use crate::output_files::OutputFiles;
use crate::running_children::RunningChildren;
use crate::sandbox::{Private, SandboxInstance};
use crate::supervisor::{Launch, Socket, SpawnError, Stdin, Supervisor, Variables};
use attempt::Attempt;
pub use policy::{Codes, CommandPolicy, Environment, Input, OutputForm, PolicyError, StdoutLog};
use template::Template;
pub use template::TemplateError;

/// Executor that runs a command for each task, whatever its kind.
///
/// The child's stdout is the output, its stderr goes to the log line by line, and its exit code decides the outcome. The stdout of a
/// child that did not succeed is kept with its attempt; what one that runs for more than a moment writes is logged as it comes. At
/// the deadline and on a cancel its process group gets SIGTERM, and after the grace period all of it is killed. When the lease is lost
/// there is no grace period.
#[derive(Debug)]
pub struct Command {
    supervisor: Supervisor,
    policy: CommandPolicy,
    words: Words,
    sandbox: Option<SandboxInstance>,
    folders: TaskFolders,
    files: Option<FilePatterns>,
    running: RunningChildren,
}

/// The source of a command's arguments.
#[derive(Debug)]
enum Words {
    Templates(Vec<Template>),
    Payload,
}

/// A payload that brings its own command.
#[derive(Deserialize)]
struct Given {
    argv: Vec<Argument>,
    /// Variables of the command, beside those of the policy.
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

impl Command {
    /// Creates an executor that runs commands by this policy, as children of this supervisor.
    ///
    /// # Errors
    /// When the policy names no program, one of its templates or patterns is invalid, or its sandbox cannot be enforced.
    pub fn new(supervisor: Supervisor, policy: CommandPolicy) -> Result<Self, PolicyError> {
        let templates = policy.templates()?;
        let fixed: Vec<String> = templates.iter().filter_map(Template::fixed).collect();
        let fixed: Vec<&str> = fixed.iter().map(String::as_str).collect();
        Self::of(supervisor, policy, &fixed, Words::Templates(templates))
    }

    /// Creates an executor that runs the command in each task's payload: `{"argv": ["program", "argument"]}`, with the variables
    /// of its `environment`, if it has one. Ignores the policy's `argv`.
    ///
    /// # Errors
    /// When one of its file patterns is invalid, or its sandbox cannot be enforced.
    pub fn of_payload(supervisor: Supervisor, policy: CommandPolicy) -> Result<Self, PolicyError> {
        Self::of(supervisor, policy, &[], Words::Payload)
    }

    fn of(
        supervisor: Supervisor,
        policy: CommandPolicy,
        fixed: &[&str],
        words: Words,
    ) -> Result<Self, PolicyError> {
        let sandbox = policy.sandbox.clone().map(|sandbox| {
            SandboxInstance::new(supervisor.clone(), sandbox, fixed, &policy.environment, &policy.folders)
        });
        let sandbox = sandbox.transpose()?;
        let files = FilePatterns::new(&policy.files).map_err(PolicyError::Files)?;
        let folders = TaskFolders::new(&policy.folders, Links::of(sandbox.as_ref()));
        Ok(Self { supervisor, sandbox, words, folders, files, policy, running: RunningChildren::default() })
    }

    fn given(&self, work: &Work) -> Result<Given, String> {
        match &self.words {
            Words::Templates(templates) => {
                let argv = templates.iter().map(|template| template.render(work).map(Argument::from));
                Ok(Given { argv: argv.collect::<Result<_, _>>()?, environment: BTreeMap::new() })
            }
            Words::Payload => {
                let given: Given = serde_json::from_str(&work.payload)
                    .map_err(|error| format!("the payload has no argv to run: {error}"))?;
                match given.environment.iter().find(|(name, value)| !can_be_set(name, value)) {
                    Some((name, _)) => {
                        Err(format!("the payload has a variable that cannot be set: {name:?}"))
                    }
                    None => Ok(given),
                }
            }
        }
    }

    fn launch(&self, work: &Work, own: Option<&TaskFolder>) -> Result<(Launch, Option<Private>), Failure> {
        let given = self.given(work).map_err(|message| Failure::new(ErrorClass::Permanent, message))?;
        let of_policy = self.policy.environment.of_task(&self.policy.secrets, work.traceparent.as_ref());
        // Those of the policy win.
        let mut set: Vec<(String, String)> = given.environment.into_iter().collect();
        set.retain(|(name, _)| of_policy.iter().all(|(known, _)| known != name));
        set.extend(of_policy);
        let (confinement, private) = match &self.sandbox {
            None => (None, None),
            Some(sandbox) => {
                let confined = sandbox.confine(own.map(|own| &*own.opened), &mut set);
                let (confinement, private) = confined.map_err(|error| error.failure())?;
                (Some(confinement), Some(private))
            }
        };
        let opened = own.map(|own| Arc::clone(&own.opened));
        let launch = Launch {
            argv: given.argv,
            start: opened.clone(),
            own: opened,
            folder: work.folder.clone().or_else(|| self.policy.folders.start()),
            keep: self.policy.environment.keep.clone(),
            set: Variables(set),
            stdin: match self.policy.input {
                Input::Nothing => Stdin::Nothing,
                Input::Payload => Stdin::Pipe,
            },
            socket: Socket::None,
            confinement,
        };
        Ok((launch, private))
    }
}

/// Whether a process can have this environment variable.
fn can_be_set(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

#[async_trait]
impl Executor for Command {
    fn served(&self) -> Served {
        Served::Any
    }

    fn vitals(&self, worker: WorkerId) -> Vitals {
        self.running.vitals(worker)
    }

    async fn run(&self, mut work: Work, control: Control) -> AttemptResult {
        if control.cancel.is_cancelled() {
            return AttemptResult::cancelled();
        }
        let deadline = tokio::time::sleep(work.timeout);
        tokio::pin!(deadline);
        let own = tokio::select! {
            own = self.folders.open(&work, &self.supervisor, &control.events) => own,
            () = &mut deadline => return AttemptResult::too_long(work.timeout),
            () = control.cancel.cancelled() => return AttemptResult::cancelled(),
            () = control.lost.cancelled() => return AttemptResult::cancelled(),
        };
        let launch = own.and_then(|own| {
            work.folder = own.as_ref().map(|own| own.path.clone());
            let (launch, private) = self.launch(&work, own.as_ref())?;
            Ok((launch, private, own))
        });
        // The private folder is removed when the attempt is over.
        let (launch, _private, own) = match launch {
            Ok(launch) => launch,
            Err(failure) => return AttemptResult::failed(failure),
        };
        let lapses = self.supervisor.lapses();
        let program = launch.argv.first().map(Argument::shown).unwrap_or_default();
        let child = tokio::select! {
            child = self.supervisor.spawn(launch) => child,
            () = &mut deadline => return AttemptResult::too_long(work.timeout),
        };
        match child {
            Ok(child) => {
                let _listed = self.running.list(work.worker, child.pid());
                let outputs =
                    self.files.clone().map(|patterns| OutputFiles::of(patterns, own, &work, &control));
                let ended = Attempt::new(child, work, control, &self.policy).follow(deadline).await;
                let ended = self.supervisor.unless_lapsed(lapses, ended);
                if let Some(outputs) = outputs {
                    outputs.record(&ended).await;
                }
                ended
            }
            Err(error @ SpawnError::Short { .. }) => AttemptResult::short(error.to_string()),
            Err(error) => {
                let folder = work.folder.clone().or_else(|| self.policy.folders.start());
                AttemptResult::failed(verdict::not_spawned(&program, folder.as_deref(), &error))
            }
        }
    }
}
