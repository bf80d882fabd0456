//! The folders and the sandbox of a pool's children.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ostler_process::Folders;
use ostler_process::sandbox::{Attributes, Network, Sandbox};

use super::PoolSettings;
use super::folders::subfolder;
use super::section::{FoundValue, Section};

/// The range of `memory`. With less, hardly anything starts.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 44;
/// The range of `files`, per process: its three streams, and a few more.
const OPEN_FILES: RangeInclusive<u64> = 8..=1 << 20;
/// The range of `file_size`.
const FILE_SIZE: RangeInclusive<u64> = 1..=1 << 50;
/// The range of `processes`, threads included.
const PROCESSES: RangeInclusive<u64> = 1..=4_000_000;

/// Where the children of a pool run.
pub(super) fn folders(pool: &str, section: &mut Section<'_>) -> Folders {
    let mut path = |key| section.find(key).and_then(|found| one_path(&found));
    let (start, all) = (path("folder"), path("folders"));
    Folders { start, each: all.map(|all| all.join(subfolder(pool))), guarded: Vec::new() }
}

fn one_path(found: &FoundValue<'_>) -> Option<PathBuf> {
    let text = found.text()?;
    if text.is_empty() {
        found.refuse("is empty, but must be the path of a folder")
    } else {
        Some(text.into())
    }
}

/// The sandbox: none, the strictest, or as configured by a table.
pub(super) fn read(section: &mut Section<'_>) -> Option<Sandbox> {
    let found = section.find("sandbox")?;
    match found.truth() {
        Some(true) => Some(Sandbox::default()),
        Some(false) => None,
        None => {
            let mut table = found.table_or("true, false or a table such as { memory = \"512MiB\" }")?;
            let sandbox = Sandbox {
                network: table.find("network").and_then(|found| network(&found)).unwrap_or_default(),
                attributes: table
                    .find("chmod")
                    .and_then(|found| found.choice(Attributes::Changeable, Attributes::Fixed))
                    .unwrap_or_default(),
                read: paths(&mut table, "read"),
                write: paths(&mut table, "write"),
                memory_bytes: table.find("memory").and_then(|found| found.size(MEMORY)),
                processes: table.find("processes").and_then(|found| found.whole(PROCESSES)),
                cpu: table.find("cpu").and_then(|found| found.duration()),
                open_files: table.find("files").and_then(|found| found.whole(OPEN_FILES)),
                file_bytes: table.find("file_size").and_then(|found| found.size(FILE_SIZE)),
                hidden: Vec::new(),
            };
            table.close(&[]);
            Some(sandbox)
        }
    }
}

fn network(found: &FoundValue<'_>) -> Option<Network> {
    match found.truth() {
        Some(false) => Some(Network::None),
        Some(true) => Some(Network::Open),
        None if found.is_text("unix") => Some(Network::Unix),
        None => found.refuse(format!("is {}, but must be false, true or \"unix\"", found.shown())),
    }
}

fn paths(section: &mut Section<'_>, key: &'static str) -> Vec<PathBuf> {
    let texts = section.find(key).and_then(|found| {
        let texts = found.texts("[\"/srv/fonts\"]")?;
        if texts.iter().any(String::is_empty) {
            return found.refuse("contains an empty path");
        }
        Some(texts)
    });
    texts.unwrap_or_default().into_iter().map(PathBuf::from).collect()
}

/// Resolves relative paths from this folder.
pub(super) fn beside(folders: &mut Folders, sandbox: Option<&mut Sandbox>, folder: &Path) {
    let listed = sandbox.into_iter().flat_map(|sandbox| sandbox.read.iter_mut().chain(&mut sandbox.write));
    for path in folders.start.iter_mut().chain(&mut folders.each).chain(listed) {
        let joined = folder.join(&path);
        *path = std::path::absolute(&joined).unwrap_or(joined);
    }
}

/// An opening in a sandbox that is wider than it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenDoor {
    /// For programs; never changes.
    pub(crate) code: &'static str,
    pub(crate) sentence: String,
    pub(crate) advice: &'static str,
}

/// The openings in the sandboxes of these pools.
pub(crate) fn open_doors(pools: &[PoolSettings]) -> Vec<OpenDoor> {
    let mut open = Vec::new();
    for pool in pools {
        let Some(sandbox) = pool.executor.sandbox() else { continue };
        let key = |key: &str| format!("pool.{}.sandbox.{key}", pool.name);
        match sandbox.network {
            Network::None | Network::Open => {}
            Network::Unix => open.push(OpenDoor {
                code: "sandbox-unix-sockets",
                sentence: format!(
                    "{} = \"unix\": its children can connect to any Unix socket of this machine, such as that of a container \
                     engine, a database or the session bus, with the rights of the node's user",
                    key("network")
                ),
                advice: "If one of these would let them escape, run the node as a user without access to it, or leave the network closed",
            }),
        }
        match sandbox.attributes {
            Attributes::Fixed => {}
            Attributes::Changeable => open.push(OpenDoor {
                code: "sandbox-chmod",
                sentence: format!(
                    "{} = true: its children can change the modes and times of every file of the node's user, including the store's",
                    key("chmod")
                ),
                advice: "Leave it out if they do not need it: files can be created with the right mode (umask)",
            }),
        }
    }
    open
}
