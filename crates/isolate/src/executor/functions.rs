//! The functions of a pool: its folder, as the executor reads it. A changed file is used from the next task on; one that cannot be
//! parsed fails its tasks, and what was there before is not run in its place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, Failure};
use rustix::fs::stat;

use crate::engine::quickjs::QuickJs;
use crate::function::{FunctionFolder, FunctionSource};
use crate::verdict::unusable;

/// How long the list of kinds is used before the folder is listed again.
const KINDS_KEPT: Duration = Duration::from_secs(1);
/// Kinds of one pool: a claim asks for no more.
pub(crate) const MAX_KINDS: usize = 1_000;

/// The functions of a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Functions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    folder: Mutex<OpenFolder>,
    kinds: Mutex<(Instant, Vec<String>)>,
}

#[derive(Debug)]
struct OpenFolder {
    folder: FunctionFolder,
    /// Device and inode of the folder that is open.
    identity: (u64, u64),
}

impl Functions {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let folder = OpenFolder::open(path)?;
        let kinds = folder.kinds();
        let inner = Inner {
            path: path.to_owned(),
            folder: Mutex::new(folder),
            kinds: Mutex::new((Instant::now(), kinds)),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The kinds that have a function.
    pub(super) fn kinds(&self) -> Vec<String> {
        let mut known = lock(&self.0.kinds);
        if known.0.elapsed() >= KINDS_KEPT {
            *known = (Instant::now(), self.0.current().kinds());
        }
        known.1.clone()
    }

    /// The function of a kind, as its files are now. They are read and parsed on a thread for blocking work, unless nothing has changed.
    pub(super) async fn find(&self, kind: &str) -> Result<FunctionSource, Failure> {
        if let Some(found) = self.0.at_hand(kind) {
            return Ok(found);
        }
        let (inner, kind) = (Arc::clone(&self.0), kind.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            // Syntax is checked by the engine that is built in; a host of another one parses for itself.
            let read = inner.current().folder.function(&kind, &QuickJs::default());
            read.map_err(|fault| unusable(&kind, &fault))
        });
        let failed =
            |error| Failure::new(ErrorClass::Transient, format!("the function cannot be read: {error}"));
        read.await.unwrap_or_else(|error| Err(failed(error)))
    }
}

impl Inner {
    /// A function that needs no reading, unless another thread reads right now.
    fn at_hand(&self, kind: &str) -> Option<FunctionSource> {
        let open = self.folder.try_lock().ok()?;
        if identity(&self.path).ok()? != open.identity {
            return None;
        }
        open.folder.at_hand(kind)
    }

    /// The folder at the path, which may have been replaced by another one.
    fn current(&self) -> MutexGuard<'_, OpenFolder> {
        let mut open = lock(&self.folder);
        if identity(&self.path).is_ok_and(|now| now != open.identity)
            && let Ok(newer) = OpenFolder::open(&self.path)
        {
            *open = newer;
        }
        open
    }
}

impl OpenFolder {
    fn open(path: &Path) -> io::Result<Self> {
        let identity = identity(path)?;
        Ok(Self { folder: FunctionFolder::open(path)?, identity })
    }

    fn kinds(&self) -> Vec<String> {
        let mut kinds = self.folder.kinds().unwrap_or_default();
        kinds.truncate(MAX_KINDS);
        kinds
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = stat(path)?;
    Ok((found.st_dev, found.st_ino))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
