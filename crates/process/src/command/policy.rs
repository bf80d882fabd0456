//! Command policy: how a command is run, and the meaning of its exit codes.

use std::time::Duration;

use ostler_core::{ErrorClass, Traceparent};
use ostler_exec::Secrets;

use crate::files::FilePatterns;
use crate::folders::Folders;
use crate::sandbox::{Sandbox, SandboxError};

use super::template::{Template, TemplateError};

/// How the command of a pool is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandPolicy {
    /// The program and its arguments: templates, each of which stays one argument.
    pub argv: Vec<String>,
    pub input: Input,
    pub environment: Environment,
    /// Further variables, whose values are redacted.
    pub secrets: Secrets,
    pub codes: Codes,
    pub output: OutputForm,
    pub stdout_log: StdoutLog,
    /// Limit of the output in bytes of JSON. A longer output keeps its beginning and its end, with a warning.
    pub max_output_bytes: usize,
    /// Limit in bytes of the stderr kept as log lines, and of the stdout kept when the command does not succeed. The rest is
    /// dropped, with a warning.
    pub max_log_bytes: usize,
    /// An attempt is stuck, and ended, when it gives no sign of life for this long: no frame, no output, no CPU time. `None`: it has its
    /// whole timeout.
    pub stuck_after: Option<Duration>,
    pub folders: Folders,
    pub sandbox: Option<Sandbox>,
    /// Patterns of the files in the task's folder to record, such as `*.pdf` or `pages/**/*.png`.
    pub files: Vec<String>,
}

/// The default limit of the output of one attempt.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// The default limit of the log lines of one attempt.
const MAX_LOG_BYTES: usize = 1 << 20;
/// Variables that nearly every program needs; none is a secret.
const KEPT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

impl CommandPolicy {
    /// Creates a policy that runs this command, with defaults for everything else.
    #[must_use]
    pub fn new<A: Into<String>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            input: Input::Nothing,
            environment: Environment::default(),
            secrets: Secrets::default(),
            codes: Codes::default(),
            output: OutputForm::Json,
            stdout_log: StdoutLog::AsItComes,
            max_output_bytes: MAX_OUTPUT_BYTES,
            max_log_bytes: MAX_LOG_BYTES,
            stuck_after: None,
            folders: Folders::default(),
            sandbox: None,
            files: Vec::new(),
        }
    }

    /// Returns every error of the policy. With none, [`Command::new`](crate::Command::new) accepts it.
    #[must_use]
    pub fn faults(&self) -> Vec<PolicyError> {
        let no_program = self.argv.first().is_none_or(String::is_empty).then_some(PolicyError::NoProgram);
        let templates = self.argv.iter().filter_map(|text| Template::parse(text).err());
        let files = FilePatterns::new(&self.files).err().map(PolicyError::Files);
        no_program.into_iter().chain(templates.map(PolicyError::Template)).chain(files).collect()
    }

    pub(super) fn templates(&self) -> Result<Vec<Template>, PolicyError> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(PolicyError::NoProgram);
        }
        Ok(self.argv.iter().map(|text| Template::parse(text)).collect::<Result<_, _>>()?)
    }
}

/// An invalid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the command has no program")]
    NoProgram,
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("invalid file pattern: {0}")]
    Files(String),
    #[error("the sandbox: {0}")]
    Sandbox(#[from] SandboxError),
}

/// The standard input of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// End of file at once.
    Nothing,
    /// The payload: JSON text.
    Payload,
}

/// How the standard output of a command becomes the task's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// The output itself if it is JSON; otherwise a JSON string of it, without the final newline.
    Json,
    /// The exact bytes, in the JSON form of an [`Argument`](crate::Argument).
    Exact,
}

/// When the standard output of a command is in its log, too. That of a command that did not succeed always is, at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutLog {
    /// Only if it did not succeed.
    OfFailures,
    /// As it comes, but not if the command succeeds within a moment: all of it is the output then.
    AsItComes,
    /// As it comes, in any case.
    Always,
}

/// The environment of a command. It has no other variables, except the one by which the supervisor recognizes its descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The names of the variables inherited from the node.
    pub keep: Vec<String>,
    /// Additional variables.
    pub set: Vec<(String, String)>,
}

impl Default for Environment {
    fn default() -> Self {
        Self { keep: KEPT.map(ToOwned::to_owned).to_vec(), set: Vec::new() }
    }
}

impl Environment {
    /// The variables of a child that runs one task: its trace, and what the pool sets, which wins.
    #[must_use]
    pub fn of_task(&self, secrets: &Secrets, trace: Option<&Traceparent>) -> Vec<(String, String)> {
        let trace = trace.map(|trace| (Traceparent::VARIABLE.to_owned(), trace.to_string()));
        trace.into_iter().chain(self.variables(secrets)).collect()
    }

    /// The variables that are not inherited, with the secrets.
    #[must_use]
    pub fn variables(&self, secrets: &Secrets) -> Vec<(String, String)> {
        let secrets = secrets.iter().map(|secret| (secret.name().to_owned(), secret.expose().to_owned()));
        self.set.iter().cloned().chain(secrets).collect()
    }
}

/// The meaning of exit codes other than 0, which is success. A code in no list is unclassed: transient, unless the pool assumes
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codes {
    /// Will never succeed.
    pub permanent: Vec<i32>,
    /// May succeed on the next attempt, whatever the other lists say.
    pub transient: Vec<i32>,
    /// Nothing in this lane can succeed now.
    pub queue_stop: Vec<i32>,
}

impl Codes {
    /// The class of a code, if it is listed.
    pub(super) fn class(&self, code: i32) -> Option<ErrorClass> {
        if self.transient.contains(&code) {
            Some(ErrorClass::Transient)
        } else if self.permanent.contains(&code) {
            Some(ErrorClass::Permanent)
        } else if self.queue_stop.contains(&code) {
            Some(ErrorClass::QueueStop)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_policy_is_told() {
        let told = |argv: &[&str]| -> Vec<String> {
            CommandPolicy::new(argv.iter().copied()).faults().iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&["echo", "{{ payload.name }}"]), Vec::<String>::new());
        assert_eq!(told(&[]), ["the command has no program"]);
        let all = told(&["", "{{ payload", "fine", "{{ nonsense }}"]);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[1].contains("without") && all[2].contains("nonsense"), "{all:?}");
    }
}
