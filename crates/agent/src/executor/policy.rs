//! Agent policy: how the agents of a pool are run. A task may set some of it otherwise.

use std::path::PathBuf;
use std::time::Duration;

use ostler_core::Cost;
use ostler_exec::Secrets;
use ostler_process::{Environment, Folders};
use serde_json::Value;

use crate::dialect::Dialect;
use crate::price::PriceTable;
use crate::settings::{DEFAULT_MAX_TURNS, Denials, ModelProvider, Permission, ToolRules};

/// How long an agent may be silent while no tool runs.
pub const IDLE_WATCHDOG: Duration = Duration::from_secs(3 * 60);
/// Between two starts of one pool: agents that start at the same moment ask for the same things at the same moment.
pub const STAGGER: Duration = Duration::from_millis(200);
/// How often an answer that the schema does not allow is sent back.
pub const SCHEMA_RETRIES: u32 = 2;
/// Bytes of standard error that are kept as log lines.
pub const MAX_AGENT_LOG_BYTES: usize = 1 << 20;
/// Bytes of the output.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// How the agents of a pool are run.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPolicy {
    /// The name of the pool: its conversations have a folder of that name.
    pub pool: String,
    pub dialect: Dialect,
    /// The program and its first arguments, if it is not the dialect's name on the PATH.
    pub command: Vec<String>,
    /// The template of the prompt. Without it, the prompt is in the payload.
    pub prompt: Option<String>,
    pub model: Option<String>,
    /// Model requests of a task.
    pub max_turns: u32,
    pub permission: Permission,
    pub tools: ToolRules,
    pub denials: Denials,
    pub schema: Option<SchemaSource>,
    pub schema_retries: u32,
    pub mcp_config: Option<String>,
    pub setting_sources: Option<String>,
    pub provider: Option<ModelProvider>,
    pub idle_watchdog: Duration,
    pub stagger: Duration,
    /// On one task, over all of its attempts: an attempt that passes it is stopped.
    pub max_task_cost: Option<Cost>,
    pub extra: Vec<String>,
    /// Variables beside those that an agent of this dialect always has.
    pub environment: Environment,
    /// Set as variables, and redacted in everything that an agent writes.
    pub secrets: Secrets,
    /// Where its agents work.
    pub folders: Folders,
    /// Patterns of the files in the task's folder to record, such as `*.pdf` or `pages/**/*.png`.
    pub files: Vec<String>,
    /// Where agents keep their config and their conversations; `None`: the user's state folder.
    pub config_folders: Option<PathBuf>,
    /// For [`Dialect::Command`]: a pattern that finds the US dollars spent so far in what it prints. The first group counts.
    pub cost_pattern: Option<String>,
    /// For [`Dialect::Command`]: a pattern that finds the id of a session in what it prints.
    pub session_pattern: Option<String>,
    /// What models cost, for agents that report tokens and no money.
    pub prices: PriceTable,
    /// Bytes of standard error that are kept as log lines of an attempt.
    pub max_log_bytes: usize,
    /// The maximum size of an output in bytes.
    pub max_output_bytes: usize,
}

/// Where the schema of the answers is.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaSource {
    File(PathBuf),
    Inline(Value),
}

impl AgentPolicy {
    /// The defaults.
    #[must_use]
    pub fn new(pool: impl Into<String>, dialect: Dialect) -> Self {
        Self {
            pool: pool.into(),
            dialect,
            command: Vec::new(),
            prompt: None,
            model: None,
            max_turns: DEFAULT_MAX_TURNS,
            permission: Permission::default(),
            tools: ToolRules::default(),
            denials: Denials::default(),
            schema: None,
            schema_retries: SCHEMA_RETRIES,
            mcp_config: None,
            setting_sources: None,
            provider: None,
            idle_watchdog: IDLE_WATCHDOG,
            stagger: STAGGER,
            max_task_cost: None,
            extra: Vec::new(),
            environment: Environment { keep: Vec::new(), set: Vec::new() },
            secrets: Secrets::default(),
            folders: Folders::default(),
            files: Vec::new(),
            config_folders: None,
            cost_pattern: None,
            session_pattern: None,
            prices: PriceTable::built_in(),
            max_log_bytes: MAX_AGENT_LOG_BYTES,
            max_output_bytes: MAX_OUTPUT_BYTES,
        }
    }

    /// The program that is run.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.command.first().map(String::as_str).or(self.dialect.program())
    }
}
