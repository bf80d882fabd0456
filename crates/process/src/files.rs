//! Output files: the files that an attempt leaves in its task's folder, matched by patterns or reported by a worker, with size and SHA-256.
//!
//! The node may have more rights than the child that made a file. So nothing is followed that leads out of the folder: no link, and
//! nothing but regular files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ostler_core::EventBody;
use ostler_exec::{MAX_FILES, file_event};
use rustix::fs::{FileType, Mode, OFlags, openat2};

use crate::folders::TaskFolder;
use crate::walk::{INSIDE, Walk};

/// Files and folders visited, at most.
const MAX_LOOKED_AT: usize = 100_000;

/// Glob patterns for files, such as `*.pdf` or `pages/**/*.png`. `*` does not cross folders.
#[derive(Clone, Debug)]
pub struct FilePatterns(GlobSet);

impl FilePatterns {
    /// Returns `None` if there is no pattern.
    ///
    /// # Errors
    /// When one is not a glob pattern.
    pub fn new(patterns: &[String]) -> Result<Option<Self>, String> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(|error| error.to_string())?);
        }
        if patterns.is_empty() {
            return Ok(None);
        }
        set.build().map(|set| Some(Self(set))).map_err(|error| error.to_string())
    }
}

/// Searches for files on a thread of its own, and hands over each as soon as it is read. Dropping the result stops the search.
pub(crate) fn search(
    folder: TaskFolder,
    patterns: FilePatterns,
    mut found: impl FnMut(EventBody) + Send + 'static,
) -> Reading<()> {
    Reading::begin(move |stopped| {
        for note in matching(&folder, &patterns, stopped) {
            found(note);
        }
    })
}

/// Reads one file that a worker has reported.
fn told(folder: Option<TaskFolder>, path: String) -> Reading<EventBody> {
    Reading::begin(move |stopped| {
        let shown = path.escape_debug();
        let Some(folder) = folder else {
            return EventBody::warning(format!(
                "the file \"{shown}\" is not recorded: the task has no folder"
            ));
        };
        let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || !Path::new(&path).components().all(stays) {
            return EventBody::warning(format!("the file \"{shown}\" is not in the task's folder"));
        }
        // Without `.` components, so that a file has one name.
        let path: std::path::PathBuf =
            Path::new(&path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        record(&folder.opened, &path, stopped).unwrap_or_else(|error| {
            EventBody::warning(format!("the file \"{shown}\" is not recorded: {error}"))
        })
    })
}

/// A file that a worker has reported, while it is being read.
pub(crate) type Filing = Pin<Box<dyn Future<Output = Option<EventBody>> + Send>>;

/// Reads such a file. Dropping the future stops the reading.
pub(crate) fn filing(folder: Option<TaskFolder>, path: String) -> Filing {
    Box::pin(async move { told(folder, path).done().await })
}

/// A read on a thread of its own. Dropping it stops the thread soon.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    thread: tokio::task::JoinHandle<T>,
    stopped: Arc<AtomicBool>,
}

impl<T: Send + 'static> Reading<T> {
    fn begin(read: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        Self { thread: tokio::task::spawn_blocking(move || read(&seen)), stopped }
    }

    /// Waits for the result. `None` if the thread failed.
    pub(crate) async fn done(&mut self) -> Option<T> {
        (&mut self.thread).await.ok()
    }
}

impl<T> Drop for Reading<T> {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// The matching files, one by one, and warnings about the search.
fn matching<'a>(
    folder: &'a TaskFolder,
    patterns: &'a FilePatterns,
    stopped: &'a AtomicBool,
) -> impl Iterator<Item = EventBody> + 'a {
    let mut entries = Walk::new(&folder.opened, MAX_LOOKED_AT + 1);
    let mut looked_at = 0;
    let mut recorded = 0;
    std::iter::from_fn(move || {
        let entries = match &mut entries {
            Ok(entries) => entries,
            // Warn only once.
            Err(_) if looked_at > 0 => return None,
            Err(error) => {
                looked_at += 1;
                let shown = &folder.path;
                return Some(EventBody::warning(format!(
                    "no files are recorded: \"{shown}\" cannot be read: {error}"
                )));
            }
        };
        loop {
            if stopped.load(Ordering::Relaxed) || recorded > MAX_FILES || looked_at > MAX_LOOKED_AT {
                return None;
            }
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                let message =
                    format!("not all files are recorded: there are more than {MAX_LOOKED_AT} in the folder");
                return Some(EventBody::warning(message));
            }
            let entry = entries.next()?;
            if entry.kind != FileType::RegularFile || !patterns.0.is_match(&entry.path) {
                continue;
            }
            recorded += 1;
            let note = record(&folder.opened, &entry.path, stopped);
            let shown = entry.path.display();
            return Some(note.unwrap_or_else(|error| {
                EventBody::warning(format!("the file \"{shown}\" is not recorded: {error}"))
            }));
        }
    })
}

