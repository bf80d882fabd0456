//! Restore: replaces a store by a backup.
//!
//! The backup is only read. Its copy is made and checked next to the store, and takes the store's name in one step. Until
//! then the store is unchanged; afterwards, a log that is still there belongs to another epoch (`log_epoch.rs`), and
//! opening the store is refused until that log is moved away. The former file is kept under another name.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind as Io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use ostler_store::{Error, ErrorKind};
use rusqlite::OpenFlags;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::fault::{fault, file_fault};
use crate::integrity::{partial, problems, sync_folder};
use crate::lock_folder::{self, Owner, SUFFIX, folder_of, open_existing};
use crate::log_epoch::{self, Header};
use crate::open::{
    OPEN_PATIENCE, beside, connect, is_empty, refuse_remote, refuse_what_is_not_ours, resolve,
};
use crate::turnstile::Turnstile;

/// Names tried for the former file.
const MAX_FORMER: usize = 1_000;
/// Files next to a database that are part of it: the log, and a journal that was not rolled back.
const BELONGINGS: [&str; 2] = ["-wal", "-journal"];
/// A file next to a database that SQLite can recreate.
const INDEX: &str = "-shm";

/// A restored store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The schema version.
    pub version: i64,
    /// The size in bytes.
    pub bytes: u64,
    /// The path of the former file, with its log next to it; `None`: there was none.
    pub former: Option<PathBuf>,
}

/// Replaces the store by a copy of the backup. No node may be running on it, and no process may have it open, including
/// this one.
///
/// # Errors
/// If the backup is not a complete store, the store is in use, or the copy cannot be written. The store is then
/// unchanged.
pub fn restore(backup: impl AsRef<Path>, store: impl AsRef<Path>) -> Result<Restored, Error> {
    let (backup, store) = (existing(backup.as_ref())?, resolve(store.as_ref())?);
    if backup == store {
        return Err(Error::invalid(format!("{} is the store itself; name a backup of it", store.display())));
    }
    refuse_remote(store.parent().unwrap_or(Path::new("/")))?;
    let (folder, owner) = (folder_of(&store), Owner::of_store(&store)?);
    lock_folder::make(&folder, owner)?;
    let turnstile = Turnstile::open(&folder, owner)?;
    let _turn = turnstile.enter_within(OPEN_PATIENCE)?;
    let dead = refuse_living(&folder, &store)?;
    let former = hold_alone(&store)?;
    let partial = partial(&store);
    let restored = prepare(&backup, &partial, former.as_ref())
        .and_then(|header| Ok((header, swap(&partial, &store, former.as_ref())?)));
    for end in ["", "-wal", "-journal", INDEX] {
        // After a swap nothing is left of it; after a failure it is useless.
        let _ = std::fs::remove_file(beside(&partial, end));
    }
    let (header, former) = restored?;
    for lock in dead {
        // The former sessions are not in the restored store, so no other code would remove their files.
        let _ = std::fs::remove_file(lock);
    }
    let bytes = std::fs::metadata(&store).map_err(|error| file_fault(&store, &error))?.len();
    Ok(Restored { version: header.version, bytes, former })
}

fn existing(backup: &Path) -> Result<PathBuf, Error> {
    let fail = |error: &std::io::Error| {
        if error.kind() == Io::NotFound {
            return Error::invalid(format!("there is no backup at {}", backup.display()));
        }
        file_fault(backup, error)
    };
    let file = std::fs::metadata(backup).map_err(|error| fail(&error))?;
    if !file.is_file() {
        return Err(Error::invalid(format!("{} is not a file; name the file of a backup", backup.display())));
    }
    backup.canonicalize().map_err(|error| fail(&error))
}

/// Refuses while a node or one of its child processes is alive. Returns the lock files of dead nodes.
fn refuse_living(folder: &Path, store: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |error: std::io::Error| file_fault(folder, &error);
    let mut dead = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_none_or(|end| end != SUFFIX) {
            continue;
        }
        let lock = match open_existing(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == Io::NotFound => continue,
            // The node may be alive.
            Err(error) => return Err(file_fault(&path, &error)),
        };
        match lock.try_lock() {
            Ok(()) => dead.push(path),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!(
                        "a node is running on {}; stop it before you replace the store (see: ostler nodes)",
                        store.display()
                    ),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(file_fault(&path, &error)),
        }
    }
    Ok(dead)
}

