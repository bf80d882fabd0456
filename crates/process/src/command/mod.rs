//! The executor that runs one child per task.

mod attempt;
mod output;
mod policy;
mod template;
pub(crate) mod verdict;

use async_trait::async_trait;
use ostler_core::ErrorClass;
use ostler_exec::{Control, Ended, Executor, Served, Work};

use serde::Deserialize;

use crate::argument::Argument;
use crate::keeper::{Keeper, Launch, Socket, Stdin};
use attempt::Attempt;
pub use policy::{Codes, CommandPolicy, Environment, Input, OutputForm, PolicyError};
use template::Template;
pub use template::TemplateError;

/// Runs a command for each task, whatever its kind.
///
/// Its stdout is the output, its stderr goes to the log line by line, its exit code says how it went. At the deadline
/// and on a cancel its group gets SIGTERM, and after the grace all of it is killed. When the lease is lost there is no grace.
#[derive(Debug)]
pub struct Command {
    keeper: Keeper,
    policy: CommandPolicy,
    words: Words,
}

/// Where a command's words come from.
#[derive(Debug)]
enum Words {
    Templates(Vec<Template>),
    Payload,
}

/// What stands in a payload that brings its own command.
#[derive(Deserialize)]
struct Given {
    argv: Vec<Argument>,
}

impl Command {
    /// Runs commands by this policy, as children of this keeper.
    ///
    /// # Errors
    /// When the policy names no program, or one of its templates is wrong.
    pub fn new(keeper: Keeper, policy: CommandPolicy) -> Result<Self, PolicyError> {
        let words = Words::Templates(policy.templates()?);
        Ok(Self { keeper, policy, words })
    }

    /// Runs what each task says in its payload: `{"argv": ["program", "argument"]}`. The policy's own words are not used.
    #[must_use]
    pub const fn of_payload(keeper: Keeper, policy: CommandPolicy) -> Self {
        Self { keeper, policy, words: Words::Payload }
    }

    fn argv(&self, work: &Work) -> Result<Vec<Argument>, String> {
        match &self.words {
            Words::Templates(templates) => {
                templates.iter().map(|template| template.render(work).map(Argument::from)).collect()
            }
            Words::Payload => {
                let given: Given = serde_json::from_str(&work.payload)
                    .map_err(|error| format!("the payload has no argv to run: {error}"))?;
                Ok(given.argv)
            }
        }
    }

    fn launch(&self, work: &Work) -> Result<Launch, String> {
        let argv = self.argv(work)?;
        Ok(Launch {
            argv,
            folder: work.folder.clone(),
            keep: self.policy.environment.keep.clone(),
            set: self.policy.environment.set.clone(),
            stdin: match self.policy.input {
                Input::Nothing => Stdin::Nothing,
                Input::Payload => Stdin::Pipe,
            },
            socket: Socket::None,
        })
    }
}

#[async_trait]
impl Executor for Command {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn run(&self, work: Work, control: Control) -> Ended {
        if control.cancel.is_cancelled() {
            return Ended::cancelled();
        }
        let launch = match self.launch(&work) {
            Ok(launch) => launch,
            Err(why) => return Ended::failed_with(ErrorClass::Permanent, why),
        };
        let program = launch.argv.first().map(Argument::shown).unwrap_or_default();
        let deadline = tokio::time::sleep(work.timeout);
        tokio::pin!(deadline);
        let child = tokio::select! {
            child = self.keeper.spawn(launch) => child,
            () = &mut deadline => return Ended::too_long(work.timeout),
        };
        match child {
            Ok(child) => Attempt::new(child, work, control, &self.policy).follow(deadline).await,
            Err(error) => Ended::failed(verdict::not_spawned(&program, work.folder.as_deref(), &error)),
        }
    }
}
