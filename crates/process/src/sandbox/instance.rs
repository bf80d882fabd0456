//! Sandbox instances of one pool: each child gets a private temporary folder, which is removed when the child is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_core::{ErrorClass, Failure};

use super::confinement::Confinement;
use super::policy::{Sandbox, SandboxError};
use super::protected::real;
use crate::command::Environment;
use crate::folders::Folders;
use crate::links::{Unresolved, path_of, resolve};
use crate::supervisor::Supervisor;

/// The prefix of the temporary folders of pools.
const PREFIX: &str = "ostler-";
/// The variable that names the folder for temporary files.
const TEMPORARY: &str = "TMPDIR";
/// The search path for programs without `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Creates sandboxes for the children of one pool.
#[derive(Debug)]
pub(crate) struct SandboxInstance {
    sandbox: Sandbox,
    /// The files named in the command.
    named: Vec<PathBuf>,
    /// The working directory of children whose task has no folder.
    start: Option<PathBuf>,
    /// Paths that sandboxed children may change: links in them are not followed.
    guarded: Vec<PathBuf>,
    supervisor: Supervisor,
    /// Created with the first child.
    temporary: OnceLock<tempfile::TempDir>,
    made: AtomicU64,
}

/// A private folder, removed on drop.
#[derive(Debug)]
pub(crate) struct Private(PathBuf);

/// Why a child cannot be sandboxed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSandbox {
    #[error(transparent)]
    Exposed(#[from] SandboxError),
    #[error(transparent)]
    Link(#[from] Unresolved),
    #[error("there is no folder for its temporary files: {0}")]
    Temporary(#[from] io::Error),
}

impl NoSandbox {
    pub(crate) fn failure(&self) -> Failure {
        let class = match self {
            // The task's own folder is to blame, or a link where none may be.
            Self::Exposed(_) | Self::Link(Unresolved::Link(_)) => ErrorClass::Permanent,
            Self::Temporary(_) | Self::Link(Unresolved::System(_)) => ErrorClass::Transient,
        };
        Failure::new(class, format!("it cannot be put into its sandbox: {self}"))
    }
}

impl SandboxInstance {
    /// For children started with these arguments, in these folders. Arguments that depend on the task are not among them: the
    /// task must not decide what may be read.
    pub(crate) fn new(
        supervisor: Supervisor,
        sandbox: Sandbox,
        words: &[&str],
        environment: &Environment,
        folders: &Folders,
    ) -> Result<Self, SandboxError> {
        if let Some(fault) = sandbox.faults().into_iter().next() {
            return Err(fault);
        }
        let Folders { start, each, guarded, worktrees: _, mark: _ } = folders.clone();
        let named: Vec<PathBuf> = named(words, environment, start.as_deref());
        named.iter().try_for_each(|path| sandbox.keeps_hidden(path))?;
        let guarded: Vec<PathBuf> = guarded.into_iter().chain(each).chain(sandbox.write.clone()).collect();
        let (temporary, made) = (OnceLock::new(), AtomicU64::new(0));
        let instance = Self { sandbox, named, start, guarded, supervisor, temporary, made };
        instance
            .listed()
            .find_map(|path| instance.resolve(path).err())
            .map_or(Ok(()), |link| Err(SandboxError::Link(link.to_string())))?;
        Ok(instance)
    }

    /// The paths that children may access whatever the task, besides the system's.
    fn listed(&self) -> impl Iterator<Item = &Path> {
        let listed =
            self.sandbox.read.iter().chain(&self.sandbox.write).chain(&self.named).chain(&self.start);
        listed.map(PathBuf::as_path)
    }

    /// Resolves a path. A missing one needs no rule: it cannot be reached.
    fn resolve(&self, path: &Path) -> Result<Option<PathBuf>, Unresolved> {
        match resolve(path, &self.guarded) {
            Ok(path) => Ok(Some(path)),
            Err(Unresolved::System(_)) => Ok(None),
            Err(link @ Unresolved::Link(_)) => Err(link),
        }
    }

    fn resolve_all<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<Vec<PathBuf>, Unresolved> {
        paths.into_iter().filter_map(|path| self.resolve(path).transpose()).collect()
    }

    /// Creates the sandbox of a child that may change this folder, and adds a variable for its temporary folder.
    pub(crate) fn confine(
        &self,
        own: Option<&OwnedFd>,
        set: &mut Vec<(String, String)>,
    ) -> Result<(Confinement, Private), NoSandbox> {
        if let Some(own) = own {
            self.sandbox.keeps_hidden(&path_of(own)?)?;
        }
        let private = self.private()?;
        let read = self.resolve_all(self.sandbox.read.iter().chain(&self.named).chain(&self.start))?;
        let mut write = self.resolve_all(&self.sandbox.write)?;
        write.push(private.0.clone());
        let confinement = self.sandbox.confine([], read, write)?;
        if set.iter().all(|(name, _)| name != TEMPORARY) {
            let path = private.0.to_str().ok_or_else(|| io::Error::other("its name is not UTF-8"))?;
            set.push((TEMPORARY.to_owned(), path.to_owned()));
        }
        Ok((confinement, private))
    }

    /// Whether children may change this folder whatever the task, if they may also change `also`.
    pub(crate) fn may_change(&self, folder: &OwnedFd, also: Option<&Path>) -> bool {
        let Ok(folder) = path_of(folder) else { return false };
        self.sandbox.write.iter().map(PathBuf::as_path).chain(also).any(|path| folder.starts_with(real(path)))
    }

    fn private(&self) -> io::Result<Private> {
        let all = match self.temporary.get() {
            Some(all) => all,
            None => {
                let made = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
                self.supervisor.tidy(made.path());
                self.temporary.get_or_init(|| made)
            }
        };
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        // A rule applies to the target of a path, and not to its links.
        let folder = all.path().canonicalize()?.join(number.to_string());
        std::fs::create_dir(&folder)?;
        Ok(Private(folder))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let folder = std::mem::take(&mut self.0);
        let remove = move || {
            // The supervisor tries again at the end.
            let _ = std::fs::remove_dir_all(folder);
        };
        // The folder may be large, and the caller need not wait.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// The files that the arguments refer to: the program, wherever it is found, and other arguments that name a file.
fn named(words: &[&str], environment: &Environment, folder: Option<&Path>) -> Vec<PathBuf> {
    let at = |path: &Path| folder.map_or_else(|| path.to_owned(), |folder| folder.join(path));
    let mut files: Vec<PathBuf> = words.iter().map(|word| at(Path::new(word))).collect();
    if let Some(program) = words.first().filter(|word| !word.contains('/')) {
        files.extend(std::env::split_paths(&path(environment)).map(|place| at(&place).join(program)));
    }
    files.retain(|file| file.is_file());
    files
}

/// The `PATH` of children.
fn path(environment: &Environment) -> std::ffi::OsString {
    let set = environment.set.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.into());
    let kept =
        || environment.keep.iter().any(|name| name == "PATH").then(|| std::env::var_os("PATH")).flatten();
    set.or_else(kept).unwrap_or_else(|| USUAL_PATH.into())
}
