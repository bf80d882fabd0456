//! Exit codes, and the one place that prints errors.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use ostler::{RemoteError, RemoteErrorKind};
use ostler_ops::{OpsError, Refusal as OpsRefusal};
use ostler_store::{Error, ErrorKind};

use crate::log::{self, LogLevel};
use crate::print::visible_lines;

/// The table of exit codes in `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    done
  1    work failed, or was returned to the queue unfinished
  2    bad usage, input or config
  3    the store or the node is unreachable, refused or not writable
  4    not found
  5    the queue is full
  6    a job waits for the approval of its pilot, or for a larger budget
  130  interrupted";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Done,
    /// Work failed, or was returned to the queue unfinished.
    WorkFailed,
    BadInput,
    Store,
    NotFound,
    QueueFull,
    /// The pilot of a job has ended, or its budget is reached, and the other items wait.
    NeedsApproval,
    Interrupted,
}

impl Code {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::WorkFailed => 1,
            Self::BadInput => 2,
            Self::Store => 3,
            Self::NotFound => 4,
            Self::QueueFull => 5,
            Self::NeedsApproval => 6,
            Self::Interrupted => 130,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

/// Why a command was refused, and the exit code.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: Code,
    sentence: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}

/// An error with an exit code.
pub(crate) fn refused(code: Code, sentence: impl Into<String>) -> anyhow::Error {
    Refusal { code, sentence: sentence.into() }.into()
}

/// Prints the error, if there is one, and returns the exit code.
pub(crate) fn end(done: anyhow::Result<Code>) -> ExitCode {
    match done {
        Ok(code) => code.into(),
        // The reader of the output has closed it.
        Err(error) if is_closed_pipe(&error) => Code::Done.into(),
        Err(error) => {
            let sentence = sentence(&error);
            if !log::takes_last(&sentence) {
                say(&sentence);
            }
            code_of(&error).into()
        }
    }
}

/// What to tell the user about an error.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    if let Some(error) = error.downcast_ref::<OpsError>() {
        return explained(error);
    }
    error.downcast_ref::<RemoteError>().map_or_else(|| format!("{error:#}"), told_by_node)
}

/// Prints a message to standard error, ignoring write errors; in a node, to its log. Control characters, which users' and tasks'
/// texts may contain, are escaped.
pub(crate) fn say(sentence: &str) {
    say_at(LogLevel::Info, sentence);
}

/// The same for a message that calls for attention.
pub(crate) fn warn(sentence: &str) {
    say_at(LogLevel::Warn, sentence);
}

