//! Task folders: where the children of a pool work. The folder of a task is opened once, and the open descriptor is what counts from
//! then on: for the sandbox, as working directory, and for the files that the task leaves.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ostler_config::StoreMark;
use ostler_core::{ErrorClass, EventBody, Failure};
use ostler_exec::{EventSender, Work};
use rustix::fs::{Mode, fstat, mkdirat, stat};
use rustix::io::Errno;

use crate::links;
use crate::sandbox::SandboxInstance;
use crate::supervisor::Supervisor;
use crate::worktrees::{self, RecordLock, Worktrees};

/// Where the children of a pool work, unless a task was submitted with a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// The working directory; defaults to the node's.
    pub start: Option<PathBuf>,
    /// The parent of the tasks' folders, each named after its task. A folder is created for the first attempt, later ones
    /// find its contents, and it is never removed. It belongs to the pool alone.
    pub each: Option<PathBuf>,
    /// Each of them is a git worktree. It is removed after its task, if it is clean.
    pub worktrees: Option<Worktrees>,
    /// The store that the tasks are in.
    pub mark: Option<StoreMark>,
    /// Paths that sandboxed children may change, those of other pools too. Links in them are not followed for any task.
    pub guarded: Vec<PathBuf>,
}

impl Folders {
    /// The working directory of a child whose task has no folder, as text.
    #[must_use]
    pub fn start(&self) -> Option<String> {
        self.start.as_deref().map(|path| path.to_string_lossy().into_owned())
    }
}

/// The folder of one task.
#[derive(Clone, Debug)]
pub struct TaskFolder {
    /// The path given to the task.
    pub path: String,
    /// The folder itself, wherever the path leads later.
    pub opened: Arc<OwnedFd>,
    /// Keeps the worktree from being removed.
    _lock: Option<Arc<RecordLock>>,
}

impl TaskFolder {
    pub(crate) const fn new(path: String, opened: Arc<OwnedFd>) -> Self {
        Self { path, opened, _lock: None }
    }
}

/// Which links are followed in the path of a folder that a task was submitted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Those that no sandboxed child can have made.
    Trusted,
    /// None: the child gets the right to change the target, and earlier ones may have had a part of the path.
    None,
}

impl Links {
    /// For a pool with this sandbox, if any.
    pub(crate) const fn of(sandbox: Option<&SandboxInstance>) -> Self {
        match sandbox {
            Some(_) => Self::None,
            None => Self::Trusted,
        }
    }
}

/// Opens the folders of the tasks of one pool.
#[derive(Debug)]
pub struct TaskFolders {
    each: Option<PathBuf>,
    worktrees: Option<Worktrees>,
    mark: Option<StoreMark>,
    guarded: Vec<PathBuf>,
    links: Links,
    /// The parent of the tasks' folders, opened on first use.
    root: Mutex<Option<Arc<OwnedFd>>>,
}

impl TaskFolders {
    #[must_use]
    pub fn new(folders: &Folders, links: Links) -> Self {
        let Folders { start: _, each, worktrees, mark, guarded } = folders.clone();
        Self { each, worktrees, mark, guarded, links, root: Mutex::default() }
    }

    /// Returns the task's folder, if it has one. Creates it where needed: a worktree is made by git, as a child of this supervisor.
    ///
    /// # Errors
    /// When there is none, and the task cannot run without it.
    pub async fn open(
        &self,
        work: &Work,
        supervisor: &Supervisor,
        events: &EventSender,
    ) -> Result<Option<TaskFolder>, Failure> {
        let (Some(worktrees), Some(each), None) = (&self.worktrees, &self.each, &work.folder) else {
            return self.own(work);
        };
        let path = each.join(work.task.to_string());
        let opened = worktrees::open(worktrees, &path, work.task, self.mark.as_ref(), supervisor).await?;
        if let Some(commit) = opened.made_at {
            let text = format!("works in the new worktree {} at {commit}", path.display());
            // If the attempt is over, nothing more is recorded of it.
            let _ = events.send(EventBody::Status { text }).await;
        }
        let folder = self.own(work)?;
        Ok(folder.map(|folder| TaskFolder { _lock: Some(Arc::new(opened.lock)), ..folder }))
    }

