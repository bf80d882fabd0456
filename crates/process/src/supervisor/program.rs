//! How the supervisor's process is started, and why it may not be.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::frame::{Containment, MAX_DESCRIPTORS};

/// How the supervisor's process is started: a program whose main function then calls [`serve`](super::serve()).
#[derive(Clone, Debug)]
pub struct SupervisorProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables it gets beside the node's own.
    pub env: Vec<(OsString, OsString)>,
    /// How it is to contain children.
    pub containment: Containment,
}

impl SupervisorProgram {
    /// The program that runs now, with these arguments. It is found by its inode: node and supervisor are the same version
    /// even while an update replaces the file.
    #[must_use]
    pub fn this<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            containment: Containment::default(),
        }
    }
}

/// Why there is no supervisor.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused something.
    #[error("the supervisor cannot be started: {0}")]
    System(#[from] io::Error),
    /// More descriptors to hold than one frame carries.
    #[error("the supervisor can hold at most {MAX_DESCRIPTORS} descriptors")]
    TooMuchToHold,
    /// Control groups were asked for, and cannot be had.
    #[error(
        "children cannot be contained by control groups here, as containment = \"cgroup\" asks: {0}; use \"auto\" or \"group\""
    )]
    NoContainment(String),
    /// The program was started, but it is no supervisor, or it hangs.
    #[error("the program that was started as the supervisor does not answer as one")]
    NoAnswer,
}
