//! Git worktrees: each task of a pool works in one of its own, detached at a base, made by the real git.
//!
//! - `git.rs`: runs git, bounded, without a shell and without prompts. `record.rs`: what is known of each worktree, outside of it.
//! - `open.rs`: makes the worktree of a task, or finds it as it was left. `clean.rs`: whether removing one loses work.
//! - `keeper.rs`: removes those of pruned tasks.
//!
//! A worktree can be written by an agent that may do nothing else. So its own `.git` file is never believed: git gets the path of the
//! repository from the record, and the record is in the user's state folder.

mod clean;
mod git;
mod keeper;
mod open;
mod record;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::state_folder;

pub use keeper::WorktreeKeeper;
pub(crate) use open::open;
pub(crate) use record::RecordLock;

use git::{Git, GitError};

/// How long git may take for a question.
const MAX_ANSWER: Duration = Duration::from_secs(20);

/// The repository of the worktrees of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktrees {
    /// The repository: any folder in it, or a bare one.
    pub repository: PathBuf,
    /// What a new worktree is detached at; `None`: the repository's HEAD at the first attempt of a task.
    pub base: Option<String>,
}

impl Worktrees {
    /// The base, in the words of git.
    pub(crate) fn base(&self) -> &str {
        self.base.as_deref().unwrap_or("HEAD")
    }

    /// What is wrong with it on this machine, as a sentence: no git, no repository, no such base. Runs git, and waits for it.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let git = Git::in_folder(&self.repository).within(MAX_ANSWER);
        let asked = git.run(&git::COMMON_DIR).and_then(|_| git.commit(self.base()));
        asked.err().map(|error| self.sentence(&error))
    }

    /// What an error of git about the repository or the base means.
    pub(crate) fn sentence(&self, error: &GitError) -> String {
        let repository = self.repository.display();
        match error {
            GitError::Missing => "git is not installed, or not on the PATH: worktrees need it".to_owned(),
            GitError::NoCommit => format!(
                "the repository {repository} has no commit \"{}\", which worktrees are to start at",
                self.base()
            ),
            GitError::Failed { said, .. } if said.contains("not a git repository") => {
                format!("{repository} is not a git repository")
            }
            GitError::Failed { .. } | GitError::Late(_) | GitError::System(_) => {
                format!("git cannot use the repository {repository}: {error}")
            }
        }
    }
}

/// The folder of the worktrees of all pools that do not say where theirs are.
#[must_use]
pub fn usual_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("worktrees"))
}

/// The folder of the records of worktrees, wherever these are. A pool cannot have this name: see
/// [`subfolder`](crate::children::subfolder).
fn records() -> Option<PathBuf> {
    Some(usual_folder()?.join(".records"))
}

/// Whether a path is a folder, and not a link to one.
fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}
