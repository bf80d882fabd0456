//! Sandbox policy of a pool, and its errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::confinement::{Attributes, Confinement, Limits, Network};
use super::protected::{exposes, real};

/// What every child may read: programs, libraries and the files that they read first. No configuration with secrets, no home
/// directories, and nothing about other processes.
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

/// The sandbox of a pool. Defaults to the least rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub network: Network,
    pub attributes: Attributes,
    /// Paths that children may read and execute, besides the system's programs and libraries and the files that the command itself names.
    pub read: Vec<PathBuf>,
    /// Paths that children may change, besides the task's folder and a private temporary one.
    pub write: Vec<PathBuf>,
    /// Memory of a child and its descendants.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once, of a child and its descendants.
    pub processes: Option<u64>,
    /// CPU time per process, rounded up to seconds.
    pub cpu: Option<Duration>,
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Bytes per file.
    pub file_bytes: Option<u64>,
    /// Paths that children must never reach, whatever else is allowed: the store's file.
    pub hidden: Vec<PathBuf>,
}

/// An invalid sandbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("\"{0}\" does not exist")]
    Missing(String),
    /// A path with a link that a child may have made.
    #[error("{0}")]
    Link(String),
    /// A path that contains the store.
    #[error("\"{path}\" would give access to \"{hidden}\", the store, which no child in a sandbox may reach")]
    Exposes {
        /// A listed path, or the folder of a task.
        path: String,
        /// The store in it.
        hidden: String,
    },
}

impl Sandbox {
    /// Returns every error of the settings.
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

    /// Checks that this path does not expose a hidden one.
    pub(crate) fn keeps_hidden(&self, path: &Path) -> Result<(), SandboxError> {
        match self.hidden.iter().find(|hidden| exposes(path, hidden)) {
            None => Ok(()),
            Some(hidden) => Err(SandboxError::Exposes {
                path: path.display().to_string(),
                hidden: real(hidden).display().to_string(),
            }),
        }
    }

    /// Whether a path is listed, or below a listed one.
    pub(super) fn lists(&self, path: &Path) -> bool {
        let path = real(path);
        self.read.iter().chain(&self.write).any(|listed| path.starts_with(real(listed)))
    }

    /// The confinement of one child that may access these paths. They contain no links, except in those of the system.
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
