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
/// How long a program may take to say its version. Some are started by Node.js, and need more than a minute on a busy machine.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3 * 60);
/// How long an agent may take to open a session. Some are started by Node.js, read all of a conversation and start MCP servers first.
const OPENING_TIMEOUT: Duration = Duration::from_secs(3 * 60);
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
    /// The agent, and how it is spoken to.
    pub dialect: Dialect,
    /// The program and its first arguments, if it is not the dialect's name on the PATH.
    pub command: Vec<String>,
    /// The template of the prompt. Without it, the prompt is in the payload.
    pub prompt: Option<String>,
    /// The model, in the words of the agent; `None`: the agent's own choice.
    pub model: Option<String>,
    /// Model requests of a task, over all of its attempts.
    pub max_turns: u32,
    /// What the agent may do without a question: there is no one to ask.
    pub permission: Permission,
    /// Tools that are allowed or denied by name.
    pub tools: ToolRules,
    /// What a denied tool means for an agent that otherwise succeeds.
    pub denials: Denials,
    /// The JSON schema of the answers. With it, the output is a JSON value instead of text.
    pub schema: Option<SchemaSource>,
    /// How often an answer that the schema does not allow is sent back, before the task fails.
    pub schema_retries: u32,
    /// MCP servers, in the notation of the agent; `None`: none, whatever the user has configured.
    pub mcp_config: Option<String>,
    /// Settings files that claude reads, such as `project`; `None`: none.
    pub setting_sources: Option<String>,
    /// A model server other than the agent's own.
    pub provider: Option<ModelProvider>,
    /// How long an agent may be silent while none of its tools runs, before it counts as stuck.
    pub idle_watchdog: Duration,
    /// How long the program may take to say its version, before the first task of a node.
    pub version_timeout: Duration,
    /// How long an agent may take to open the session that its prompt is for, if it is not [`idle_watchdog`](Self::idle_watchdog), which
    /// may be longer.
    pub opening_timeout: Duration,
    /// The time between two starts.
    pub stagger: Duration,
    /// On one task, over all of its attempts: an attempt that passes it is stopped.
    pub max_task_cost: Option<Cost>,
    /// More arguments, in the words of the agent.
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
    /// In this file.
    File(PathBuf),
    /// Here.
    Inline(Value),
}

impl AgentPolicy {
    /// The defaults, for a pool of this name.
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
            version_timeout: VERSION_TIMEOUT,
            opening_timeout: OPENING_TIMEOUT,
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

    /// How long an agent may take to open a session.
    pub(super) fn opening_time(&self) -> Duration {
        self.opening_timeout.max(self.idle_watchdog)
    }

    /// The program that is run.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.command.first().map(String::as_str).or(self.dialect.program())
    }
}
