//! Verdict on an attempt, from the exit of its child.

use std::io;

use ostler_core::{ErrorClass, Failure};
use ostler_exec::{AttemptResult, ClassSource};
use rustix::io::Errno;
use rustix::process::Signal;

use super::policy::Codes;
use crate::lines::reason;
use crate::supervisor::{About, Exit, SpawnError};

/// The result of a child that exited by itself.
pub(super) fn exited(
    exit: Exit,
    codes: &Codes,
    output: Option<String>,
    stderr: Option<String>,
) -> AttemptResult {
    let mut classing = ClassSource::Given;
    let failure = match exit {
        Exit::Code(0) => return AttemptResult::success(output),
        Exit::Code(code) => {
            let last = stderr.as_deref().and_then(reason);
            let why = last.map_or_else(String::new, |line| format!(": {line}"));
            let class = codes.class(code).unwrap_or_else(|| {
                classing = ClassSource::Assumed;
                ErrorClass::Transient
            });
            let failure = Failure::new(class, format!("exit code {code}{why}"));
            Failure { exit_code: u8::try_from(code).ok(), ..failure }
        }
        Exit::Signal(signal) => {
            let failure = Failure::new(ErrorClass::Crash, format!("killed by {}", signal_name(signal)));
            Failure { hint: hint(exit), ..failure }
        }
    };
    AttemptResult { classing, ..AttemptResult::failed(Failure { details: stderr, ..failure }) }
}

/// Describes an exit in words.
pub(crate) fn how(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exited with code {code}"),
        Exit::Signal(signal) => format!("was killed by {}", signal_name(signal)),
    }
}

/// A possible explanation for an exit that the node did not cause.
pub(crate) fn hint(exit: Exit) -> Option<String> {
    let hints = [
        (Signal::KILL, "the system does this when it is out of memory"),
        (Signal::XCPU, "it exceeded its CPU time: \"cpu\" of its sandbox"),
        (Signal::XFSZ, "it exceeded its file size: \"file_size\" of its sandbox"),
    ];
    let hint = hints.into_iter().find(|(signal, _)| exit == Exit::Signal(signal.as_raw()));
    hint.map(|(_, hint)| hint.to_owned())
}

/// The failure of a child that could not be spawned.
#[must_use]
pub fn not_spawned(program: &str, folder: Option<&str>, error: &SpawnError) -> Failure {
    let (class, message) = match error {
        SpawnError::Refused { about: About::Program, error } => {
            (class(error), format!("\"{program}\" cannot be started: {error}"))
        }
        SpawnError::Refused { about: About::Folder, error } => {
            (class(error), format!("the folder \"{}\" cannot be used: {error}", folder.unwrap_or_default()))
        }
        // Says nothing about the task.
        SpawnError::Refused { about: About::Containment, error } => {
            (ErrorClass::Transient, format!("\"{program}\" cannot be contained: {error}"))
        }
        SpawnError::Refused { about: About::Sandbox, error } => {
            (ErrorClass::Transient, format!("\"{program}\" cannot be put into its sandbox: {error}"))
        }
        SpawnError::TooLarge => (ErrorClass::Permanent, error.to_string()),
        SpawnError::Pipe(_) | SpawnError::Short { .. } | SpawnError::Gone(_) => {
            (ErrorClass::Transient, error.to_string())
        }
    };
    Failure::new(class, message)
}

/// Classifies an error: lasting ones are permanent; a resource that the system lacks now may be available later.
pub(crate) fn class(error: &io::Error) -> ErrorClass {
    const NEVER: [Errno; 10] = [
        Errno::NOENT,
        Errno::ACCESS,
        Errno::PERM,
        Errno::TOOBIG,
        Errno::NOEXEC,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::INVAL,
    ];
    match error.raw_os_error() {
        Some(code) if NEVER.iter().any(|errno| errno.raw_os_error() == code) => ErrorClass::Permanent,
        Some(_) | None => ErrorClass::Transient,
    }
}

/// The names of the signals on Linux, from 1.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

fn signal_name(signal: i32) -> String {
    let index = usize::try_from(signal).ok().and_then(|signal| signal.checked_sub(1));
    match index.and_then(|index| SIGNALS.get(index)) {
        Some(name) => (*name).to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(ended: &AttemptResult) -> Failure {
        ended.outcome.failure().cloned().expect("it failed")
    }

    #[test]
    fn codes_are_classed_by_the_policy() {
        let codes = Codes { permanent: vec![2, 3], transient: vec![3], queue_stop: vec![77] };
        for (code, class, classing) in [
            (1, ErrorClass::Transient, ClassSource::Assumed),
            (2, ErrorClass::Permanent, ClassSource::Given),
            (3, ErrorClass::Transient, ClassSource::Given),
            (77, ErrorClass::QueueStop, ClassSource::Given),
        ] {
            let ended = exited(Exit::Code(code), &codes, None, Some("first\nlast".into()));
            let failure = failure(&ended);
            assert_eq!((failure.class, ended.classing), (class, classing));
            assert_eq!(failure.message, format!("exit code {code}: last"));
            assert_eq!(failure.exit_code.map(i32::from), Some(code));
        }
    }

    #[test]
    fn signals_are_named() {
        let failure = failure(&exited(Exit::Signal(11), &Codes::default(), None, Some("the end".into())));
        assert_eq!((failure.class, failure.message.as_str()), (ErrorClass::Crash, "killed by SIGSEGV"));
        assert_eq!((failure.details.as_deref(), failure.exit_code), (Some("the end"), None));
        assert_eq!(signal_name(40), "signal 40");
    }

    #[test]
    fn refusals_of_the_system_are_classed() {
        for (errno, class) in [
            (Errno::NOENT, ErrorClass::Permanent),
            (Errno::ACCESS, ErrorClass::Permanent),
            (Errno::TOOBIG, ErrorClass::Permanent),
            (Errno::AGAIN, ErrorClass::Transient),
            (Errno::NOMEM, ErrorClass::Transient),
            (Errno::MFILE, ErrorClass::Transient),
        ] {
            let refused = SpawnError::Refused { about: About::Program, error: errno.into() };
            let failure = not_spawned("tool", None, &refused);
            assert_eq!(failure.class, class, "{errno:?}");
            assert!(failure.message.contains("\"tool\""), "{}", failure.message);
        }
    }
}
