//! Classification of SQLite errors into store error kinds.

use ostler_store::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// Converts an error into a message for people and a kind for programs.
#[allow(clippy::needless_pass_by_value, reason = "used as `map_err(fault)`")]
pub(crate) fn fault(error: rusqlite::Error) -> Error {
    if is_foreign_row(&error) {
        let message = format!(
            "a row of the store has a value that Ostler never writes ({error}); was it edited by hand?"
        );
        return Error::new(ErrorKind::BadRow, message);
    }
    if let Some(most) = file_size_limit(&error) {
        let message = format!(
            "the store's file cannot grow ({error}): this process may write files of at most {most} bytes (ulimit -f); nothing is \
             lost, and work continues when the limit is raised"
        );
        return Error::new(ErrorKind::Full, message);
    }
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            ErrorKind::Busy
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => ErrorKind::ReadOnly,
        Some(ErrorCode::NotADatabase) => ErrorKind::Foreign,
        Some(ErrorCode::DatabaseCorrupt) => ErrorKind::Damaged,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted,
        ) => ErrorKind::Unavailable,
        // A bug in one of our own statements.
        _ => ErrorKind::Internal,
    };
    Error::new(kind, sentence(kind, &error))
}

/// The file size limit (`RLIMIT_FSIZE`), if one is set and a write has failed. SQLite does not distinguish the two causes
/// of a failed write; with such a limit it is treated like a full disk.
fn file_size_limit(error: &rusqlite::Error) -> Option<u64> {
    use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE};
    let rusqlite::Error::SqliteFailure(code, _) = error else { return None };
    let writes = [SQLITE_IOERR_WRITE, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_SHMSIZE];
    if !writes.contains(&code.extended_code) {
        return None;
    }
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Maps a row that cannot be decoded to `None`, for code that processes many rows: a row edited by hand must not block
/// the others.
pub(crate) fn readable<T>(read: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_foreign_row(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the row was read but could not be decoded.
pub(crate) fn is_foreign_row(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
    )
}

fn sentence(kind: ErrorKind, error: &rusqlite::Error) -> String {
    match kind {
        ErrorKind::Full => {
            "the disk that holds the store is full; work continues when there is space again".into()
        }
        ErrorKind::Busy => {
            "another program has held the store locked for too long (is a database tool open on it?)".into()
        }
        ErrorKind::ReadOnly => {
            "the store is not writable: check the owner and mode of its file and folder".into()
        }
        ErrorKind::Foreign => "the file is not an Ostler store, and was not changed".into(),
        ErrorKind::Damaged => {
            format!("the store's file is damaged ({error}); restore it from a backup (ostler db restore)")
        }
        ErrorKind::Unavailable => format!("the store's file cannot be read or written: {error}"),
        ErrorKind::Invalid
        | ErrorKind::BadRow
        | ErrorKind::TooNew
        | ErrorKind::Replaced
        | ErrorKind::Moving
        | ErrorKind::Moved
        | ErrorKind::Closed
        | ErrorKind::Internal => format!("a bug in the SQLite store: {error}"),
    }
}

/// Classifies an I/O error on one of the files next to the store.
pub(crate) fn file_fault(what: &std::path::Path, error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{
        FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    let is_one_of = |kinds: &[std::io::ErrorKind]| kinds.contains(&error.kind());
    let kind = if is_one_of(&[StorageFull, QuotaExceeded, FileTooLarge]) {
        ErrorKind::Full
    } else if is_one_of(&[PermissionDenied, ReadOnlyFilesystem]) {
        ErrorKind::ReadOnly
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, format!("{}: {error}", what.display()))
}
