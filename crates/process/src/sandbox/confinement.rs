//! What one child may do at most, as the supervisor is told.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What one child may do at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// What of the machine's own it may read and run, with all that is below, wherever links lead. What is not there is left out.
    pub system: Vec<PathBuf>,
    /// What else it may read and run. A path with a link in it leads nowhere.
    pub read: Vec<PathBuf>,
    /// What it may change too, with all that is below. A path with a link in it leads nowhere.
    pub write: Vec<PathBuf>,
    /// Whom it may talk to.
    pub network: Network,
    /// What it may do to the attributes of files.
    pub attributes: Attributes,
    /// How much it may use.
    pub limits: Limits,
}

/// Whom a child may talk to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nobody: it can make no socket, except pairs for itself and its own children.
    #[default]
    None,
    /// Whoever listens at a socket file of this machine.
    Unix,
    /// Anybody.
    Open,
}

/// What a child may do to the attributes of files: their modes, owners, times and extended attributes. Landlock does not cover
/// them, and seccomp cannot tell one path from another: it is all or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attributes {
    /// They stay as the file was made.
    #[default]
    Fixed,
    /// It may change them, on every file that belongs to the node's user.
    Changeable,
}

/// How much a child may use. What is left out has the limit that the node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory, with all that it starts: by its control group.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once, with all that it starts: by its control group.
    pub processes: Option<u64>,
    /// Seconds of processor time that one process may use.
    pub cpu_seconds: Option<u64>,
    /// Files that one process may have open.
    pub open_files: Option<u64>,
    /// Bytes of one file that it writes.
    pub file_bytes: Option<u64>,
}

impl Limits {
    /// What a control group enforces of it.
    pub(crate) const fn of_group(&self) -> Self {
        Self { cpu_seconds: None, open_files: None, file_bytes: None, ..*self }
    }

    /// What each process is held to by itself.
    pub(crate) const fn of_process(&self) -> Self {
        Self { memory_bytes: None, processes: None, ..*self }
    }
}
