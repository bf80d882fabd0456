//! The launch plan: program, arguments, environment, files and standard input of an agent.

use std::path::PathBuf;

use thiserror::Error;

use crate::settings::{AgentSettings, SessionStart};

/// How an agent is started.
///
/// The prompt is never an argument: arguments have a maximum length, are visible to every user of the machine, and a prompt that begins
/// with a dash would be a flag. For the same reason values of flags have the form `--flag=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    pub program: String,
    pub arguments: Vec<String>,
    /// Set for the agent, beside what [`environment`](crate::environment) passes on.
    pub set: Vec<(&'static str, String)>,
    /// Files to write in the config folder before the start.
    pub files: Vec<ConfigFile>,
    /// Files with credentials, to be brought into the config folder from the user's own.
    pub credentials: &'static [&'static str],
    pub input: PromptInput,
}

/// A file of the config folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path within the folder.
    pub path: &'static str,
    pub text: String,
}

/// What the agent reads from its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptInput {
    /// This text, and then the end: an agent waits for more while its input is open.
    Whole(String),
    /// The lines of [`Fact::Send`](crate::Fact::Send), until [`Fact::CloseStdin`](crate::Fact::CloseStdin).
    Dialogue,
}

/// Why a run cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("the schema is not JSON: {0}")]
    Schema(String),
    #[error("\"{0}\" is not a session id: it has letters, digits and dashes, and does not begin with a dash")]
    SessionId(String),
    #[error("an agent without a dialect needs `command`: the program to run")]
    NoCommand,
    #[error("agent = \"acp\" needs `command`: the program that speaks the Agent Client Protocol")]
    NoAcpCommand,
    #[error("base_url needs `model`: it is the server of one model")]
    NoModel,
    #[error(
        "mcp_config is not a JSON list of servers, such as [{{\"name\":…,\"command\":…,\"args\":[],\"env\":[]}}]: {0}"
    )]
    McpServers(String),
    #[error("a command cannot resume a conversation: start a new one")]
    NoResume,
    #[error("{0} contains a NUL, which no argument can have")]
    Nul(&'static str),
    #[error("the config folder {0:?} is not a path in UTF-8")]
    ConfigFolder(PathBuf),
}

/// Bytes of a session id.
const MAX_SESSION_ID: usize = 128;

/// Whether this can be the id of a session. It becomes an argument and the name of a file: no path, and no flag.
#[must_use]
pub fn is_session_id(id: &str) -> bool {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    is_plain && !id.is_empty() && id.len() <= MAX_SESSION_ID && !id.starts_with('-')
}

/// Checks what all dialects rely on.
pub(crate) fn check(settings: &AgentSettings) -> Result<(), PlanError> {
    let (SessionStart::New { id } | SessionStart::Resume { id }) = &settings.session;
    if !is_session_id(id) {
        return Err(PlanError::SessionId(id.clone()));
    }
    if let Some(schema) = &settings.schema {
        serde_json::from_str::<serde_json::Value>(schema)
            .map_err(|error| PlanError::Schema(error.to_string()))?;
    }
    let texts = [("model", settings.model.iter().collect::<Vec<_>>())].into_iter().chain([
        ("command", settings.command.iter().collect()),
        ("extra", settings.extra.iter().collect()),
        ("tools", settings.tools.allowed.iter().chain(&settings.tools.denied).collect()),
        ("mcp_config", settings.mcp_config.iter().collect()),
        ("schema", settings.schema.iter().collect()),
    ]);
    for (name, values) in texts {
        if values.iter().any(|value| value.contains('\0')) {
            return Err(PlanError::Nul(name));
        }
    }
    Ok(())
}

/// The program and its first arguments: the user's, or the dialect's name.
pub(crate) fn program(settings: &AgentSettings, name: &str) -> (String, Vec<String>) {
    match settings.command.split_first() {
        Some((program, first)) => (program.clone(), first.to_vec()),
        None => (name.to_owned(), Vec::new()),
    }
}

/// The config folder as the value of a variable.
pub(crate) fn config_folder(settings: &AgentSettings) -> Result<String, PlanError> {
    let folder = settings.config_folder.to_str();
    folder.map(str::to_owned).ok_or_else(|| PlanError::ConfigFolder(settings.config_folder.clone()))
}
