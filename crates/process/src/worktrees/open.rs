//! Makes the worktree of a task, or finds it as it was left. What an interrupted git has left behind is removed by the next try.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::StoreMark;
use ostler_core::{ErrorClass, Failure, TaskId};

use super::git::{COMMON_DIR, Git, GitError, common_dir};
use super::record::{MakingStage, Unlocked, WorktreeRecord};
use super::{RecordLock, Worktrees, is_folder};
use crate::supervisor::Supervisor;

/// How long git may take to check out a worktree. The time of the attempt ends it earlier.
const MAX_ADD: Duration = Duration::from_secs(30 * 60);

/// A worktree that a task may work in.
#[derive(Debug)]
pub(crate) struct OpenWorktree {
    pub(crate) lock: RecordLock,
    /// The commit that it was made at, if it is new.
    pub(crate) made_at: Option<String>,
}

/// Why there is none, as a sentence.
#[derive(Debug)]
pub(crate) struct NoWorktree(Failure);

impl From<NoWorktree> for Failure {
    fn from(none: NoWorktree) -> Self {
        none.0
    }
}

/// Opens the worktree of a task at this path.
pub(crate) async fn open(
    worktrees: &Worktrees,
    path: &Path,
    task: TaskId,
    mark: Option<&StoreMark>,
    supervisor: &Supervisor,
) -> Result<OpenWorktree, NoWorktree> {
    let lock = RecordLock::take(task).map_err(|unlocked| refused(path, unlocked))?;
    let known = lock.read().filter(|record| record.path == path);
    let store = mark.map(|mark| mark.0.clone());
    let unwritten = |error: io::Error| {
        let sentence = format!("the record of the worktree {} cannot be written: {error}", path.display());
        no(ErrorClass::Transient, sentence)
    };
    if let Some(found @ WorktreeRecord { common, stage: MakingStage::Made, .. }) = &known
        && is_folder(path)
        && registration(common, path).is_some()
    {
        if found.store != store {
            // Its task was moved to another store.
            lock.write(&WorktreeRecord { store, ..found.clone() }).map_err(unwritten)?;
        }
        return Ok(OpenWorktree { lock, made_at: None });
    }
    let git = Git::in_folder(&worktrees.repository).within(MAX_ADD);
    // All tasks of the pool would fail in the same way: the queue stops instead.
    let stopped = |error: &GitError| match error {
        GitError::Late(_) | GitError::System(_) => no(ErrorClass::Transient, worktrees.sentence(error)),
        GitError::Missing | GitError::NoCommit | GitError::Failed { .. } => {
            no(ErrorClass::QueueStop, worktrees.sentence(error))
        }
    };
    let common = git.supervised(supervisor, &COMMON_DIR).await;
    let common = common_dir(&common.map_err(|error| stopped(&error))?);
    let unfinished = |error: &io::Error| {
        let sentence = format!("what is left of the worktree {} cannot be removed: {error}", path.display());
        no(ErrorClass::Transient, sentence)
    };
    match &known {
        Some(WorktreeRecord { common, stage: MakingStage::Making, .. }) => {
            clear(common, path).map_err(|error| unfinished(&error))?;
        }
        // It was removed by hand.
        Some(WorktreeRecord { common, stage: MakingStage::Made, .. }) if path.symlink_metadata().is_err() => {
            clear(common, path).map_err(|error| unfinished(&error))?;
        }
        Some(WorktreeRecord { stage: MakingStage::Made, .. }) | None => {}
    }
    let making =
        WorktreeRecord { path: path.to_owned(), common: common.clone(), stage: MakingStage::Making, store };
    let made = WorktreeRecord { stage: MakingStage::Made, ..making.clone() };
    if path.symlink_metadata().is_ok() {
        // Its record was lost with the state folder.
        if is_folder(path) && registration(&common, path).is_some_and(|admin| !is_initializing(&admin)) {
            lock.write(&made).map_err(unwritten)?;
            return Ok(OpenWorktree { lock, made_at: None });
        }
        if !is_empty(path) {
            let sentence = format!(
                "there is no worktree {} for the task: something else is in its place, which is no worktree of {}",
                path.display(),
                worktrees.repository.display()
            );
            return Err(no(ErrorClass::Permanent, sentence));
        }
    }
    let commit = git.supervised_commit(supervisor, worktrees.base()).await;
    let commit = commit.map_err(|error| stopped(&error))?;
    lock.write(&making).map_err(unwritten)?;
    let text = path.to_str().ok_or_else(|| {
        no(ErrorClass::Permanent, format!("the path {} of the worktree is not UTF-8", path.display()))
    })?;
    if let Err(error) = git.supervised(supervisor, &["worktree", "add", "--detach", text, &commit]).await {
        // If this fails too, the record stays, and the next try repeats it.
        let half = match clear(&common, path) {
            Ok(()) => String::new(),
            Err(error) => format!("; what is left of it cannot be removed: {error}"),
        };
        let sentence = format!("the worktree {} cannot be made: {error}{half}", path.display());
        return Err(no(ErrorClass::Transient, sentence));
    }
    lock.write(&made).map_err(unwritten)?;
    Ok(OpenWorktree { lock, made_at: Some(commit) })
}

fn refused(path: &Path, unlocked: Unlocked) -> NoWorktree {
    let (class, why) = match unlocked {
        Unlocked::InUse => (ErrorClass::Transient, "another process uses it".to_owned()),
        Unlocked::NoFolder => (
            ErrorClass::QueueStop,
            "there is no folder for its record: set one of XDG_STATE_HOME and HOME".to_owned(),
        ),
        Unlocked::System(folder, error) => (ErrorClass::Transient, format!("{}: {error}", folder.display())),
    };
    no(class, format!("the worktree {} cannot be used: {why}", path.display()))
}

fn no(class: ErrorClass, sentence: String) -> NoWorktree {
    NoWorktree(Failure::new(class, sentence))
}

/// The folder in which a repository keeps what it knows of the worktree at this path.
pub(super) fn registration(common: &Path, path: &Path) -> Option<PathBuf> {
    let wanted = real(path)?;
    registrations(common).find(|admin| {
        let found = std::fs::read_to_string(admin.join("gitdir")).ok();
        // The path of the worktree's `.git`, absolute or relative to this folder.
        let found = found.and_then(|link| real(admin.join(link.trim_end()).parent()?));
        found.as_ref() == Some(&wanted)
    })
}

fn registrations(common: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(common.join("worktrees")).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| entry.path())
}

/// Whether git has not finished making it.
fn is_initializing(admin: &Path) -> bool {
    std::fs::read_to_string(admin.join("locked")).is_ok_and(|why| why.trim() == "initializing")
}

/// A path whose parent has no links. The last part need not exist.
fn real(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

fn is_empty(path: &Path) -> bool {
    is_folder(path) && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes a worktree in which no work was done, and its registration, if git came that far.
pub(super) fn clear(common: &Path, path: &Path) -> io::Result<()> {
    let admin = registration(common, path);
    if is_folder(path) {
        std::fs::remove_dir_all(path)?;
    }
    if let Some(admin) = admin {
        std::fs::remove_dir_all(admin)?;
    }
    // Git names the registration after the folder, before it writes down where that is.
    let named = path.file_name().map(|name| common.join("worktrees").join(name));
    if let Some(named) = named.filter(|admin| is_folder(admin) && !admin.join("gitdir").exists()) {
        std::fs::remove_dir_all(named)?;
    }
    Ok(())
}
