//! Starts the supervisor process; and its start errors.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::frame::{Containment, MAX_DESCRIPTORS};

/// The program of the supervisor process, whose main function calls [`serve`](super::serve()).
#[derive(Clone, Debug)]
pub struct SupervisorProgram {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Variables in addition to the node's own.
    pub env: Vec<(OsString, OsString)>,
    pub containment: Containment,
}

impl SupervisorProgram {
    /// The running program, with these arguments. It is found by its inode: node and supervisor are the same version
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

/// Why the supervisor could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the supervisor cannot be started: {0}")]
    System(#[from] io::Error),
    /// More descriptors to hold than one frame carries.
    #[error("the supervisor can hold at most {MAX_DESCRIPTORS} descriptors")]
    TooMuchToHold,
    /// Control groups were requested, and are not available.
    #[error(
        "children cannot be contained by control groups here, as containment = \"cgroup\" requires: {0}; use \"auto\" or \"group\""
    )]
    NoContainment(String),
    /// The program was started, but is not a supervisor, or hangs.
    #[error("the program that was started as the supervisor does not answer as one")]
    NoAnswer,
}
