//! The sandboxes of one pool: each child gets a private folder for what is temporary, which goes when the child has gone.

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

/// How the folders of pools begin.
const PREFIX: &str = "ostler-";
/// The variable that says where temporary files go.
const TEMPORARY: &str = "TMPDIR";
/// Where programs are looked for if there is no `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Makes sandboxes for the children of one pool.
#[derive(Debug)]
pub(crate) struct SandboxInstance {
    sandbox: Sandbox,
    /// The files that the command names.
    named: Vec<PathBuf>,
    /// Where children start whose task has no folder.
    start: Option<PathBuf>,
    /// Where links are not followed: what children in sandboxes may change.
    guarded: Vec<PathBuf>,
    supervisor: Supervisor,
    /// Made with the first child.
    temporary: OnceLock<tempfile::TempDir>,
    made: AtomicU64,
}

/// A private folder. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Private(PathBuf);

/// Why a child has no sandbox.
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
    /// What becomes of the attempt.
    pub(crate) fn failure(&self) -> Failure {
        let class = match self {
            // The task's own folder is to blame, or somebody who put a link where it must not be.
            Self::Exposed(_) | Self::Link(Unresolved::Link(_)) => ErrorClass::Permanent,
            Self::Temporary(_) | Self::Link(Unresolved::System(_)) => ErrorClass::Transient,
        };
        Failure::new(class, format!("it cannot be put into its sandbox: {self}"))
    }
}

impl SandboxInstance {
    /// For children that are started by these words, in these folders. Words that depend on the task are not among them: it must
    /// not be the task that says what may be read.
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
        let Folders { start, each, guarded } = folders.clone();
        let named: Vec<PathBuf> = named(words, environment, start.as_deref());
        named.iter().try_for_each(|path| sandbox.keeps_hidden(path))?;
        let guarded: Vec<PathBuf> = guarded.into_iter().chain(each).chain(sandbox.write.clone()).collect();
        let (temporary, made) = (OnceLock::new(), AtomicU64::new(0));
        let room = Self { sandbox, named, start, guarded, supervisor, temporary, made };
        room.listed()
            .find_map(|path| room.resolve(path).err())
            .map_or(Ok(()), |link| Err(SandboxError::Link(link.to_string())))?;
        Ok(room)
    }

    /// What children may read whatever the task is, beside the system's own.
    fn listed(&self) -> impl Iterator<Item = &Path> {
        let listed =
            self.sandbox.read.iter().chain(&self.sandbox.write).chain(&self.named).chain(&self.start);
        listed.map(PathBuf::as_path)
    }

    /// Where a path leads. What is not there needs no rule: nobody can reach it then.
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

    /// The sandbox of a child that may change this folder. Its variables get one more.
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

    /// Whether children may change what is in this folder, whatever the task, if they may change another one too.
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
        // A rule is for what a path is, and not for where its links lead.
        let folder = all.path().canonicalize()?.join(number.to_string());
        std::fs::create_dir(&folder)?;
        Ok(Private(folder))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let folder = std::mem::take(&mut self.0);
        let remove = move || {
            // What cannot be removed now is tried again by the supervisor, at the end.
            let _ = std::fs::remove_dir_all(folder);
        };
        // It may be large, and nobody waits for it.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// The files that words mean: the program, wherever it is found, and what else names a file.
fn named(words: &[&str], environment: &Environment, folder: Option<&Path>) -> Vec<PathBuf> {
    let at = |path: &Path| folder.map_or_else(|| path.to_owned(), |folder| folder.join(path));
    let mut files: Vec<PathBuf> = words.iter().map(|word| at(Path::new(word))).collect();
    if let Some(program) = words.first().filter(|word| !word.contains('/')) {
        files.extend(std::env::split_paths(&path(environment)).map(|place| at(&place).join(program)));
    }
    files.retain(|file| file.is_file());
    files
}

/// The `PATH` that children get.
fn path(environment: &Environment) -> std::ffi::OsString {
    let set = environment.set.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.into());
    let kept =
        || environment.keep.iter().any(|name| name == "PATH").then(|| std::env::var_os("PATH")).flatten();
    set.or_else(kept).unwrap_or_else(|| USUAL_PATH.into())
}
