//! Files whose pages are not in memory any more, so that the next reader finds them on the disk. Needs no right but to read them.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::{Error, disk};

/// Writes out all files below a folder, and asks the kernel to forget their pages. It keeps those that a process has mapped.
pub(crate) fn forget(folder: &Path) -> Result<(), Error> {
    disk::settle();
    forget_below(folder)
}

fn forget_below(folder: &Path) -> Result<(), Error> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_below(&entry.path())?;
        } else if kind.is_file() {
            fadvise(&File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_are_forgotten_and_stay_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("inner/file");
        std::fs::create_dir(dir.path().join("inner")).unwrap();
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        forget(dir.path()).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), vec![7; 1 << 20]);
        assert!(forget(&dir.path().join("absent")).is_err());
    }
}
