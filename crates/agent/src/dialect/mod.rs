//! Dialects: the programs that can be driven, each with its flags, its lines and its endings.

mod acp;
mod claude;
mod codex;
mod command;

use ostler_core::{EventBody, Usage};

use crate::ending::{ProcessEnd, RunReport};
use crate::fact::Fact;
use crate::launch::{self, LaunchPlan, PlanError};
use crate::lines::Line;
use crate::settings::{AgentSettings, SessionStart};
use crate::transcript::{status, too_long};
use acp::{AcpAgent, AcpClient};

/// How an agent is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Claude Code: `claude -p`, JSON lines on standard output.
    Claude,
    /// Codex: `codex app-server`, JSON lines in both directions.
    Codex,
    /// Codex: `codex exec --json`, for versions and settings with which the other does not work.
    CodexExec,
    /// Gemini CLI: `gemini --acp`, the Agent Client Protocol.
    Gemini,
    /// opencode: `opencode acp`, the same protocol.
    OpenCode,
    /// Any program that speaks the Agent Client Protocol, version 1, on its standard input and output.
    Acp,
    /// Any program: the prompt on standard input, the answer on standard output.
    Command,
}

/// What a user installs to have an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentProduct {
    pub name: &'static str,
    /// The npm package that has the program.
    pub package: &'static str,
}

/// Where an agent finds its login: a key in a variable, or a file in the user's config folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginPlace {
    /// Variables with a key, the one that wins first.
    pub(crate) keys: &'static [&'static str],
    /// The variable that names the user's config folder.
    pub(crate) folder_variable: &'static str,
    /// The config folder in the home folder, without that variable.
    pub(crate) folder: &'static str,
    /// The file in it that has the login.
    pub(crate) file: &'static str,
}

impl Dialect {
    pub const ALL: [Self; 7] =
        [Self::Claude, Self::Codex, Self::CodexExec, Self::Gemini, Self::OpenCode, Self::Acp, Self::Command];

