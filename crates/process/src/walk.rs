//! Walks through a folder that is open, and below, by names that are never followed out of it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};

/// How deep below the folder files are looked for.
const MAX_DEPTH: usize = 32;

/// Only what is below the folder, and by no link.
pub(crate) const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The files and folders below a folder: by name, each folder before what is in it.
pub(crate) struct Walk<'a> {
    top: &'a OwnedFd,
    /// Not yet looked at, the next one last.
    waiting: Vec<WalkEntry>,
    /// So many more may be listed.
    room: usize,
}

/// Something below the folder.
pub(crate) struct WalkEntry {
    /// From the folder on.
    pub(crate) path: PathBuf,
    pub(crate) kind: FileType,
    depth: usize,
}

impl<'a> Walk<'a> {
    /// Lists so many files and folders at most.
    pub(crate) fn new(top: &'a OwnedFd, most: usize) -> std::io::Result<Self> {
        let mut walk = Self { top, waiting: Vec::new(), room: most };
        walk.list(Path::new(""), 1)?;
        Ok(walk)
    }

    fn list(&mut self, folder: &Path, depth: usize) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let opened = openat2(self.top.as_fd(), at, flags, Mode::empty(), INSIDE)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&opened)? {
            // What cannot be listed cannot be recorded either.
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.room == 0 {
                break;
            }
            self.room -= 1;
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Not every file system tells it with the name.
                kind = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(kind, |found| FileType::from_raw_mode(found.st_mode));
            }
            let path = folder.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            found.push(WalkEntry { path, kind, depth });
        }
        found.sort_unstable_by(|one, other| other.path.file_name().cmp(&one.path.file_name()));
        self.waiting.append(&mut found);
        Ok(())
    }
}

impl Iterator for Walk<'_> {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        let entry = self.waiting.pop()?;
        if entry.kind == FileType::Directory && entry.depth < MAX_DEPTH {
            // It may be gone, or closed to us; the others are not.
            let _ = self.list(&entry.path, entry.depth + 1);
        }
        Some(entry)
    }
}