/// The event of one file, by its path in the folder.
pub(crate) fn record(folder: &OwnedFd, path: &Path, stopped: &AtomicBool) -> io::Result<EventBody> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(openat2(folder.as_fd(), path, flags, Mode::empty(), INSIDE)?);
    file_event(file, path, stopped)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn opened(path: &Path) -> TaskFolder {
        let opened = crate::links::folder(path).expect("a folder");
        TaskFolder::new(path.display().to_string(), Arc::new(opened))
    }

    fn found(folder: &Path, patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let patterns = FilePatterns::new(&patterns).expect("they are right").expect("there are some");
        let shown = |note: EventBody| {
            if let EventBody::File { path, size, .. } = &note {
                return format!("{path} {size}");
            }
            let EventBody::Warning { text } = note else { panic!("{note:?}") };
            text
        };
        matching(&opened(folder), &patterns, &AtomicBool::new(false)).map(shown).collect()
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("pages/deep")).expect("a folder");
        for (name, text) in [("a.pdf", "abc"), ("b.txt", "b"), ("pages/c.pdf", ""), ("pages/deep/d.pdf", "d")]
        {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        folder
    }

    #[test]
    fn patterns_find_files_in_the_folder_and_below() {
        let folder = folder();
        assert_eq!(found(folder.path(), &["*.pdf"]), ["a.pdf 3"]);
        assert_eq!(found(folder.path(), &["**/*.pdf"]), ["a.pdf 3", "pages/c.pdf 0", "pages/deep/d.pdf 1"]);
        assert_eq!(found(folder.path(), &["pages/*", "b.*"]), ["b.txt 1", "pages/c.pdf 0"]);
        assert_eq!(found(folder.path(), &["*.png"]), Vec::<String>::new());
        let null = File::open("/dev/null").expect("it is there");
        let gone = TaskFolder::new(folder.path().display().to_string(), Arc::new(null.into()));
        let any = FilePatterns::new(&["*".to_owned()]).expect("it is right").expect("there is one");
        let notes: Vec<EventBody> = matching(&gone, &any, &AtomicBool::new(false)).collect();
        assert!(
            matches!(&notes[..], [EventBody::Warning { text: message }] if message.contains("cannot be read")),
            "{notes:?}"
        );
        assert!(FilePatterns::new(&["a[".to_owned()]).is_err());
    }

    #[test]
    fn nothing_is_followed_out_of_the_folder_and_only_plain_files_count() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/etc/passwd", at("e.pdf")).expect("a link");
        std::os::unix::fs::symlink("/etc", at("pages/etc")).expect("a link");
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe.pdf"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        assert_eq!(found(folder.path(), &["*.pdf", "pages/etc/passwd"]), ["a.pdf 3"]);
    }

    #[tokio::test]
    async fn a_file_that_is_told_is_recorded_with_its_sum() {
        let folder = folder();
        let tell = async |path: &str| {
            told(Some(opened(folder.path())), path.to_owned()).done().await.expect("it is read")
        };
        // The well-known test vector of SHA-256.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned();
        let expected = EventBody::File { path: "a.pdf".into(), size: 3, sha256 };
        assert_eq!((tell("a.pdf").await, tell("./a.pdf").await), (expected.clone(), expected));
        std::os::unix::fs::symlink("/etc", folder.path().join("etc")).expect("a link");
        for wrong in ["/etc/passwd", "../x", "pages/../../x", "", "etc/passwd", "pages", "no"] {
            assert!(matches!(tell(wrong).await, EventBody::Warning { .. }), "{wrong}");
        }
        let nowhere = told(None, "a.pdf".to_owned()).done().await;
        assert!(
            matches!(nowhere, Some(EventBody::Warning { text: message }) if message.contains("has no folder"))
        );
    }
}
