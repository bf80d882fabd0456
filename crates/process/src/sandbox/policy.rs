//! What a pool says of its sandbox, and what is wrong with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::confinement::{Attributes, Confinement, Limits, Network};
use super::protected::{exposes, real};

/// What every child may read: programs, libraries and what they look at first. No settings that have secrets in them, no home
/// of anybody, and not what other processes do.
const SYSTEM: [&str; 28] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// The sandbox of a pool: what its children may do at most. The least, unless more is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Whom they may talk to.
    pub network: Network,
    /// What they may do to modes, owners, times and extended attributes of files.
    pub attributes: Attributes,
    /// What they may read and run, beside the system's programs and libraries and the files that the command itself names.
    pub read: Vec<PathBuf>,
    /// What they may change, beside the task's own folder and a private one for what is temporary.
    pub write: Vec<PathBuf>,
    /// Memory, with all that a child starts.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once, with all that a child starts.
    pub processes: Option<u64>,
    /// Processor time of one process. Parts of a second count as one.
    pub cpu: Option<Duration>,
    /// Files that one process may have open.
    pub open_files: Option<u64>,
    /// Bytes of one file.
    pub file_bytes: Option<u64>,
    /// What they may never reach, whatever else is said: the store's file.
    pub hidden: Vec<PathBuf>,
}

/// A sandbox that cannot be what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// A path that does not exist.
    #[error("\"{0}\" is not there")]
    Missing(String),
    /// A path that a child may have bent.
    #[error("{0}")]
    Link(String),
    /// A path with the store in it.
    #[error("\"{path}\" would give them \"{hidden}\", the store, which no child in a sandbox may reach")]
    Exposes {
        /// What is listed, or is the folder of a task.
        path: String,
        /// What is in it.
        hidden: String,
    },
}

impl Sandbox {
    /// Every reason why it cannot be kept.
    #[must_use]
    pub fn faults(&self) -> Vec<SandboxError> {
        let listed = || self.read.iter().chain(&self.write);
        let missing = listed().filter(|path| !path.exists());
        let missing = missing.map(|path| SandboxError::Missing(path.display().to_string()));
        let system = SYSTEM.map(PathBuf::from);
        let exposing: Vec<_> =
            listed().chain(&system).filter_map(|path| self.keeps_hidden(path).err()).collect();
        missing.chain(exposing).collect()
    }

    /// That this does not give away what is hidden.
    pub(crate) fn keeps_hidden(&self, path: &Path) -> Result<(), SandboxError> {
        match self.hidden.iter().find(|hidden| exposes(path, hidden)) {
            None => Ok(()),
            Some(hidden) => Err(SandboxError::Exposes {
                path: path.display().to_string(),
                hidden: real(hidden).display().to_string(),
            }),
        }
    }

    /// Whether a path is among what is listed, or below it.
    pub(super) fn lists(&self, path: &Path) -> bool {
        let path = real(path);
        self.read.iter().chain(&self.write).any(|listed| path.starts_with(real(listed)))
    }

    /// For one child that may read and change this. There are no links in these paths, except in those that are the machine's own.
    pub(crate) fn confine(
        &self,
        own: impl IntoIterator<Item = PathBuf>,
        read: Vec<PathBuf>,
        write: Vec<PathBuf>,
    ) -> Result<Confinement, SandboxError> {
        read.iter().chain(&write).try_for_each(|path| self.keeps_hidden(path))?;
        Ok(Confinement {
            system: SYSTEM.iter().map(PathBuf::from).chain(own).collect(),
            read,
            write,
            network: self.network,
            attributes: self.attributes,
            limits: Limits {
                memory_bytes: self.memory_bytes,
                processes: self.processes,
                cpu_seconds: self.cpu.map(whole_seconds),
                open_files: self.open_files,
                file_bytes: self.file_bytes,
            },
        })
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
