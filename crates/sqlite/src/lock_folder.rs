//! The folder of lock files and sockets beside a store's file (`….nodes`), and how files in it are opened.
//!
//! Whoever may write in this folder can pretend that a node is alive or dead. So it must belong to the caller, to the
//! owner of the store or to root, and a link in it is never followed.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use ostler_store::Error;

use crate::fault::file_fault;

/// Lock files that are looked at when a caller asks which of them it cannot open.
const MAX_LOOKED_AT: usize = 1_000;
/// How the names of sessions' lock files end.
pub(crate) const SUFFIX: &str = "node";
const EVERYBODY_WRITES: u32 = 0o002;
const ROOT: u32 = 0;

/// To whom the store's file belongs. A file beside it gets the same owner, where that is permitted: root may start a node on
/// the store of a user, whose own nodes must be able to read its lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// The owner of the store at this path; `None`: there is no file yet.
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

    /// Gives the file to this owner, if this process may. If not, it stays with the caller.
    fn take(self, file: &File) -> std::io::Result<()> {
        if Self::of(&file.metadata()?) != self {
            let _ = fchown(file, Some(self.user), Some(self.group));
        }
        Ok(())
    }
}

/// The folder's path.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".nodes");
    name.into()
}

/// Makes the folder, or checks who has made it.
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

/// Refuses a folder that a stranger made, or may change.
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

/// Opens a lock file to read and write, made if it is not there. A link is refused.
pub(crate) fn open_or_make(path: &Path, owner: Option<Owner>) -> std::io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).mode(0o600).custom_flags(no_follow());
    // Only a file that was made here changes hands: another one may be a second name of somebody's file.
    match how.clone().create_new(true).open(path) {
        Ok(file) => {
            owner.map_or(Ok(()), |owner| owner.take(&file))?;
            Ok(file)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => plain(how.create(true).open(path)),
        Err(error) => Err(error),
    }
}

/// Opens a lock file that is there. A link is refused.
pub(crate) fn open_existing(path: &Path) -> std::io::Result<File> {
    plain(OpenOptions::new().read(true).write(true).custom_flags(no_follow()).open(path))
}

fn plain(opened: std::io::Result<File>) -> std::io::Result<File> {
    let link = rustix::io::Errno::LOOP.raw_os_error();
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(std::io::Error::other("it is not a plain file, and was left as it is")),
        Err(error) if error.raw_os_error() == Some(link) => {
            Err(std::io::Error::other("it is a link, which is not followed here"))
        }
        Err(error) => Err(error),
    }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits() as i32
}

/// A lock file that this user cannot open. That the node behind it is dead cannot be known at once: its lease has to run out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnopenableLock {
    /// The file.
    pub file: PathBuf,
    /// What the system says.
    pub reason: String,
}

/// The lock files in the folder that this user cannot open.
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
            // Its node has ended meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => found.push(UnopenableLock { file: entry.path(), reason: error.to_string() }),
        }
    }
    Ok(found)
}
