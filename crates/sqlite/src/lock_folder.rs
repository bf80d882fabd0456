//! The lock folder next to a store's file (`….nodes`), which holds lock files and sockets, and how files in it are
//! opened.
//!
//! A user with write access to this folder can fake that a node is alive or dead. It must therefore belong to the caller,
//! to the owner of the store or to root, and symlinks in it are never followed.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use ostler_store::Error;

use crate::fault::file_fault;

/// Limit on the lock files inspected when a caller asks which of them it cannot open.
const MAX_LOOKED_AT: usize = 1_000;
/// The file name extension of sessions' lock files.
pub(crate) const SUFFIX: &str = "node";
const EVERYBODY_WRITES: u32 = 0o002;
const ROOT: u32 = 0;

/// The owner of the store's file. Files next to it get the same owner where that is permitted: root may start a node on a
/// user's store, and that user's own nodes must be able to read its lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Returns the owner of the store at this path; `None`: there is no file yet.
    pub(crate) fn of_store(path: &Path) -> Result<Option<Self>, Error> {
        match std::fs::metadata(path) {
            Ok(file) => Ok(Some(Self::of(&file))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_fault(path, &error)),
        }
    }

    fn of(file: &Metadata) -> Self {
        Self { user: file.uid(), group: file.gid() }
    }

    /// Gives the file to this owner if this process is permitted to. Otherwise it stays with the caller.
    fn take(self, file: &File) -> std::io::Result<()> {
        if Self::of(&file.metadata()?) != self {
            let _ = fchown(file, Some(self.user), Some(self.group));
        }
        Ok(())
    }
}

/// Returns the path of the lock folder.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".nodes");
    name.into()
}

/// Creates the folder, or checks the owner of an existing one.
pub(crate) fn make(folder: &Path, owner: Option<Owner>) -> Result<(), Error> {
    let fail = |error: std::io::Error| file_fault(folder, &error);
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {
            let Some(owner) = owner else { return Ok(()) };
            let made = OpenOptions::new().read(true).custom_flags(no_follow()).open(folder).map_err(fail)?;
            owner.take(&made).map_err(fail)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => check(folder, owner),
        Err(error) => Err(fail(error)),
    }
}

/// Refuses a folder that another user created or can change.
pub(crate) fn check(folder: &Path, owner: Option<Owner>) -> Result<(), Error> {
    let found = std::fs::symlink_metadata(folder).map_err(|error| file_fault(folder, &error))?;
    if !found.is_dir() {
        let what = if found.is_symlink() { "a link" } else { "not a folder" };
        return Err(Error::invalid(format!(
            "{} is {what}; the locks of a store are in a folder of this name",
            folder.display()
        )));
    }
    let me = rustix::process::geteuid().as_raw();
    let trusted = [Some(me), Some(ROOT), owner.map(|owner| owner.user)];
    if !trusted.contains(&Some(found.uid())) {
        return Err(Error::invalid(format!(
            "{} belongs to another user (uid {}), who could pretend that nodes are alive or dead; remove it, or choose \
             another folder for the store",
            folder.display(),
            found.uid()
        )));
    }
    if found.mode() & EVERYBODY_WRITES != 0 {
        return Err(Error::invalid(format!(
            "{} may be written by every user, who could pretend that nodes are alive or dead; take that right away: \
             chmod o-w {}",
            folder.display(),
            folder.display()
        )));
    }
    Ok(())
}

/// Opens a lock file for reading and writing, and creates it if it is missing. A symlink is refused.
pub(crate) fn open_or_make(path: &Path, owner: Option<Owner>) -> std::io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).mode(0o600).custom_flags(no_follow());
    // Only a file created here changes its owner: an existing one may be a hard link to another user's file.
    match how.clone().create_new(true).open(path) {
        Ok(file) => {
            owner.map_or(Ok(()), |owner| owner.take(&file))?;
            Ok(file)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => plain(how.create(true).open(path)),
        Err(error) => Err(error),
    }
}

/// Opens an existing lock file. A symlink is refused.
pub(crate) fn open_existing(path: &Path) -> std::io::Result<File> {
    plain(OpenOptions::new().read(true).write(true).custom_flags(no_follow()).open(path))
}

fn plain(opened: std::io::Result<File>) -> std::io::Result<File> {
    let link = rustix::io::Errno::LOOP.raw_os_error();
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(std::io::Error::other("it is not a regular file, and was not changed")),
        Err(error) if error.raw_os_error() == Some(link) => {
            Err(std::io::Error::other("it is a link, which is not followed here"))
        }
        Err(error) => Err(error),
    }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits() as i32
}

/// A lock file that this user cannot open. The death of its node cannot be detected at once: its lease has to expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnopenableLock {
    pub file: PathBuf,
    /// The operating system's error message.
    pub reason: String,
}

/// Lists the lock files in the folder that this user cannot open.
pub(crate) fn unopenable(folder: &Path) -> Result<Vec<UnopenableLock>, Error> {
    let fail = |error: std::io::Error| file_fault(folder, &error);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let mut found = Vec::new();
    for entry in entries.take(MAX_LOOKED_AT) {
        let entry = entry.map_err(fail)?;
        if entry.path().extension().is_none_or(|end| end != SUFFIX) {
            continue;
        }
        match open_existing(&entry.path()) {
            Ok(_) => {}
            // Its node has ended in the meantime.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => found.push(UnopenableLock { file: entry.path(), reason: error.to_string() }),
        }
    }
    Ok(found)
}