    /// The word for it in a config file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::CodexExec => "codex-exec",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
            Self::Acp => "acp",
            Self::Command => "command",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// The program that is run, unless the settings name another.
    #[must_use]
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Claude => Some("claude"),
            Self::Codex | Self::CodexExec => Some("codex"),
            Self::Gemini => Some("gemini"),
            Self::OpenCode => Some("opencode"),
            Self::Acp | Self::Command => None,
        }
    }

    /// What has the program; `None` for any program.
    #[must_use]
    pub const fn product(self) -> Option<AgentProduct> {
        match self {
            Self::Claude => Some(AgentProduct { name: "Claude Code", package: "@anthropic-ai/claude-code" }),
            Self::Codex | Self::CodexExec => Some(AgentProduct { name: "Codex", package: "@openai/codex" }),
            Self::Gemini => Some(AgentProduct { name: "Gemini CLI", package: "@google/gemini-cli" }),
            Self::OpenCode => Some(AgentProduct { name: "opencode", package: "opencode-ai" }),
            Self::Acp | Self::Command => None,
        }
    }

    /// Where the program finds its login; `None` if that is not known.
    pub(crate) const fn login(self) -> Option<LoginPlace> {
        match self {
            Self::Claude => Some(LoginPlace {
                keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
                folder_variable: "CLAUDE_CONFIG_DIR",
                folder: ".claude",
                file: ".credentials.json",
            }),
            Self::Codex | Self::CodexExec => Some(LoginPlace {
                keys: &["OPENAI_API_KEY", "CODEX_API_KEY"],
                folder_variable: "CODEX_HOME",
                folder: ".codex",
                file: "auth.json",
            }),
            Self::Gemini => Some(LoginPlace {
                keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
                folder_variable: "GEMINI_CLI_HOME",
                folder: "",
                file: ".gemini/.env",
            }),
            Self::OpenCode => Some(LoginPlace {
                keys: &["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "OPENCODE_API_KEY"],
                folder_variable: "XDG_DATA_HOME",
                folder: ".local/share",
                file: "opencode/auth.json",
            }),
            Self::Acp | Self::Command => None,
        }
    }

    /// The variables that name the folder of its config and its conversations.
    pub(crate) const fn config_variables(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["CLAUDE_CONFIG_DIR"],
            Self::Codex | Self::CodexExec => &["CODEX_HOME"],
            Self::Gemini => &["GEMINI_CLI_HOME"],
            Self::OpenCode => &["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"],
            Self::Acp | Self::Command => &[],
        }
    }

    /// Whether it can go on with an earlier conversation.
    pub(crate) const fn resumes(self) -> bool {
        match self {
            Self::Claude | Self::Codex | Self::CodexExec | Self::Gemini | Self::OpenCode | Self::Acp => true,
            Self::Command => false,
        }
    }

    /// Whether nothing works without a login. opencode has models that need none.
    pub(crate) const fn needs_login(self) -> bool {
        match self {
            Self::Claude | Self::Codex | Self::CodexExec | Self::Gemini => true,
            Self::OpenCode | Self::Acp | Self::Command => false,
        }
    }

    /// Whether it speaks by lines on its standard output. What it writes to standard error is no sign of life then.
    pub(crate) const fn has_protocol(self) -> bool {
        match self {
            Self::Claude | Self::Codex | Self::CodexExec | Self::Gemini | Self::OpenCode | Self::Acp => true,
            Self::Command => false,
        }
    }

    /// Whether the pool has to name the program.
    pub(crate) const fn needs_command(self) -> bool {
        self.program().is_none()
    }

    /// How the names of its variables begin.
    pub(crate) const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["ANTHROPIC_", "CLAUDE_CODE_"],
            Self::Codex | Self::CodexExec => &["OPENAI_", "CODEX_"],
            Self::Gemini => &["GEMINI_", "GOOGLE_"],
            Self::OpenCode => &["OPENCODE_", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"],
            Self::Acp | Self::Command => &[],
        }
    }

    /// Variables with which it answers what version it is without a second process.
    pub(crate) const fn probe_variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Gemini => &[acp::NO_RELAUNCH],
            Self::Claude | Self::Codex | Self::CodexExec | Self::OpenCode | Self::Acp | Self::Command => &[],
        }
    }

    /// How to start a run.
    ///
    /// # Errors
    /// When the settings are not valid.
    pub fn plan(self, settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
        launch::check(settings)?;
        match self {
            Self::Claude => claude::plan(settings),
            Self::Codex => codex::plan_app_server(settings),
            Self::CodexExec => codex::plan_exec(settings),
            Self::Gemini => acp::plan(AcpAgent::Gemini, settings),
            Self::OpenCode => acp::plan(AcpAgent::OpenCode, settings),
            Self::Acp => acp::plan(AcpAgent::Other, settings),
            Self::Command => command::plan(settings),
        }
    }

    /// The reader of a run with these settings.
    #[must_use]
    pub fn run(self, settings: &AgentSettings) -> AgentRun {
        let acp = |agent| Reader::Acp(Box::new(AcpClient::new(agent, settings)));
        let reader = match self {
            Self::Claude => Reader::Claude(Box::new(claude::Stream::new(settings))),
            Self::Codex => Reader::Codex(Box::new(codex::AppServer::new(settings))),
            Self::CodexExec => Reader::CodexExec(Box::new(codex::ExecStream::new(settings))),
            Self::Gemini => acp(AcpAgent::Gemini),
            Self::OpenCode => acp(AcpAgent::OpenCode),
            Self::Acp => acp(AcpAgent::Other),
            Self::Command => Reader::Command(Box::new(command::Text::new(settings))),
        };
        AgentRun { session: settings.session.clone(), prompt: settings.prompt.clone(), reader }
    }
}

/// One run of an agent, as seen from its lines.
#[derive(Debug)]
pub struct AgentRun {
    session: SessionStart,
    prompt: String,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Claude(Box<claude::Stream>),
    Codex(Box<codex::AppServer>),
    CodexExec(Box<codex::ExecStream>),
    Acp(Box<AcpClient>),
    Command(Box<command::Text>),
}

/// Whether an agent that speaks piece by piece is in the middle of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    GoesOn,
    /// It has been silent for a moment.
    Pauses,
}

/// What becomes of a line of standard error.
#[derive(Clone, Debug, PartialEq)]
pub enum LogLine {
    /// It is part of the log of the task.
    Shown,
    /// It is for developers of the agent. What it says to others are these facts.
    Noise(Vec<Fact>),
}

impl AgentRun {
    /// What is to be stored and sent at the start, before anything is read.
    pub fn open(&mut self) -> Vec<Fact> {
        let mut facts = Vec::new();
        let known = match (&self.session, &self.reader) {
            (SessionStart::Resume { id }, _) => {
                facts.push(status(format!("resumes the conversation {id}")));
                Some(id.clone())
            }
            (SessionStart::New { id }, Reader::Claude(_)) => Some(id.clone()),
            (SessionStart::New { .. }, _) => None,
        };
        // A conversation that is known has its prompt, wherever the node dies.
        facts.push(EventBody::Prompt { text: std::mem::take(&mut self.prompt) }.into());
        facts.extend(known.map(|id| EventBody::Session { id }.into()));
        match &mut self.reader {
            Reader::Codex(server) => facts.extend(server.open()),
            Reader::Acp(client) => facts.extend(client.open()),
            Reader::Claude(_) | Reader::CodexExec(_) | Reader::Command(_) => {}
        }
        facts
    }

