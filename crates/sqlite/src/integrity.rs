//! Integrity of a store's file, for operators: check, schema version, backup.
//!
//! All of it works while nodes are running, and never creates a store.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ostler_sql::integrity::MAX_PROBLEMS;
pub use ostler_sql::integrity::{Health, Versions};
use ostler_sql::{poll_now, wrong_counts};
use ostler_store::{Error, ErrorKind};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::fault::{fault, file_fault};
pub use crate::lock_folder::UnopenableLock;
use crate::lock_folder::{folder_of, unopenable};
use crate::log_epoch::{self, Header};
use crate::open::{connect, named, refuse_unless_ours, resolve};
pub use crate::restore::{Restored, restore};
use crate::schema::VERSION;
use crate::shared_tx::ReadView;

/// Returns the schema version of the store. Writes nothing.
///
/// # Errors
/// If the file is not a store, or is newer than this program.
pub fn versions(path: impl AsRef<Path>) -> Result<Versions, Error> {
    let newest = i64::from(VERSION);
    let path = resolve(path.as_ref())?;
    let found = present(&path)?.then(|| Ok(Header::read(&look(&path)?)?.version)).transpose()?;
    Ok(Versions { found, newest })
}

/// Checks the whole file: pages, indexes, counts, and orphaned rows.
///
/// # Errors
/// If there is no store, or it cannot be read at all.
pub fn check(path: impl AsRef<Path>) -> Result<Health, Error> {
    let path = resolve(path.as_ref())?;
    require(&path)?;
    let conn = look(&path)?;
    let Header { version, .. } = Header::read(&conn)?;
    Ok(Health { version, problems: problems(&conn) })
}

/// Returns the problems of a store, at most 100.
pub(crate) fn problems(conn: &Connection) -> Vec<String> {
    let mut problems = Vec::new();
    for part in [pages, foreign_keys, counts, orphans] {
        match part(conn) {
            Ok(found) => problems.extend(found),
            // An unreadable part is a finding; the check continues.
            Err(error) => problems.push(fault(error).to_string()),
        }
    }
    problems.truncate(MAX_PROBLEMS);
    problems
}

/// Copies a consistent snapshot of the store into a new file. Returns the size of the copy in bytes.
///
/// The copy gets its final name once it is complete and on disk. An existing file is never overwritten.
///
/// # Errors
/// If there is no store, or the target exists already or cannot be written.
pub fn backup(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, Error> {
    let (from, to) = (resolve(from.as_ref())?, resolve(to.as_ref())?);
    require(&from)?;
    match std::fs::symlink_metadata(&to) {
        Ok(_) => return Err(exists(&to)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(file_fault(&to, &error)),
    }
    let partial = partial(&to);
    let copied = copy(&from, &partial).and_then(|bytes| {
        publish(&partial, &to)?;
        Ok(bytes)
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    copied
}

/// Returns the nodes' lock files that this user cannot open, usually those of another user's nodes.
///
/// # Errors
/// If the store's lock folder cannot be read.
pub fn unopenable_locks(path: impl AsRef<Path>) -> Result<Vec<UnopenableLock>, Error> {
    unopenable(&folder_of(&resolve(path.as_ref())?))
}

/// Whether there is a non-empty file; if so, it must be a store.
fn present(path: &Path) -> Result<bool, Error> {
    refuse_unless_ours(path).map_err(|error| named(path, error))?;
    match std::fs::metadata(path) {
        // An empty file is a store that has not been created yet.
        Ok(file) => Ok(file.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(file_fault(path, &error)),
    }
}

pub(crate) fn require(path: &Path) -> Result<(), Error> {
    if present(path)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unavailable, format!("there is no store at {}", path.display())))
}

/// Opens a connection for reading only.
fn look(path: &Path) -> Result<Connection, Error> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|error| named(path, error))?;
    conn.pragma_update(None, "query_only", true).map_err(fault)?;
    Ok(conn)
}

// ---- the parts of a check -----------------------------------------------------------------------------

type FoundFile = rusqlite::Result<Vec<String>>;

fn pages(conn: &Connection) -> FoundFile {
    let mut statement = conn.prepare(&format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    let said: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(said.into_iter().filter(|line| line != "ok").collect())
}

fn foreign_keys(conn: &Connection) -> FoundFile {
    let mut statement = conn.prepare("PRAGMA foreign_key_check")?;
    let rows = statement.query_map([], |row| {
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        Ok(format!("a row of {table} belongs to a row of {parent} that does not exist"))
    })?;
    rows.take(MAX_PROBLEMS).collect()
}

fn counts(conn: &Connection) -> FoundFile {
    poll_now(ostler_sql::integrity::counts(&ReadView(conn), wrong_counts!("ostler.lane")))
}

fn orphans(conn: &Connection) -> FoundFile {
    poll_now(ostler_sql::integrity::orphans(&ReadView(conn)))
}

// ---- the parts of a backup ----------------------------------------------------------------------------

fn exists(to: &Path) -> Error {
    Error::invalid(format!("{} already exists, and was not changed; name another file", to.display()))
}

/// The path of the partial copy: next to its target, so that it can be renamed.
pub(crate) fn partial(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    name.into()
}

fn copy(from: &Path, partial: &Path) -> Result<u64, Error> {
    let failed = |error: std::io::Error| file_fault(partial, &error);
    // SQLite writes into an existing empty file, so the mode is ours: payloads must not be readable by other users.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial).map_err(failed)?;
    let conn = connect(from, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let target = partial.to_str().ok_or_else(|| {
        Error::invalid(format!("{}: the name of a backup must be UTF-8 text", partial.display()))
    })?;
    conn.execute("VACUUM INTO ?1", [target]).map_err(fault)?;
    // The copy is independent: no log of the original applies to it. A crash leaves no file under the final name.
    let copy = connect(partial, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    copy.pragma_update_and_check(None, "journal_mode", "memory", |_| Ok(())).map_err(fault)?;
    log_epoch::renew(&copy)?;
    copy.close().map_err(|(_, error)| fault(error))?;
    let file = File::open(partial).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(file.metadata().map_err(failed)?.len())
}

/// Gives the copy its name, unless another process has taken the name in the meantime.
fn publish(partial: &Path, to: &Path) -> Result<(), Error> {
    renameat_with(CWD, partial, CWD, to, RenameFlags::NOREPLACE).map_err(|error| {
        let taken = error == rustix::io::Errno::EXIST;
        if taken { exists(to) } else { file_fault(to, &error.into()) }
    })?;
    sync_folder(to)
}

/// Syncs the folder of a file, so that the names in it are durable.
pub(crate) fn sync_folder(file: &Path) -> Result<(), Error> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| file_fault(folder, &error))
}
