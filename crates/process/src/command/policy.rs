//! How a command is run, and what its exit codes mean.

use ostler_core::ErrorClass;

use crate::files::Patterns;
use crate::folders::Folders;
use crate::sandbox::{Sandbox, SandboxError};

use super::template::{Template, TemplateError};

/// How the command of a pool is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandPolicy {
    /// The program and its arguments: templates, each of which stays one argument.
    pub argv: Vec<String>,
    /// What it reads.
    pub input: Input,
    /// The variables it gets.
    pub environment: Environment,
    /// What its exit codes mean.
    pub codes: Codes,
    /// What its output is.
    pub output: OutputForm,
    /// Bytes of its output, as JSON. Of more, the beginning and the end are kept, and that is said.
    pub max_output_bytes: usize,
    /// Bytes of its stderr that are kept as log lines, and of its stdout when it does not succeed. More is dropped, and that is
    /// said.
    pub max_log_bytes: usize,
    /// Where it works.
    pub folders: Folders,
    /// What it may do at most.
    pub sandbox: Option<Sandbox>,
    /// Which files that it leaves in its task's folder are recorded: patterns such as `*.pdf` or `pages/**/*.png`.
    pub files: Vec<String>,
}

/// Output of one attempt, unless the policy says otherwise.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Log lines of one attempt, unless the policy says otherwise.
const MAX_LOG_BYTES: usize = 1 << 20;
/// What nearly every program needs, and nothing that is a secret.
const KEPT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

impl CommandPolicy {
    /// Runs this, with what is usual for everything else.
    #[must_use]
    pub fn new<A: Into<String>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            input: Input::Nothing,
            environment: Environment::default(),
            codes: Codes::default(),
            output: OutputForm::Json,
            max_output_bytes: MAX_OUTPUT_BYTES,
            max_log_bytes: MAX_LOG_BYTES,
            folders: Folders::default(),
            sandbox: None,
            files: Vec::new(),
        }
    }

    /// Every reason why it cannot be followed. With none, [`Command::new`](crate::Command::new) takes it.
    #[must_use]
    pub fn faults(&self) -> Vec<PolicyError> {
        let no_program = self.argv.first().is_none_or(String::is_empty).then_some(PolicyError::NoProgram);
        let templates = self.argv.iter().filter_map(|text| Template::parse(text).err());
        let files = Patterns::new(&self.files).err().map(PolicyError::Files);
        no_program.into_iter().chain(templates.map(PolicyError::Template)).chain(files).collect()
    }

    pub(super) fn templates(&self) -> Result<Vec<Template>, PolicyError> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(PolicyError::NoProgram);
        }
        Ok(self.argv.iter().map(|text| Template::parse(text)).collect::<Result<_, _>>()?)
    }
}

/// A policy that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Nothing to run.
    #[error("the command has no program")]
    NoProgram,
    /// A template is wrong.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A pattern for files is wrong.
    #[error("there is no such pattern for files: {0}")]
    Files(String),
    /// The sandbox cannot be what it says.
    #[error("the sandbox: {0}")]
    Sandbox(#[from] SandboxError),
}

/// What the command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing: the end at once.
    Nothing,
    /// The payload: JSON text.
    Payload,
}

/// What the output of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// What it wrote, if that is JSON; else a JSON string of it, without the end of its last line.
    Json,
    /// What it wrote, byte by byte, as an [`Argument`](crate::Argument) is written in JSON.
    Exact,
}

/// The variables of a command. There are no others, except the one by which the supervisor knows its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The names of those it inherits from the node.
    pub keep: Vec<String>,
    /// Those that are set for it.
    pub set: Vec<(String, String)>,
}

impl Default for Environment {
    fn default() -> Self {
        Self { keep: KEPT.map(ToOwned::to_owned).to_vec(), set: Vec::new() }
    }
}

/// What exit codes mean, beside 0, which is success. A code that stands nowhere is unclassed: transient, unless the pool assumes
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codes {
    /// Will never work.
    pub permanent: Vec<i32>,
    /// May work next time, whatever the other lists say.
    pub transient: Vec<i32>,
    /// Nothing in this lane can work now.
    pub queue_stop: Vec<i32>,
}

impl Codes {
    /// What a code means, if it stands somewhere.
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
