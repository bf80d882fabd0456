//! Repository walker: the files that the tests of this crate check. Never part of the product.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders outside the repository's sources. `target` may also be a nested build folder.
const SKIPPED: [&str; 4] = ["target", ".git", "node_modules", "__pycache__"];
/// Far more than there are; stops a link cycle.
const MAX_FILES: usize = 100_000;

/// The root of the repository.
///
/// # Panics
/// When this crate was moved out of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("this crate lies in the root of the repository").to_owned()
}

/// All files, as paths from the root.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the repository can be read") {
            let entry = entry.expect("the repository can be read");
            let kind = entry.file_type().expect("the repository can be read");
            let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !skipped {
                folders.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                found.push(path.strip_prefix(&root).expect("it was found under the root").to_owned());
            }
        }
        assert!(found.len() < MAX_FILES, "more than {MAX_FILES} files");
    }
    found.sort();
    found
}

/// Whether the file's extension is `end`.
#[must_use]
pub fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|extension| extension == end)
}

/// The text of a file, by its path from the root; `None`: not text.
///
/// # Panics
/// When the file cannot be read.
#[must_use]
pub fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8(bytes).ok()
}

/// Fails with all findings, not only with the first.
///
/// # Panics
/// When there are findings.
pub fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
