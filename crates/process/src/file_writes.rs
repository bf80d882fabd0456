//! Files that the node writes into a task's folder, for work that cannot write itself. Nothing is written outside of the folder: paths
//! are walked component by component, and no link is followed.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ostler_core::EventBody;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::files::record;
use crate::folders::TaskFolder;
use crate::links::folder_in;

/// Folders in the path of a file that is written.
pub const MAX_WRITTEN_DEPTH: usize = 32;

/// Writes a file into a task's folder, or replaces one, and returns its event. Missing folders are created. A reader sees the old
/// content or the new one, never a part.
///
/// # Errors
/// A sentence that says why it is not written.
pub async fn write_file(folder: TaskFolder, path: String, bytes: Vec<u8>) -> Result<EventBody, String> {
    let shown = path.escape_debug().to_string();
    let written = tokio::task::spawn_blocking(move || {
        let parts = parts(&path)?;
        write(&folder.opened, &parts, &bytes)?;
        let whole: PathBuf = parts.iter().collect();
        record(&folder.opened, &whole, &AtomicBool::new(false))
    });
    let written = written.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    written.map_err(|error| format!("the file \"{shown}\" cannot be written: {error}"))
}

/// The names in a path that stays in its folder.
fn parts(path: &str) -> io::Result<Vec<&str>> {
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => parts.extend(name.to_str()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::Error::other("it is not in the task's folder"));
            }
        }
    }
    match parts.len() {
        0 => Err(io::Error::other("it has no name")),
        1..=MAX_WRITTEN_DEPTH => Ok(parts),
        _ => Err(io::Error::other(format!("it is more than {MAX_WRITTEN_DEPTH} folders deep"))),
    }
}

fn write(folder: &OwnedFd, parts: &[&str], bytes: &[u8]) -> io::Result<()> {
    let Some((name, parents)) = parts.split_last() else { return Err(io::Error::other("it has no name")) };
    let mut inner: Option<OwnedFd> = None;
    for parent in parents {
        let at = inner.as_ref().unwrap_or(folder);
        match mkdirat(at, *parent, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        inner = Some(folder_in(at, parent)?);
    }
    let at = inner.as_ref().unwrap_or(folder);
    let part = part_name();
    let written = write_new(at, &part, bytes).and_then(|()| Ok(renameat(at, &part, at, *name)?));
    if written.is_err() {
        // It may not exist.
        let _ = unlinkat(at, &part, AtFlags::empty());
    }
    written
}

fn write_new(folder: impl AsFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    File::from(openat(folder, name, flags, mode)?).write_all(bytes)
}

/// A name that no other write of this machine has.
fn part_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!(".ostler-{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn files_are_written_into_the_folder_and_nowhere_else() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (top, outside) = (scratch.path().join("task"), scratch.path().join("outside"));
        std::fs::create_dir(&top).expect("a folder");
        std::fs::create_dir(&outside).expect("a folder");
        std::fs::write(outside.join("kept"), "kept").expect("a file");
        std::os::unix::fs::symlink(&outside, top.join("link")).expect("a link");
        std::os::unix::fs::symlink(outside.join("kept"), top.join("file")).expect("a link");
        let opened = Arc::new(crate::links::folder(&top).expect("a folder"));
        let folder = || TaskFolder::new(top.display().to_string(), Arc::clone(&opened));
        let write = async |path: &str| write_file(folder(), path.to_owned(), b"abc".to_vec()).await;
        for path in ["a.txt", "./deep/er/b.txt", "a.txt", "file"] {
            let event = write(path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(matches!(event, EventBody::File { size: 3, .. }), "{event:?}");
            assert_eq!(std::fs::read(top.join(path)).expect("it is there"), b"abc", "{path}");
        }
        let deep = "d/".repeat(MAX_WRITTEN_DEPTH) + "f";
        for path in ["../x", "/etc/x", "", ".", "link/x", "a.txt/x", "deep", deep.as_str()] {
            let refused = write(path).await.expect_err(path);
            assert!(refused.contains("cannot be written"), "{refused}");
        }
        assert_eq!(std::fs::read(outside.join("kept")).expect("it is there"), b"kept", "a link is replaced");
        let left = std::fs::read_dir(&top).expect("a folder").filter_map(Result::ok);
        let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != "link").collect();
        assert_eq!(left.len(), 3, "nothing else is left: {left:?}");
        assert_eq!(std::fs::read_dir(&outside).expect("a folder").count(), 1);
    }
}
