//! Confinement: the sandbox of one child, as sent to the supervisor.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// System paths that the child may read and execute, recursively; links are followed. Missing paths are skipped.
    pub system: Vec<PathBuf>,
    /// Other paths that it may read and execute. A path with a link in it grants nothing.
    pub read: Vec<PathBuf>,
    /// Paths that it may also change, recursively. A path with a link in it grants nothing.
    pub write: Vec<PathBuf>,
    pub network: Network,
    pub attributes: Attributes,
    pub limits: Limits,
}

/// The network access of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No sockets, except pairs for itself and its own children.
    #[default]
    None,
    /// Unix sockets of this machine.
    Unix,
    /// Unrestricted.
    Open,
}

/// Whether a child may change the attributes of files: their modes, owners, times and extended attributes. Landlock does not cover
/// them, and seccomp cannot distinguish paths: it is all or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attributes {
    /// They stay as the file was created.
    #[default]
    Fixed,
    /// The child may change them, on every file that belongs to the node's user.
    Changeable,
}

/// Resource limits of a child. Without one, the node's limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of the child and its descendants, enforced by the control group.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once, with all descendants, enforced by the control group.
    pub processes: Option<u64>,
    /// Seconds of CPU time per process.
    pub cpu_seconds: Option<u64>,
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Bytes per written file.
    pub file_bytes: Option<u64>,
}

impl Limits {
    /// The limits that a control group enforces.
    pub(crate) const fn of_group(&self) -> Self {
        Self { cpu_seconds: None, open_files: None, file_bytes: None, ..*self }
    }

    /// The limits that are set per process.
    pub(crate) const fn of_process(&self) -> Self {
        Self { memory_bytes: None, processes: None, ..*self }
    }
}
