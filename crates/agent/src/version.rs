//! The version probe: whether the program that was found is the agent, and new enough.

use std::fmt;
use std::time::Duration;

use ostler_core::ErrorClass;
use thiserror::Error;

use crate::dialect::{AgentProduct, Dialect};

/// The version of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl AgentVersion {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The oldest versions whose lines were recorded.
const OLDEST_CLAUDE: AgentVersion = AgentVersion::new(2, 1, 197);
const OLDEST_CODEX: AgentVersion = AgentVersion::new(0, 166, 0);
const OLDEST_GEMINI: AgentVersion = AgentVersion::new(0, 61, 0);
const OLDEST_OPENCODE: AgentVersion = AgentVersion::new(1, 18, 33);
/// The first version of opencode that is another program: its server and its commands are not those of version 1.
const NEXT_OPENCODE: AgentVersion = AgentVersion::new(2, 0, 0);
/// Bytes of an unexpected answer in a message.
const QUOTED_BYTES: usize = 80;

/// What running the program with `--version` gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOutput<'a> {
    /// There is no such program.
    Missing,
    Printed(&'a str),
    /// It was not run: the node lacks what any process needs.
    NotStarted(&'a str),
    /// Nothing that tells a version, in this time.
    Silent(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VersionError {
    #[error("`{program}` is not installed, or not on the PATH: install {name} (the package {package})")]
    Missing { program: String, name: &'static str, package: &'static str },
    #[error("`{program}` is {name} {found}, and {oldest} or newer is needed: update it")]
    TooOld { program: String, name: &'static str, found: AgentVersion, oldest: AgentVersion },
    #[error("`{program}` is {name} {found}, and a version before {next} is needed: install {oldest}")]
    TooNew {
        program: String,
        name: &'static str,
        found: AgentVersion,
        next: AgentVersion,
        oldest: AgentVersion,
    },
    #[error("`{program} --version` printed \"{printed}\": that is not {name}")]
    Other { program: String, name: &'static str, printed: String },
    #[error("`{program} --version` was not run: {why}")]
    NotStarted { program: String, why: String },
    #[error(
        "`{program} --version` did not answer within {most:?}: the machine is too busy for {name}, or it hangs"
    )]
    Silent { program: String, name: &'static str, most: Duration },
}

impl VersionError {
    /// What it means for an attempt. Programs that are not there or not the right ones need a user; a busy machine needs time.
    pub(crate) const fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { .. } | Self::TooOld { .. } | Self::TooNew { .. } | Self::Other { .. } => {
                ErrorClass::QueueStop
            }
            Self::NotStarted { .. } | Self::Silent { .. } => ErrorClass::Transient,
        }
    }
}

/// The version from the output of `PROGRAM --version`; `None` for a plain command, which has none.
///
/// # Errors
/// When the program is missing, is older than this crate supports, is another program of that name, or does not answer.
pub fn probe(
    dialect: Dialect,
    program: &str,
    output: VersionOutput<'_>,
) -> Result<Option<AgentVersion>, VersionError> {
    let Some(AgentProduct { name, package }) = dialect.product() else { return Ok(None) };
    let oldest = match dialect {
        Dialect::Claude => OLDEST_CLAUDE,
        Dialect::Gemini => OLDEST_GEMINI,
        Dialect::OpenCode => OLDEST_OPENCODE,
        Dialect::Codex | Dialect::CodexExec | Dialect::Acp | Dialect::Command => OLDEST_CODEX,
    };
    let next = (dialect == Dialect::OpenCode).then_some(NEXT_OPENCODE);
    let program = program.to_owned();
    let printed = match output {
        VersionOutput::Printed(printed) => printed,
        VersionOutput::Missing => return Err(VersionError::Missing { program, name, package }),
        VersionOutput::NotStarted(why) => {
            return Err(VersionError::NotStarted { program, why: why.to_owned() });
        }
        VersionOutput::Silent(most) => return Err(VersionError::Silent { program, name, most }),
    };
    // `2.1.325 (Claude Code)`, `codex-cli 0.166.0`, `0.61.0`, `1.18.33`. A warning may stand on a line before it.
    let is_claude = |line: &str| line.strip_suffix("(Claude Code)").and_then(|rest| parse(rest.trim()));
    let is_codex = |line: &str| parse(line.strip_prefix("codex-cli ")?.trim());
    let mut lines = printed.lines().map(str::trim);
    let found = match dialect {
        Dialect::Claude => lines.find_map(is_claude),
        Dialect::Gemini | Dialect::OpenCode => lines.find_map(parse),
        Dialect::Codex | Dialect::CodexExec | Dialect::Acp | Dialect::Command => lines.find_map(is_codex),
    };
    match found {
        Some(found) if found < oldest => Err(VersionError::TooOld { program, name, found, oldest }),
        Some(found) => match next.filter(|next| found >= *next) {
            Some(next) => Err(VersionError::TooNew { program, name, found, next, oldest }),
            None => Ok(Some(found)),
        },
        None => {
            let first = printed.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
            let printed = ostler_core::beginning(first, QUOTED_BYTES).escape_debug().to_string();
            Err(VersionError::Other { program, name, printed })
        }
    }
}

/// `1.2.3`, with something such as `-alpha.4` after it or not.
fn parse(text: &str) -> Option<AgentVersion> {
    let plain = text.split(['-', '+']).next()?;
    let mut numbers = plain.split('.').map(str::parse);
    let version = AgentVersion::new(
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next().unwrap_or(Ok(0)).ok()?,
    );
    numbers.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claude(printed: &str) -> Result<Option<AgentVersion>, String> {
        probe(Dialect::Claude, "claude", VersionOutput::Printed(printed)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_version_is_read_from_what_each_agent_prints() {
        assert_eq!(claude("2.1.325 (Claude Code)\n"), Ok(Some(AgentVersion::new(2, 1, 325))));
        assert_eq!(claude("warning: x\n3.0.0 (Claude Code)"), Ok(Some(AgentVersion::new(3, 0, 0))));
        let codex = |printed| probe(Dialect::Codex, "codex", VersionOutput::Printed(printed));
        assert_eq!(codex("codex-cli 0.166.0\n"), Ok(Some(AgentVersion::new(0, 166, 0))));
        assert_eq!(codex("codex-cli 0.170.0-alpha.3\n"), Ok(Some(AgentVersion::new(0, 170, 0))));
        assert_eq!(probe(Dialect::Command, "x", VersionOutput::Missing), Ok(None));
        assert_eq!(probe(Dialect::Acp, "x", VersionOutput::Missing), Ok(None));
        let gemini = probe(Dialect::Gemini, "gemini", VersionOutput::Printed("0.61.0\n"));
        assert_eq!(gemini, Ok(Some(AgentVersion::new(0, 61, 0))));
    }

    #[test]
    fn another_generation_of_opencode_is_named_in_a_sentence() {
        let opencode = |printed| {
            let read = probe(Dialect::OpenCode, "opencode", VersionOutput::Printed(printed));
            read.map_err(|error| error.to_string())
        };
        assert_eq!(opencode("1.18.40\n"), Ok(Some(AgentVersion::new(1, 18, 40))));
        assert_eq!(
            opencode("2.0.1\n").unwrap_err(),
            "`opencode` is opencode 2.0.1, and a version before 2.0.0 is needed: install 1.18.33"
        );
        assert_eq!(
            opencode("Hello, world!").unwrap_err(),
            "`opencode --version` printed \"Hello, world!\": that is not opencode"
        );
    }

    #[test]
    fn a_program_that_is_missing_old_or_another_is_named_in_a_sentence() {
        let missing = probe(Dialect::Codex, "codex", VersionOutput::Missing).unwrap_err().to_string();
        assert_eq!(
            missing,
            "`codex` is not installed, or not on the PATH: install Codex (the package @openai/codex)"
        );
        assert_eq!(
            claude("1.0.71 (Claude Code)").unwrap_err(),
            "`claude` is Claude Code 1.0.71, and 2.1.197 or newer is needed: update it"
        );
        for (printed, quoted) in
            [("hello\u{7}\n", "hello\\u{7}"), ("", ""), ("codex-cli 0.166.0", "codex-cli 0.166.0")]
        {
            let expected = format!("`claude --version` printed \"{quoted}\": that is not Claude Code");
            assert_eq!(claude(printed).unwrap_err(), expected);
        }
    }
}
