//! Where the children of a pool work.

use std::path::{Path, PathBuf};

use ostler_core::{ErrorClass, Failure};
use ostler_exec::Work;

/// Where the children of a pool work, unless a task has a folder of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// Where they start. The node's own folder if there is none.
    pub start: Option<PathBuf>,
    /// Where each task gets a folder of its own, which is called like the task. It is made for the first attempt, later ones
    /// find what is in it, and nobody removes it.
    pub each: Option<PathBuf>,
}

impl Folders {
    /// The folder that belongs to the task, if there is one. It is made where it has to be.
    pub(crate) fn own(&self, work: &Work) -> Result<Option<String>, Failure> {
        if work.folder.is_some() {
            return Ok(work.folder.clone());
        }
        let Some(each) = &self.each else { return Ok(None) };
        let folder = each.join(work.task.to_string());
        let refused = |class, why: String| {
            Failure::new(class, format!("there is no folder \"{}\" for the task: {why}", folder.display()))
        };
        std::fs::create_dir_all(&folder)
            .map_err(|error| refused(ErrorClass::Transient, error.to_string()))?;
        let path = folder.to_str().map(ToOwned::to_owned);
        path.map(Some).ok_or_else(|| refused(ErrorClass::Permanent, "its name is not UTF-8".to_owned()))
    }

    /// Makes what must be there before a child is started that may use it for any task.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        let Some(each) = &self.each else { return Ok(()) };
        std::fs::create_dir_all(each).map_err(|error| {
            let message = format!("there is no folder \"{}\" for the tasks: {error}", each.display());
            Failure::new(ErrorClass::Transient, message)
        })
    }

    /// Where a child starts whose task has no folder of its own, as text.
    pub(crate) fn start(&self) -> Option<String> {
        self.start.as_deref().map(|path| path.to_string_lossy().into_owned())
    }

    /// Where it starts, as a path.
    pub(crate) fn start_path(&self) -> Option<&Path> {
        self.start.as_deref()
    }
}