    /// What a line of its standard output means.
    pub fn line(&mut self, line: &Line) -> Vec<Fact> {
        let line = match line {
            Line::Whole(line) => line,
            Line::Cut { beginning, size } => return too_long(beginning, *size),
        };
        if line.trim_ascii().is_empty() && !matches!(self.reader, Reader::Command(_)) {
            return Vec::new();
        }
        match &mut self.reader {
            Reader::Claude(stream) => stream.line(line),
            Reader::Codex(server) => server.line(line),
            Reader::CodexExec(stream) => stream.line(line),
            Reader::Acp(client) => client.line(line),
            Reader::Command(text) => text.line(line),
        }
    }

    /// Bytes of words that were read and are not in the transcript: more of them may follow. Agents whose messages come whole have none.
    #[must_use]
    pub fn unsaid(&self) -> usize {
        match &self.reader {
            Reader::Acp(client) => client.unsaid(),
            Reader::Claude(_) | Reader::Codex(_) | Reader::CodexExec(_) | Reader::Command(_) => 0,
        }
    }

    /// Those words, as far as they are whole.
    pub fn say(&mut self, speech: Speech) -> Option<Fact> {
        match &mut self.reader {
            Reader::Acp(client) => client.say(speech),
            Reader::Claude(_) | Reader::Codex(_) | Reader::CodexExec(_) | Reader::Command(_) => None,
        }
    }

    /// What is known and not said yet, after its last line was read.
    pub fn flush(&mut self) -> Vec<Fact> {
        match &mut self.reader {
            Reader::Acp(client) => client.flush(),
            Reader::Claude(_) | Reader::Codex(_) | Reader::CodexExec(_) | Reader::Command(_) => Vec::new(),
        }
    }

    /// Whether lines of standard error are to be read, by [`log_line`](Self::log_line).
    #[must_use]
    pub fn reads_log(&self) -> bool {
        match &self.reader {
            Reader::Acp(client) => client.reads_log(),
            Reader::Claude(_) | Reader::Codex(_) | Reader::CodexExec(_) | Reader::Command(_) => false,
        }
    }

    /// What a line of its standard error means.
    pub fn log_line(&mut self, line: &str) -> LogLine {
        match &mut self.reader {
            Reader::Acp(client) => client.log_line(line),
            Reader::Claude(_) | Reader::Codex(_) | Reader::CodexExec(_) | Reader::Command(_) => {
                LogLine::Shown
            }
        }
    }

    /// Whether a session is to be opened before the prompt is sent, and is not yet.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        match &self.reader {
            Reader::Codex(server) => server.is_opening(),
            Reader::Acp(client) => client.is_opening(),
            Reader::Claude(_) | Reader::CodexExec(_) | Reader::Command(_) => false,
        }
    }

    /// Asks the agent to stop. No facts: it cannot be asked, only be sent a signal.
    pub fn interrupt(&mut self) -> Vec<Fact> {
        match &mut self.reader {
            Reader::Codex(server) => server.interrupt().into_iter().collect(),
            Reader::Acp(client) => client.interrupt().into_iter().collect(),
            Reader::Claude(_) | Reader::CodexExec(_) | Reader::Command(_) => Vec::new(),
        }
    }

    /// Usage that was seen and is not reported yet. Agents that report each request have none.
    #[must_use]
    pub fn unreported(&self) -> Vec<Usage> {
        match &self.reader {
            Reader::Claude(stream) => stream.unreported(),
            Reader::Acp(client) => client.unreported(),
            Reader::Codex(_) | Reader::CodexExec(_) | Reader::Command(_) => Vec::new(),
        }
    }

    /// How the run went, after its last line was read and the process is gone.
    #[must_use]
    pub fn end(self, end: &ProcessEnd<'_>) -> RunReport {
        match self.reader {
            Reader::Claude(stream) => stream.end(end),
            Reader::Codex(server) => server.end(end),
            Reader::CodexExec(stream) => stream.end(end),
            Reader::Acp(client) => client.end(end),
            Reader::Command(text) => text.end(end),
        }
    }
}
