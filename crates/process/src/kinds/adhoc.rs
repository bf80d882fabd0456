//! `executor = "adhoc"`: the keys of a pool that runs commands that its tasks bring, those of `ostler add`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, FindingLevel, PoolCommon, PoolDefaults, PoolFinding, PoolKind, PoolSpec,
    Section,
};
use ostler_core::Overrides;
use ostler_exec::Executor;

use super::{MAX_LOG_BYTES, MOST_BY_CORES, SUPERVISOR, children};
use crate::{Command, CommandPolicy, Environment, StdoutLog};

/// The timeout of a command without one of its own: practically none, as for one that is typed in a shell.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The command, its folder and its environment come with the task.
#[derive(Clone, Copy, Debug)]
pub struct AdhocKind;

/// A pool that runs the commands of its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AdhocCommands(CommandPolicy);

impl PoolKind for AdhocKind {
    fn name(&self) -> &'static str {
        "adhoc"
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let default = CommandPolicy::new(Vec::<String>::new());
        let policy = CommandPolicy {
            environment: Environment { keep: Vec::new(), set: Vec::new() },
            secrets: pool.secrets.clone(),
            stdout_log: StdoutLog::Always,
            max_output_bytes: children::bytes(section.find("max_output"), pool.output_limit)
                .unwrap_or(default.max_output_bytes),
            max_log_bytes: children::bytes(section.find("max_log"), MAX_LOG_BYTES)
                .unwrap_or(default.max_log_bytes),
            ..default
        };
        Some(Box::new(AdhocCommands(policy)))
    }

    fn reference(&self) -> &'static str {
        include_str!("adhoc.toml")
    }
}

#[async_trait]
impl PoolSpec for AdhocCommands {
    /// A command that fails is not run again unless its task says so: the person who typed it did not expect that.
    fn defaults(&self) -> PoolDefaults {
        let overrides = Overrides { attempts: Some(1), timeout: Some(NO_TIMEOUT), ..Overrides::NONE };
        PoolDefaults { overrides, ..PoolDefaults::by_cores(MOST_BY_CORES) }
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        let sentence =
            format!("pool.{pool}: anyone who can submit a task can run anything, as the user of the node");
        let advice =
            "That is what executor = \"adhoc\" is for. Use executor = \"command\" for tasks of others.";
        vec![PoolFinding { code: "adhoc-commands", level: FindingLevel::Info, sentence, advice }]
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let supervisor = context.need::<crate::supervisor::Supervisor>(SUPERVISOR)?.clone();
        let command = Command::of_payload(supervisor, self.0.clone());
        Ok(Arc::new(command.map_err(|error| BuildError::new(error.to_string()))?))
    }
}
