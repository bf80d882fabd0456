//! Opening a store's file. A refused file is left as it is, byte for byte.

use std::fs::{Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_sql::views::{self, Database};
use ostler_store::{Error, ErrorKind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::Durability;
use crate::fault::{fault, file_fault};
use crate::lock_folder::{self, Owner, folder_of};
use crate::log_epoch::{self, Epoch, Header};
use crate::schema::{APPLICATION_ID, MIGRATIONS, VERSION};
use crate::turnstile::Turnstile;

/// Older versions can corrupt a file that two connections write and checkpoint at once.
const OLDEST_SQLITE: i32 = 3_051_003;
/// How long a writer waits while a foreign process has the file locked.
const MAX_BUSY: Duration = Duration::from_secs(600);
/// The size of a connection's prepared statement cache.
const STATEMENTS: usize = 128;
/// Pages in the write-ahead log that trigger a checkpoint.
const CHECKPOINT_PAGES: i64 = 4_000;
/// The size that the write-ahead log's file is truncated to after a checkpoint.
const LOG_BYTES: i64 = 64 << 20;
/// The writer's page cache, in KiB at most.
const CACHE_KIB: i64 = 16 << 10;
/// File systems with unreliable locks and syncs: NFS, SMB and CIFS.
const REMOTE_FILE_SYSTEMS: [u64; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> Result<Self, Error> {
        let file = std::fs::metadata(path).map_err(|error| file_fault(path, &error))?;
        Ok(Self::named(&file))
    }

    fn named(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    /// Checks that the path still leads to this file. Only a successful `stat` proves that it does not: a path that
    /// cannot be inspected just now is [`Unavailable`](ErrorKind::Unavailable), which may be transient.
    pub(crate) fn check(self, path: &Path) -> Result<(), Error> {
        let replaced = || {
            let sentence = format!(
                "{} was removed or replaced while it was open; restart to use what is there now",
                path.display()
            );
            Err(Error::new(ErrorKind::Replaced, sentence))
        };
        match std::fs::metadata(path) {
            Ok(file) if Self::named(&file) == self => Ok(()),
            Ok(_) => replaced(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => replaced(),
            Err(error) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("{} cannot be examined: {error}", path.display()),
            )),
        }
    }
}

/// The files that an open store needs at its path: the database, complete, and its log. Clones refer to the same files.
#[derive(Clone)]
pub(crate) struct Files {
    path: PathBuf,
    file: FileId,
    /// SQLite removes the log when the last connection is closed, and not before.
    log: FileId,
}

impl Files {
    fn of(path: &Path) -> Result<Self, Error> {
        let (file, log) = (FileId::of(path)?, FileId::of(&beside(path, "-wal"))?);
        Ok(Self { path: path.to_owned(), file, log })
    }

    /// Checks that the files are still there.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.file.check(&self.path)?;
        self.log.check(&beside(&self.path, "-wal"))?;
        if is_empty(&self.path)? {
            let sentence = format!(
                "{} was truncated to nothing while it was open; restore it from a backup",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Damaged, sentence));
        }
        Ok(())
    }

    /// Finds the cause of an error: SQLite reports a missing or replaced file as a disk error.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Unavailable { self.check().err().unwrap_or(error) } else { error }
    }
}

/// An open file with its lock folder.
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) owner: Option<Owner>,
    pub(crate) files: Files,
    pub(crate) turnstile: Turnstile,
    pub(crate) writer: Connection,
    pub(crate) readers: Vec<Connection>,
}

/// Opens the store at `path`. Creates it if there is none; migrates it if it is older than this version.
pub(crate) fn open(path: &Path, durability: Durability, readers: usize) -> Result<OpenFile, Error> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(Error::new(ErrorKind::Internal, "this program was built with an SQLite that is too old"));
    }
    let path = resolve(path)?;
    open_at(&path, durability, readers).map_err(|error| named(&path, error))
}

/// Returns the canonical name of the file. Processes that come through a symlink must find the same locks and the same
/// nodes.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path).map_err(|error| file_fault(path, &error))?;
    let missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), _, _) => Ok(path),
        (Err(error), Some(parent), Some(name))
            if missing(&error) && std::fs::symlink_metadata(&path).is_err() =>
        {
            let parent = parent.canonicalize().map_err(|error| file_fault(parent, &error))?;
            Ok(parent.join(name))
        }
        // A dangling symlink, or another process has just created it.
        (Err(error), _, _) if missing(&error) => {
            path.canonicalize().map_err(|error| file_fault(&path, &error))
        }
        (Err(error), _, _) => Err(file_fault(&path, &error)),
    }
}

/// Adds the path to the error message.
pub(crate) fn named(path: &Path, error: Error) -> Error {
    let (name, sentence) = (path.display().to_string(), error.to_string());
    if sentence.contains(&name) { error } else { Error::new(error.kind(), format!("{name}: {sentence}")) }
}

