//! `ostler up --watch`: workers are restarted when program files change in the folder of the config, for development.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ostler_ops::recycle::{WorkersToRecycle, recycle};
use ostler_runtime::Drained;
use ostler_store::Store;
use tokio::task::JoinHandle;

use super::service::Service;
use crate::exit::{say, warn};
use crate::print::visible;

/// How often to look.
const LOOK: Duration = Duration::from_secs(1);
/// Files that are watched.
const MAX_FILES: usize = 10_000;
/// Folders that are looked into, and how deep.
const MAX_FOLDERS: usize = 2_000;
const MAX_DEPTH: usize = 16;
/// What programs are written in. Other files, such as the store, change all the time.
const ENDINGS: [&str; 16] =
    ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "json", "rb", "php", "pl", "lua", "sh", "ex", "exs", "jl"];
/// Folders that hold no program of one's own, besides those that begin with a dot.
const OTHERS: [&str; 4] = ["node_modules", "__pycache__", "target", "venv"];

/// The state of the files, by which a change is seen.
type Snapshot = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

pub(super) struct WatchService(JoinHandle<()>);

impl WatchService {
    /// Watches this folder, for the workers of these pools.
    pub(super) fn start(folder: PathBuf, pools: Vec<String>, store: Arc<dyn Store>) -> Self {
        Self(tokio::spawn(watch(folder, pools, store)))
    }
}

#[async_trait]
impl Service for WatchService {
    async fn stop(self: Box<Self>, _patience: Duration) -> Drained {
        self.0.abort();
        let _ = self.0.await;
        Drained::default()
    }
}

async fn watch(folder: PathBuf, pools: Vec<String>, store: Arc<dyn Store>) {
    let mut before = taken(&folder).await;
    if before.len() >= MAX_FILES {
        warn(&format!("--watch: only {MAX_FILES} files of {} are watched", folder.display()));
    }
    let mut busy = BTreeSet::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = taken(&folder).await;
        if let Some(changed) = changed(&before, &now) {
            let file = changed.strip_prefix(&folder).unwrap_or(changed).to_string_lossy().into_owned();
            say(&format!("{} has changed: restarting workers; those that are busy follow", visible(&file)));
            busy = restart_all(store.as_ref(), &pools).await;
        } else {
            busy = restart(store.as_ref(), busy).await;
        }
        before = now;
    }
}

/// A file that is new, gone or different.
fn changed<'a>(before: &'a Snapshot, now: &'a Snapshot) -> Option<&'a Path> {
    let differs = |path: &&PathBuf| before.get(*path) != now.get(*path);
    now.keys().chain(before.keys()).find(differs).map(PathBuf::as_path)
}

/// Restarts the idle workers of these pools, and returns those that were busy.
async fn restart_all(store: &dyn Store, pools: &[String]) -> BTreeSet<String> {
    let mut busy = BTreeSet::new();
    for pool in pools {
        // A pool without a worker, or a store that is away, has nothing to restart now.
        if let Ok(answer) = recycle(store, &WorkersToRecycle::All(pool.clone())).await {
            busy.extend(answer.busy);
        }
    }
    busy
}

/// Restarts workers that were busy, and returns those that still are.
async fn restart(store: &dyn Store, workers: BTreeSet<String>) -> BTreeSet<String> {
    let mut busy = BTreeSet::new();
    for worker in workers {
        let answer = recycle(store, &WorkersToRecycle::Worker(worker.clone())).await;
        if matches!(answer, Err(ostler_ops::OpsError::Failed(_))) {
            busy.insert(worker);
        }
    }
    busy
}

async fn taken(folder: &Path) -> Snapshot {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || snapshot(&folder)).await.unwrap_or_default()
}

/// The program files in a folder. What cannot be read is left out.
fn snapshot(folder: &Path) -> Snapshot {
    let (mut files, mut left, mut folders) = (Snapshot::new(), vec![(folder.to_owned(), 0)], 0);
    while let Some((folder, depth)) = left.pop() {
        folders += 1;
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if kind.is_dir() {
                let is_own = !name.starts_with('.') && !OTHERS.contains(&name.as_ref());
                if is_own && depth < MAX_DEPTH && folders + left.len() < MAX_FOLDERS {
                    left.push((path, depth + 1));
                }
                continue;
            }
            let ending = path.extension().and_then(|ending| ending.to_str());
            if ending.is_some_and(|ending| ENDINGS.contains(&ending))
                && files.len() < MAX_FILES
                && let Ok(about) = std::fs::metadata(&path)
            {
                files.insert(path, (about.modified().ok(), about.len()));
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_files_are_watched_and_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        for name in
            ["tasks.py", "deep/er/helper.mjs", "ostler.db", ".git/x.py", "node_modules/a/b.js", "notes.txt"]
        {
            write(name, "1");
        }
        let before = snapshot(folder.path());
        let names: Vec<&Path> =
            before.keys().map(|path| path.strip_prefix(folder.path()).expect("inside")).collect();
        assert_eq!(names, [Path::new("deep/er/helper.mjs"), Path::new("tasks.py")]);
        write("ostler.db", "22");
        assert_eq!(changed(&before, &snapshot(folder.path())), None);
        write("tasks.py", "22");
        let now = snapshot(folder.path());
        assert_eq!(changed(&before, &now), Some(folder.path().join("tasks.py").as_path()));
        std::fs::remove_file(folder.path().join("deep/er/helper.mjs")).expect("it is removed");
        assert!(changed(&now, &snapshot(folder.path())).is_some_and(|path| path.ends_with("helper.mjs")));
    }
}
