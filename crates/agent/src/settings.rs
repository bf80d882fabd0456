//! Settings of one run of an agent: the prompt, the conversation, the model, what it may do.

use std::path::PathBuf;

use ostler_core::Usage;
use regex::Regex;

use crate::price::PriceTable;

/// Turns of an agent, unless its settings say otherwise.
pub const DEFAULT_MAX_TURNS: u32 = 50;
/// Retries inside the agent. The pool retries too, with longer waits and without a worker that is blocked meanwhile.
pub const DEFAULT_MAX_RETRIES: u32 = 2;

/// One run of an agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The program and its first arguments, if it is not the dialect's name on the PATH.
    pub command: Vec<String>,
    pub prompt: String,
    pub session: SessionStart,
    /// The working directory.
    pub folder: PathBuf,
    /// The config folder of the worker, in which the agent also keeps its conversations.
    pub config_folder: PathBuf,
    pub model: Option<String>,
    /// Model requests after which the agent is stopped.
    pub max_turns: u32,
    pub tools: ToolRules,
    pub permission: Permission,
    pub denials: Denials,
    /// The JSON schema of the answer.
    pub schema: Option<String>,
    /// MCP servers, as the agent's own JSON. Without it there are none, whatever the user or the project has configured.
    pub mcp_config: Option<String>,
    /// Which settings files the agent reads, in its own words. Without it, none.
    pub setting_sources: Option<String>,
    /// A server other than the agent's default.
    pub provider: Option<ModelProvider>,
    pub max_retries: u32,
    /// More arguments, in the agent's own words.
    pub extra: Vec<String>,
    /// What the conversation has spent before, for agents whose totals go on over a resume.
    pub spent_before: Vec<Usage>,
    pub prices: PriceTable,
    /// How the lines of a plain command are read.
    pub patterns: LinePatterns,
}

impl AgentSettings {
    /// A new conversation with the defaults.
    #[must_use]
    pub fn new(prompt: impl Into<String>, session: SessionStart) -> Self {
        Self {
            command: Vec::new(),
            prompt: prompt.into(),
            session,
            folder: PathBuf::from("."),
            config_folder: PathBuf::from("."),
            model: None,
            max_turns: DEFAULT_MAX_TURNS,
            tools: ToolRules::default(),
            permission: Permission::default(),
            denials: Denials::default(),
            schema: None,
            mcp_config: None,
            setting_sources: None,
            provider: None,
            max_retries: DEFAULT_MAX_RETRIES,
            extra: Vec::new(),
            spent_before: Vec::new(),
            prices: PriceTable::built_in(),
            patterns: LinePatterns::default(),
        }
    }
}

/// Which conversation a run works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionStart {
    /// A new one. An agent that lets the caller choose gets this id, a UUID; others say theirs before the first request.
    New { id: String },
    /// An earlier one. The agent has its history, and the prompt comes after it.
    Resume { id: String },
}

/// Tools by the agent's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Allowed without a question.
    pub allowed: Vec<String>,
    pub denied: Vec<String>,
}

/// What an agent may do without a question. Questions have no reader: what needs one is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// Read.
    #[default]
    ReadOnly,
    /// Also change files in its folder.
    Edit,
    /// Everything.
    Everything,
}

/// What a denied tool means for a run that otherwise succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Denials {
    /// A warning: the agent may have found another way.
    #[default]
    Warn,
    /// The run fails.
    Fail,
}

/// A model server of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelProvider {
    pub base_url: String,
    /// The environment variable with the key.
    pub key_variable: String,
}

/// Patterns for the lines of a plain command. The first group of each has the value.
#[derive(Clone, Debug, Default)]
pub struct LinePatterns {
    /// US dollars spent so far.
    pub cost: Option<Regex>,
    /// The id of its session.
    pub session: Option<Regex>,
}
