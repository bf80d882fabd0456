//! Protected paths: the store's file and the files beside it with the same prefix, which no sandboxed child may reach.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Whether access to a path, recursively, would expose the hidden file.
pub(super) fn exposes(path: &Path, hidden: &Path) -> bool {
    let (path, hidden) = (real(path), real(hidden));
    if hidden.starts_with(&path) {
        return true;
    }
    let (Some(folder), Some(name)) = (hidden.parent(), hidden.file_name()) else { return false };
    // Next to a store are its log, its locks and its sockets.
    let beside = path.strip_prefix(folder).ok().and_then(|rest| rest.components().next());
    beside.is_some_and(|first| first.as_os_str().as_bytes().starts_with(name.as_bytes()))
}

/// A path without links, as far as it exists.
#[must_use]
pub fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => real(folder).join(name),
        (_, _) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_the_store_in_it_or_belongs_to_it_exposes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("data");
        std::fs::create_dir(&inside).expect("a folder");
        let store = inside.join("ostler.db");
        std::fs::write(&store, "x").expect("a file");
        std::os::unix::fs::symlink(&inside, folder.path().join("link")).expect("a link");
        let at = |name: &str| folder.path().join(name);
        for wrong in
            ["", "data", "link", "data/ostler.db", "link/ostler.db", "data/ostler.db-wal", "data/../data"]
        {
            assert!(exposes(&at(wrong), &store), "{wrong}");
        }
        assert!(exposes(Path::new("/"), &store));
        assert!(exposes(&at("data"), &at("link/ostler.db")), "a link to it is it");
        for right in ["data/tasks", "data/old.db", "other", "data2", "data/tasks/ostler.db"] {
            assert!(!exposes(&at(right), &store), "{right}");
        }
    }
}
