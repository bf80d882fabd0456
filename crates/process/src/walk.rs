//! Directory walk: lists an open folder recursively, without following links out of it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};

/// How deep below the folder to search.
const MAX_DEPTH: usize = 32;

/// Resolves only paths below the folder, without links.
pub(crate) const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The files and folders below a folder: sorted by name, each folder before its contents.
pub(crate) struct Walk<'a> {
    top: &'a OwnedFd,
    /// Not yet visited, the next one last.
    waiting: Vec<WalkEntry>,
    /// How many more may be listed.
    room: usize,
}

/// A file or folder below the top.
pub(crate) struct WalkEntry {
    /// Relative to the top.
    pub(crate) path: PathBuf,
    pub(crate) kind: FileType,
    depth: usize,
}

impl<'a> Walk<'a> {
    /// Lists at most `most` files and folders.
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
            // An entry that cannot be listed cannot be recorded either.
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
                // Not every file system reports the type with the name.
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
            // The folder may be gone or unreadable; the others are not.
            let _ = self.list(&entry.path, entry.depth + 1);
        }
        Some(entry)
    }
}
