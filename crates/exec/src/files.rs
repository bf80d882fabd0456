//! Output files of an attempt: how one is recorded, with size and SHA-256.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_core::EventBody;
use sha2::{Digest as _, Sha256};

use crate::error::TaskError;

/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Reads a file of a task's folder to its end, unless it is stopped. `path` is its name within the folder.
///
/// # Errors
/// When it is not a regular file, or cannot be read.
pub fn file_event(mut file: File, path: &Path, stopped: &AtomicBool) -> io::Result<EventBody> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let (mut digest, mut size) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other("there is no time left to read it"));
        }
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        digest.update(&chunk[..read]);
        size += read as u64;
    }
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(EventBody::File { path: path.to_string_lossy().into_owned(), size, sha256 })
}

/// The folder in which a handler's files are.
pub(crate) fn own_folder(folder: Option<&str>, path: &Path) -> Result<PathBuf, TaskError> {
    let none = || {
        let message = format!("the file {path:?} is not recorded: the task has no folder");
        TaskError::permanent(message).hint("submit the task with a folder")
    };
    folder.map(PathBuf::from).ok_or_else(none)
}

/// Reads a file that a handler left in its folder.
pub(crate) fn read(folder: &Path, path: &Path, stopped: &AtomicBool) -> Result<EventBody, TaskError> {
    let unread = |error: io::Error| {
        let error = TaskError::from(error).into_failure();
        TaskError::of(error.class, format!("the file {path:?} is not recorded: {}", error.message))
    };
    let folder = folder.canonicalize().map_err(unread)?;
    let whole = folder.join(path).canonicalize().map_err(unread)?;
    // After links are resolved, so that none leads out of the folder.
    let Ok(name) = whole.strip_prefix(&folder) else {
        return Err(TaskError::permanent(format!("the file {path:?} is not in the task's folder")));
    };
    file_event(File::open(&whole).map_err(unread)?, name, stopped).map_err(unread)
}

/// Writes a new file, or replaces one, in the folder of a handler.
pub(crate) fn write(folder: &Path, name: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    let stays = |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    if !name.components().all(stays) {
        return Err(TaskError::permanent(format!("the file {name:?} is not in the task's folder")));
    }
    let path = folder.join(name);
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    written.and_then(|()| std::fs::write(&path, bytes)).map_err(TaskError::from)
}
