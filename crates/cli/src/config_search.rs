//! Where `ostler.toml` is: in the current folder, or in the nearest folder above it, as git and cargo look for theirs.
//!
//! The search ends at the user's home folder, if it begins below it, and otherwise at the root. A file above the current folder that
//! belongs to another user is not used: a config names commands.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::store_location::CONFIG_FILE;

/// The user that owns the files of the system.
const ROOT: u32 = 0;

/// The config that a command finds without `--config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundConfig {
    /// In the current folder; the path is relative.
    Here(PathBuf),
    /// In a folder above it; the path is absolute.
    Above(PathBuf),
    /// The nearest one, which belongs to another user and is not used.
    OfAnotherUser(PathBuf),
}

impl FoundConfig {
    /// Searches from the current folder.
    pub(crate) fn search() -> Option<Self> {
        let here = PathBuf::from(CONFIG_FILE);
        if is_there(&here) {
            return Some(Self::Here(here));
        }
        let start = std::env::current_dir().ok()?;
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        // The current folder has no symbolic links in its path.
        let home = home.and_then(|home| std::fs::canonicalize(home).ok());
        let file = above(&start, home.as_deref(), &is_there)?;
        let owner = std::fs::metadata(&file).map(|file| file.uid());
        let me = rustix::process::geteuid().as_raw();
        // A file that cannot be examined is reported when it is read.
        let is_trusted = owner.map_or(true, |owner| owner == me || owner == ROOT);
        Some(if is_trusted { Self::Above(file) } else { Self::OfAnotherUser(file) })
    }

    /// The file, if it is used.
    pub(crate) fn file(self) -> Option<PathBuf> {
        match self {
            Self::Here(file) | Self::Above(file) => Some(file),
            Self::OfAnotherUser(_) => None,
        }
    }
}

/// The nearest config above a folder.
fn above(start: &Path, home: Option<&Path>, is_there: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    // The first ancestor is the folder itself. Without a home above it, the search ends at the root.
    let below_home = start.ancestors().take_while(|folder| Some(*folder) != home).count();
    let most = if home.is_some_and(|home| start.starts_with(home)) { below_home + 1 } else { usize::MAX };
    start.ancestors().take(most).skip(1).map(|folder| folder.join(CONFIG_FILE)).find(|file| is_there(file))
}

/// A path that cannot be examined counts as there, so that reading it reports the error.
fn is_there(path: &Path) -> bool {
    let missing = |error: std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
    };
    !std::fs::symlink_metadata(path).is_err_and(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_config_above_is_found_up_to_the_home_folder_or_the_root() {
        let found = |start: &str, home: Option<&str>, there: &[&str]| {
            let is_there = |path: &Path| there.iter().any(|known| path == Path::new(known));
            let found = above(Path::new(start), home.map(Path::new), &is_there);
            found.map(|path| path.display().to_string())
        };
        let (home, own) = (Some("/home/anna"), "/home/anna/ostler.toml");
        let project = "/home/anna/project/ostler.toml";
        assert_eq!(found("/home/anna/project/a/b", home, &[project, own]).as_deref(), Some(project));
        assert_eq!(found("/home/anna/other", home, &[project, own, "/ostler.toml"]).as_deref(), Some(own));
        assert_eq!(found("/home/anna/other", home, &["/home/ostler.toml", "/ostler.toml"]), None);
        assert_eq!(found("/home/anna", home, &["/ostler.toml"]), None);
        assert_eq!(found("/srv/jobs", home, &["/ostler.toml"]).as_deref(), Some("/ostler.toml"));
        assert_eq!(found("/srv/jobs", None, &["/srv/jobs/ostler.toml"]), None);
    }
}