fn say_at(level: LogLevel, sentence: &str) {
    if !log::takes(level, sentence) {
        let _ = writeln!(io::stderr(), "ostler: {}", visible_lines(sentence));
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}

/// The exit code of an error.
pub(crate) fn code_of(error: &anyhow::Error) -> Code {
    for cause in error.chain() {
        if let Some(refused) = cause.downcast_ref::<Refusal>() {
            return refused.code;
        }
        if let Some(error) = cause.downcast_ref::<OpsError>() {
            return of_ops(error);
        }
        if let Some(error) = cause.downcast_ref::<RemoteError>() {
            return of_node(error);
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return of_store(error.kind());
        }
    }
    Code::WorkFailed
}

/// The exit code for an error of a node that was asked over HTTP.
fn of_node(error: &RemoteError) -> Code {
    match error.kind {
        // Something was tried, and did not work out.
        RemoteErrorKind::Conflict if error.code == "unsuccessful" => Code::WorkFailed,
        RemoteErrorKind::Invalid | RemoteErrorKind::Conflict => Code::BadInput,
        RemoteErrorKind::NotFound => Code::NotFound,
        RemoteErrorKind::QueueFull => Code::QueueFull,
        RemoteErrorKind::TaskFailed | RemoteErrorKind::TaskCancelled | RemoteErrorKind::NotFinished => {
            Code::WorkFailed
        }
        RemoteErrorKind::Unauthorized
        | RemoteErrorKind::Forbidden
        | RemoteErrorKind::Unavailable
        | RemoteErrorKind::Unreachable
        | RemoteErrorKind::Other => Code::Store,
    }
}

/// The exit code for an error of a use case.
const fn of_ops(error: &OpsError) -> Code {
    match error {
        OpsError::Missing(_) => Code::NotFound,
        OpsError::Refused(_) => Code::BadInput,
        OpsError::Failed(_) => Code::WorkFailed,
        OpsError::QueueFull { .. } => Code::QueueFull,
        OpsError::Store(error) => of_store(error.kind()),
    }
}

/// The error of a use case in the words of the command line: with its options, and with the command that helps.
fn explained(error: &OpsError) -> String {
    match error {
        OpsError::Refused(OpsRefusal::Delays) => "--base must not be longer than --max".to_owned(),
        OpsError::Refused(OpsRefusal::Size { min, max }) => {
            format!("MIN ({min}) must not exceed MAX ({max})")
        }
        OpsError::Missing(_)
        | OpsError::Refused(_)
        | OpsError::Failed(_)
        | OpsError::QueueFull { .. }
        | OpsError::Store(_) => {
            let about = error.about().unwrap_or_default();
            hinted(error.to_string(), error.reason(), &about)
        }
    }
}

/// The error of a node, with the same hint.
fn told_by_node(error: &RemoteError) -> String {
    let word = |name: &str| error.details[name].as_str();
    hinted(error.to_string(), word("reason"), word("about").unwrap_or_default())
}

fn hinted(sentence: String, reason: Option<&str>, about: &str) -> String {
    let hint = match reason.unwrap_or_default() {
        "no_key" => "use --queue for another queue",
        "no_dead_letter" => "see: ostler show",
        "no_queue" => "see: ostler queue ls",
        "no_subscriber" => "see: ostler queue show",
        "no_node" | "no_pool" => "see: ostler nodes",
        "no_worker" | "no_reply" => "see: ostler workers",
        "no_account" => "see: ostler account ls",
        "no_schedule" => "see: ostler schedule ls",
        "no_job" => "see: ostler job ls",
        "no_job_process" => "-j of \"ostler map\" sets it when it runs",
        "too_many_schedules" => "to remove one: ostler schedule rm NAME",
        "pool_gone" => "name a queue that agents serve with --to",
        "job_running" => return format!("{sentence}; stop it first: ostler job cancel {about}"),
        "not_finished" => return format!("{sentence}; see: ostler show {about}"),
        _ => return sentence,
    };
    format!("{sentence}; {hint}")
}

/// The exit code for an error of an open store.
const fn of_store(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::BadInput,
        ErrorKind::Full
        | ErrorKind::Busy
        | ErrorKind::Unavailable
        | ErrorKind::ReadOnly
        | ErrorKind::Foreign
        | ErrorKind::TooNew
        | ErrorKind::Damaged
        | ErrorKind::BadRow
        | ErrorKind::Replaced
        | ErrorKind::Moving
        | ErrorKind::Moved
        | ErrorKind::Closed
        | ErrorKind::Internal => Code::Store,
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, TaskId};
    use ostler_ops::{Missing, Unsuccessful};

    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code_and_names_the_command_that_helps() {
        let id = TaskId(Id::from_bits(7));
        let queue = "mail".to_owned();
        for (error, code, words) in [
            (Missing::Queue(queue.clone()).into(), Code::NotFound, "; see: ostler queue ls"),
            (Missing::Task(id).into(), Code::NotFound, "there is no task"),
            (OpsRefusal::Delays.into(), Code::BadInput, "--base must not be longer than --max"),
            (OpsRefusal::TooManySchedules { limit: 9 }.into(), Code::BadInput, "ostler schedule rm NAME"),
            (Unsuccessful::NotFinished(id).into(), Code::WorkFailed, "; see: ostler show"),
            (OpsError::QueueFull { queue, limit: 3 }, Code::QueueFull, "3 tasks are waiting"),
            (Error::invalid("too long").into(), Code::BadInput, "too long"),
            (Error::new(ErrorKind::Busy, "it is locked").into(), Code::Store, "it is locked"),
        ] {
            let sentence = explained(&error);
            assert!(sentence.contains(words), "{sentence}");
            assert_eq!(code_of(&anyhow::Error::from(error)), code, "{sentence}");
        }
    }
}
