//! Records of worktrees: one for each task, in the user's state folder, and a lock that an attempt holds while it works in one.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ostler_config::StoreMark;
use ostler_core::TaskId;
use serde::{Deserialize, Serialize};

use super::records;

const RECORD: &str = "json";
const LOCK: &str = "lock";
/// Records that are looked at in one go.
const MAX_RECORDS: usize = 100_000;

/// What is known of the worktree of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorktreeRecord {
    pub(super) path: PathBuf,
    /// The folder of git's own that all worktrees of the repository share.
    pub(super) common: PathBuf,
    pub(super) stage: MakingStage,
    /// The mark of the store that the task is in.
    pub(super) store: Option<String>,
}

/// How far a worktree has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MakingStage {
    /// Git was asked to make it. What is there may be removed: no work was done in it.
    Making,
    Made,
}

/// The right to use the worktree of a task. The lock is free when the last copy is dropped.
#[derive(Debug)]
pub(crate) struct RecordLock {
    folder: PathBuf,
    task: TaskId,
    _lock: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(super) enum Unlocked {
    InUse,
    /// No state folder is known.
    NoFolder,
    System(PathBuf, io::Error),
}

impl RecordLock {
    pub(super) fn take(task: TaskId) -> Result<Self, Unlocked> {
        let folder = records().ok_or(Unlocked::NoFolder)?;
        Self::take_in(folder, task)
    }

    pub(super) fn take_in(folder: PathBuf, task: TaskId) -> Result<Self, Unlocked> {
        let refused = |error| Unlocked::System(folder.clone(), error);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(refused)?;
        let lock = file_of(&folder, task, LOCK);
        let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(lock);
        let lock = lock.map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Unlocked::InUse),
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        Ok(Self { folder, task, _lock: lock })
    }

    /// The record; `None` if there is none that can be read.
    pub(super) fn read(&self) -> Option<WorktreeRecord> {
        read(&file_of(&self.folder, self.task, RECORD))
    }

    /// Writes the record, so that it is complete or as before.
    pub(super) fn write(&self, record: &WorktreeRecord) -> io::Result<()> {
        let json = serde_json::to_vec(record)?;
        let next = file_of(&self.folder, self.task, "next");
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&next)?;
        file.write_all(&json).and_then(|()| file.sync_all())?;
        std::fs::rename(next, file_of(&self.folder, self.task, RECORD))
    }

    /// Forgets the worktree: it is gone.
    pub(super) fn forget(self) -> io::Result<()> {
        std::fs::remove_file(file_of(&self.folder, self.task, RECORD))?;
        // The lock goes last: without a record it means nothing.
        std::fs::remove_file(file_of(&self.folder, self.task, LOCK))
    }
}

/// The records of a store, with their tasks.
pub(super) fn of_store(folder: &Path, mark: &StoreMark) -> Vec<(TaskId, WorktreeRecord)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let files =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == RECORD));
    let read = |path: PathBuf| Some((path.file_stem()?.to_str()?.parse().ok()?, read(&path)?));
    let ours = |(_, record): &(TaskId, WorktreeRecord)| record.store.as_ref() == Some(&mark.0);
    files.take(MAX_RECORDS).filter_map(read).filter(ours).collect()
}

fn read(path: &Path) -> Option<WorktreeRecord> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn file_of(folder: &Path, task: TaskId, end: &str) -> PathBuf {
    folder.join(format!("{task}.{end}"))
}