/// How long opening a store waits for its turn to inspect or create the file.
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(10);

fn open_at(path: &Path, durability: Durability, readers: usize) -> Result<OpenFile, Error> {
    refuse_unless_ours(path)?;
    let (folder, owner) = (folder_of(path), Owner::of_store(path)?);
    lock_folder::make(&folder, owner)?;
    let turnstile = Turnstile::open(&folder, owner)?;
    let turn = turnstile.enter_within(OPEN_PATIENCE)?;
    make_file(path)?;
    let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrate(path, &mut writer)?;
    tune_writer(&writer, durability)?;
    drop(turn);
    let reader = |_| {
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.pragma_update(None, "query_only", true).map_err(fault)?;
        Ok(conn)
    };
    let readers = (0..readers).map(reader).collect::<Result<_, Error>>()?;
    let owner = Owner::of_store(path)?;
    // A read opens the log, so it exists from here on.
    number(&writer, "user_version")?;
    let files = Files::of(path)?;
    Ok(OpenFile { path: path.to_owned(), folder, owner, files, turnstile, writer, readers })
}

/// Inspects the file, and a suspicious one a second time while holding the turn. Another process may be creating it just
/// now, or may have started a new log between two reads; both happen only while holding the turn.
pub(crate) fn refuse_unless_ours(path: &Path) -> Result<(), Error> {
    let folder = folder_of(path);
    match refuse_what_is_not_ours(path) {
        Err(error) if matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Damaged) && folder.is_dir() => {
            let owner = Owner::of_store(path)?;
            lock_folder::check(&folder, owner)?;
            let turnstile = Turnstile::open(&folder, owner).map_err(|_| error)?;
            let _turn = turnstile.enter_within(OPEN_PATIENCE)?;
            refuse_what_is_not_ours(path)
        }
        looked => looked,
    }
}

/// Inspects the file without opening it for writing.
pub(crate) fn refuse_what_is_not_ours(path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    refuse_remote(parent)?;
    let file = match std::fs::metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return refuse_stray_log(path),
        Err(error) => return Err(file_fault(path, &error)),
    };
    if !file.is_file() {
        let what = if file.is_dir() { "a folder" } else { "not a plain file" };
        return Err(Error::invalid(format!(
            "{} is {what}; a store is a file, such as ostler.db",
            path.display()
        )));
    }
    if file.permissions().mode() & 0o222 == 0 {
        // Applies to root as well, which the mode would not stop: the file was made read-only on purpose.
        let mode = file.permissions().mode() & 0o7777;
        return Err(Error::new(
            ErrorKind::ReadOnly,
            format!(
                "{0} is marked read-only (mode {mode:04o}): nothing can be written to this store; to change that: chmod u+w {0}",
                path.display()
            ),
        ));
    }
    if file.len() == 0 {
        return refuse_stray_log(path);
    }
    let conn = glance(path)?;
    let number = |pragma: &str| number(&conn, pragma);
    let foreign = || {
        Error::new(
            ErrorKind::Foreign,
            format!("{} is not an Ostler store, and was not changed", path.display()),
        )
    };
    let application = match number("application_id") {
        Err(error) if error.kind() == ErrorKind::Foreign => return Err(foreign()),
        read => read?,
    };
    if application != i64::from(APPLICATION_ID) {
        return Err(foreign());
    }
    let header = Header::read(&conn)?;
    refuse_newer(path, header.version)?;
    refuse_truncated(path, file.len(), &conn)?;
    refuse_wrong_log(path, header)
}

/// Opens the file alone. Any other way of reading a database, even read-only, creates files next to it or rolls back a
/// journal.
fn glance(path: &Path) -> Result<Connection, Error> {
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                name.push(char::from(*byte));
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let conn = connect(Path::new(&name), flags)?;
    // Without this, a file with missing pages could not even be identified.
    conn.pragma_update(None, "writable_schema", true).map_err(fault)?;
    Ok(conn)
}

pub(crate) fn number(conn: &Connection, pragma: &str) -> Result<i64, Error> {
    conn.pragma_query_value(None, pragma, |row| row.get(0)).map_err(fault)
}

fn refuse_newer(path: &Path, version: i64) -> Result<(), Error> {
    if version <= i64::from(VERSION) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::TooNew,
        format!(
            "{} was created by a newer Ostler (schema {version}, this one knows {VERSION}); upgrade first",
            path.display()
        ),
    ))
}