    /// Returns the task's folder, if it has one. Creates it where needed.
    ///
    /// # Errors
    /// When there is none, and the task cannot run without it.
    pub fn own(&self, work: &Work) -> Result<Option<TaskFolder>, Failure> {
        if let Some(path) = &work.folder {
            let opened = self.given(Path::new(path))?;
            return Ok(Some(TaskFolder::new(path.clone(), opened)));
        }
        let Some((root, each)) = self.root()? else { return Ok(None) };
        let name = work.task.to_string();
        let folder = each.join(&name);
        let refused = |class, reason: String| {
            Failure::new(class, format!("there is no folder \"{}\" for the task: {reason}", folder.display()))
        };
        match mkdirat(&root, &name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(refused(ErrorClass::Transient, io::Error::from(error).to_string())),
        }
        let opened = links::folder_in(&root, &name).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOTDIR | Errno::LOOP) => refused(
                ErrorClass::Permanent,
                "something else is in its place, such as a symbolic link, which is not followed".to_owned(),
            ),
            Some(_) | None => refused(ErrorClass::Transient, error.to_string()),
        })?;
        let path = folder.to_str().map(ToOwned::to_owned);
        let path = path.ok_or_else(|| refused(ErrorClass::Permanent, "its name is not UTF-8".to_owned()))?;
        Ok(Some(TaskFolder::new(path, Arc::new(opened))))
    }

    /// Returns the parent of the tasks' folders, if there is one. Creates it where needed.
    pub(crate) fn root(&self) -> Result<Option<(Arc<OwnedFd>, &Path)>, Failure> {
        let Some(each) = &self.each else { return Ok(None) };
        let refused = |reason: &dyn std::fmt::Display| {
            let message = format!("there is no folder \"{}\" for the tasks: {reason}", each.display());
            Failure::new(ErrorClass::Transient, message)
        };
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match root.take().filter(|root| is_there(root)) {
            Some(opened) => opened,
            None => {
                std::fs::create_dir_all(each).map_err(|error| refused(&error))?;
                Arc::new(links::folder(each).map_err(|error| refused(&error))?)
            }
        };
        *root = Some(Arc::clone(&opened));
        if is_at(&opened, each) {
            Ok(Some((opened, each)))
        } else {
            Err(refused(&"it was moved or replaced while the node ran; restart the node"))
        }
    }

    /// Opens a folder that a task was submitted with.
    fn given(&self, path: &Path) -> Result<Arc<OwnedFd>, Failure> {
        let refused = |class, reason: &dyn std::fmt::Display| {
            Failure::new(class, format!("the folder \"{}\" cannot be used: {reason}", path.display()))
        };
        let opened = match self.links {
            Links::None => links::folder_without_links(path),
            Links::Trusted if self.guarded.is_empty() => links::folder(path),
            Links::Trusted => match links::resolve(path, &self.guarded) {
                Ok(resolved) => links::folder_without_links(&resolved),
                Err(links::Unresolved::System(error)) => Err(error),
                Err(link @ links::Unresolved::Link(_)) => return Err(refused(ErrorClass::Permanent, &link)),
            },
        };
        let opened = opened.map_err(|error| match (Errno::from_io_error(&error), self.links) {
            (Some(Errno::LOOP), Links::None) => refused(
                ErrorClass::Permanent,
                &"its path contains a symbolic link, which is not followed for a sandboxed task; submit it with its real path",
            ),
            (_, _) => refused(crate::command::verdict::class(&error), &error),
        })?;
        Ok(Arc::new(opened))
    }
}

/// Whether an open folder has not been removed.
fn is_there(folder: &OwnedFd) -> bool {
    fstat(folder.as_fd()).is_ok_and(|found| found.st_nlink > 0)
}

/// Whether a path leads to an open folder.
fn is_at(folder: &OwnedFd, path: &Path) -> bool {
    let same = |one: &rustix::fs::Stat, other: &rustix::fs::Stat| {
        (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
    };
    fstat(folder.as_fd()).is_ok_and(|one| stat(path).is_ok_and(|other| same(&one, &other)))
}
