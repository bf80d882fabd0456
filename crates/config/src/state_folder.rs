//! The state folder of the user, in which executors keep what outlives a node.

use std::path::PathBuf;

/// The subfolder of the user's state folder.
const OSTLER: &str = "ostler";

/// `ostler` in the user's state folder; `None` if this process has neither XDG_STATE_HOME nor HOME.
#[must_use]
pub fn state_folder() -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths in these variables.
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    Some(state?.join(OSTLER))
}