/// Refuses a log that belongs to another file, before it is checkpointed. A newer version number may be in the log only,
/// too.
fn refuse_wrong_log(path: &Path, file: Header) -> Result<(), Error> {
    let log = beside(path, "-wal");
    if is_empty(&log)? {
        return Ok(());
    }
    let read = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|conn| {
        // Leave the log as it is.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fault)?;
        Header::read(&conn)
    });
    let with_log = match read {
        // Rolling back a journal needs write access.
        Err(error) if error.kind() == ErrorKind::ReadOnly => return Ok(()),
        read => read?,
    };
    refuse_newer(path, with_log.version)?;
    if file.goes_with(with_log) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Damaged,
        format!(
            "{} is not the file that its log {} was written for: was a backup or another store copied over it? Nothing was changed. \
             To put a backup in place: ostler db restore BACKUP. To use the file as it is, without what only the log has: move the \
             log away",
            path.display(),
            log.display()
        ),
    ))
}

/// Whether the file is empty or missing.
pub(crate) fn is_empty(path: &Path) -> Result<bool, Error> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(file.len() == 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(file_fault(path, &error)),
    }
}

/// With an empty log, and no journal to roll back, the file itself must have all its pages.
fn refuse_truncated(path: &Path, bytes: u64, conn: &Connection) -> Result<(), Error> {
    if !is_empty(&beside(path, "-wal"))? || !is_empty(&beside(path, "-journal"))? {
        return Ok(());
    }
    // In strict mode, SQLite itself reports missing pages; a partial last page is checked here.
    conn.pragma_update(None, "writable_schema", false).map_err(fault)?;
    let whole = match (number(conn, "page_count"), number(conn, "page_size")) {
        (Ok(pages), Ok(size)) => i64::try_from(bytes).unwrap_or(i64::MAX) >= pages * size,
        (Err(error), _) | (_, Err(error)) if error.kind() != ErrorKind::Damaged => return Err(error),
        (Err(_), _) | (_, Err(_)) => false,
    };
    if whole {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Damaged,
        format!("{} is truncated: it has only {bytes} bytes; restore it from a backup", path.display()),
    ))
}

/// A log without its file contains acknowledged writes: creating a new file would discard them.
fn refuse_stray_log(path: &Path) -> Result<(), Error> {
    if is_empty(&beside(path, "-wal"))? {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Damaged,
        format!("{} is gone, but its log {}-wal is there; put the file back", path.display(), path.display()),
    ))
}

pub(crate) fn refuse_remote(folder: &Path) -> Result<(), Error> {
    let system = rustix::fs::statfs(folder).map_err(|error| file_fault(folder, &error.into()))?;
    if REMOTE_FILE_SYSTEMS.contains(&(system.f_type as u64 & 0xffff_ffff)) {
        return Err(Error::invalid(format!(
            "{} is on a network file system, where locks are not safe; use a local disk, or PostgreSQL",
            folder.display()
        )));
    }
    Ok(())
}

pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Creates the file readable by its owner only, before SQLite creates it with another mode.
fn make_file(path: &Path) -> Result<(), Error> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(file_fault(path, &error)),
    }
}

pub(crate) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fault)?;
    conn.busy_timeout(MAX_BUSY).map_err(fault)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise SQLite re-plans a statement whenever a parameter is bound that the plan may depend on, LIMIT among them:
    // a third of the writer's time.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fault)?;
    conn.pragma_update(None, "trusted_schema", false).map_err(fault)?;
    Ok(conn)
}

/// Migrates the tables to this version. The application id is written in the same transaction as the first tables: a
/// crash leaves an empty file or a complete store.
fn migrate(path: &Path, conn: &mut Connection) -> Result<(), Error> {
    let Header { version, epoch, .. } = Header::read(conn)?;
    refuse_newer(path, version)?;
    let done = usize::try_from(version).unwrap_or(0);
    if done < MIGRATIONS.len() {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        for step in &MIGRATIONS[done..] {
            tx.execute_batch(step).map_err(fault)?;
        }
        tx.execute_batch(&views::create(Database::Sqlite)).map_err(fault)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
        let epoch = match done {
            0 => Epoch::random(&tx).map_err(fault)?,
            _ => epoch,
        };
        log_epoch::write(&tx, i64::from(VERSION), epoch).map_err(fault)?;
        tx.commit().map_err(fault)?;
    }
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(fault)?;
    if mode != "wal" {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!("the store's file system allows no write-ahead log ({mode})"),
        ));
    }
    Ok(())
}

fn tune_writer(conn: &Connection, durability: Durability) -> Result<(), Error> {
    let synchronous = match durability {
        Durability::Full => "full",
        Durability::Relaxed => "normal",
    };
    for (pragma, value) in [
        ("wal_autocheckpoint", CHECKPOINT_PAGES),
        ("journal_size_limit", LOG_BYTES),
        ("cache_size", -CACHE_KIB),
    ] {
        conn.pragma_update(None, pragma, value).map_err(fault)?;
    }
    conn.pragma_update(None, "synchronous", synchronous).map_err(fault)
}