/// Locks the existing file as SQLite does, so that no other process can have it open: a connection to it would remove the
/// log of the new file on closing. `None`: there is no file.
fn hold_alone(store: &Path) -> Result<Option<File>, Error> {
    let file = match OpenOptions::new().read(true).write(true).open(store) {
        Ok(file) => file,
        Err(error) if error.kind() == Io::NotFound => return Ok(None),
        Err(error) => return Err(file_fault(store, &error)),
    };
    if file.metadata().map_err(|error| file_fault(store, &error))?.mode() & 0o222 == 0 {
        return Err(Error::new(ErrorKind::ReadOnly, format!("{} is marked read-only", store.display())));
    }
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(Error::new(
            ErrorKind::Busy,
            format!(
                "another process has {} open; it must exit before the store can be replaced",
                store.display()
            ),
        )),
        Err(error) => Err(file_fault(store, &error.into())),
    }
}

/// Makes a copy of the backup: a single file, on disk, with an epoch of its own.
fn prepare(backup: &Path, partial: &Path, former: Option<&File>) -> Result<Header, Error> {
    copy(backup, partial)?;
    let log = beside(backup, "-wal");
    if !is_empty(&log)? {
        copy(&log, &beside(partial, "-wal"))?;
    }
    // The message must name the backup, not its copy.
    let header = check_and_fold(partial).map_err(|error| {
        let name = |path: &Path| path.display().to_string();
        Error::new(error.kind(), error.to_string().replace(&name(partial), &name(backup)))
    })?;
    let failed = |error: std::io::Error| file_fault(partial, &error);
    let file = File::open(partial).map_err(failed)?;
    if let Some(former) = former {
        let former = former.metadata().map_err(failed)?;
        file.set_permissions(Permissions::from_mode(former.mode() & 0o777)).map_err(failed)?;
        // Only root may change the owner; for other users the file is already theirs.
        let _ = fchown(&file, Some(former.uid()), Some(former.gid()));
    }
    file.sync_all().map_err(failed)?;
    Ok(header)
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let mut source = File::open(from).map_err(|error| file_fault(from, &error))?;
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let mut target = target.map_err(|error| file_fault(to, &error))?;
    std::io::copy(&mut source, &mut target).map_err(|error| file_fault(to, &error))?;
    Ok(())
}

/// Checks that the copy is a complete store of a known version, then checkpoints its log into the single file.
fn check_and_fold(partial: &Path) -> Result<Header, Error> {
    if is_empty(partial)? {
        return Err(Error::new(ErrorKind::Foreign, format!("{} is empty, and no store", partial.display())));
    }
    refuse_what_is_not_ours(partial)?;
    let conn = connect(partial, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let header = Header::read(&conn)?;
    if let Some(problem) = problems(&conn).first() {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!("{} is damaged, and was not restored: {problem}", partial.display()),
        ));
    }
    conn.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(fault)?;
    log_epoch::renew(&conn)?;
    conn.close().map_err(|(_, error)| fault(error))?;
    Ok(header)
}

/// Gives the copy the store's name, and the former file another one.
fn swap(partial: &Path, store: &Path, there: Option<&File>) -> Result<Option<PathBuf>, Error> {
    let former = keep_former(store, there)?;
    let keep = |end: &str| {
        let (from, to) = (beside(store, end), beside(&former, end));
        match std::fs::rename(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Io::NotFound => Ok(false),
            Err(error) => Err(file_fault(&from, &error)),
        }
    };
    // A journal would be rolled back into any file of that name, so it is moved first. A log is identified by its epoch.
    let [log, journal] = BELONGINGS;
    let had_journal = keep(journal)?;
    std::fs::rename(partial, store).map_err(|error| file_fault(store, &error))?;
    let had_log = keep(log)?;
    match std::fs::remove_file(beside(store, INDEX)) {
        Ok(()) => {}
        Err(error) if error.kind() == Io::NotFound => {}
        Err(error) => return Err(file_fault(&beside(store, INDEX), &error)),
    }
    sync_folder(store)?;
    Ok((there.is_some() || had_log || had_journal).then_some(former))
}

/// Gives the existing file a second name that is not in use yet.
fn keep_former(store: &Path, there: Option<&File>) -> Result<PathBuf, Error> {
    for number in 1..=MAX_FORMER {
        let end = if number == 1 { ".former".to_owned() } else { format!(".former-{number}") };
        let former = beside(store, &end);
        let taken = ["", "-wal", "-journal"].iter().try_fold(false, |taken, end| {
            let path = beside(&former, end);
            match std::fs::symlink_metadata(&path) {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == Io::NotFound => Ok(taken),
                Err(error) => Err(file_fault(&path, &error)),
            }
        })?;
        if taken {
            continue;
        }
        if there.is_none() {
            return Ok(former);
        }
        match std::fs::hard_link(store, &former) {
            Ok(()) => return Ok(former),
            Err(error) if error.kind() == Io::AlreadyExists => {}
            Err(error) => return Err(file_fault(&former, &error)),
        }
    }
    Err(Error::invalid(format!(
        "{}.former and {MAX_FORMER} more are there; remove those that are not needed",
        store.display()
    )))
}
