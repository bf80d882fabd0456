//! The owner of all worktrees that were made for tasks: removes those of pruned tasks, if they are clean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::{Leftover, LeftoverKeeper, StoreMark, WhyKept};
use ostler_core::TaskId;

use super::clean::work_in;
use super::git::Git;
use super::open::{clear, registration};
use super::record::{self, MakingStage, Unlocked, WorktreeRecord};
use super::{RecordLock, is_folder, records};

/// How long git may take to remove a worktree.
const MAX_REMOVAL: Duration = Duration::from_secs(10 * 60);

/// Worktrees by their records, in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorktreeKeeper {
    records: PathBuf,
}

impl WorktreeKeeper {
    /// Of the user's state folder; `None` if there is none.
    #[must_use]
    pub fn usual() -> Option<Self> {
        records().map(|records| Self { records })
    }

    /// What is to be done about a worktree, with its lock.
    fn examined(&self, leftover: &Leftover) -> Result<Examined, WhyKept> {
        let [task] = leftover.tasks[..] else { return Err(blocked(&leftover.path, "it has no task")) };
        let lock = self.locked(task, &leftover.path)?;
        let Some(record) = lock.read() else { return Ok(Examined { lock, removal: Removal::Forget }) };
        let path = &record.path;
        let removal = match (record.stage, is_folder(path), registration(&record.common, path)) {
            (MakingStage::Making, _, _) => Removal::Clear(record),
            // It was removed by hand, or something else is in its place now.
            (MakingStage::Made, false, _) => Removal::Forget,
            (MakingStage::Made, true, None) => {
                return Err(WhyKept::Blocked {
                    why: format!("the repository {} does not know it any more", record.common.display()),
                    advice: format!("Keep what you need of it, and remove the folder {}.", path.display()),
                });
            }
            (MakingStage::Made, true, Some(admin)) => match work_in(path, &admin) {
                Some(work) => return Err(blocked(path, &work)),
                None => Removal::Remove(record),
            },
        };
        Ok(Examined { lock, removal })
    }

    fn locked(&self, task: TaskId, path: &Path) -> Result<RecordLock, WhyKept> {
        RecordLock::take_in(self.records.clone(), task).map_err(|unlocked| match unlocked {
            Unlocked::InUse => WhyKept::InUse,
            Unlocked::NoFolder => blocked(path, "there is no folder for its record"),
            Unlocked::System(_, error) => blocked(path, &error.to_string()),
        })
    }
}

struct Examined {
    lock: RecordLock,
    removal: Removal,
}

enum Removal {
    /// There is no worktree any more.
    Forget,
    /// It was never finished, so no work was done in it.
    Clear(WorktreeRecord),
    Remove(WorktreeRecord),
}

impl LeftoverKeeper for WorktreeKeeper {
    fn folder(&self) -> &Path {
        &self.records
    }

    fn leftovers(&self, mark: &StoreMark) -> Vec<Leftover> {
        let found = record::of_store(&self.records, mark).into_iter();
        found.map(|(task, record)| Leftover { path: record.path, tasks: vec![task] }).collect()
    }

    fn obstacle(&self, leftover: &Leftover) -> Option<WhyKept> {
        self.examined(leftover).err()
    }

    fn remove(&self, leftover: &Leftover) -> Result<(), WhyKept> {
        let Examined { lock, removal } = self.examined(leftover)?;
        let path = &leftover.path;
        let removed = match removal {
            Removal::Forget => Ok(()),
            Removal::Clear(WorktreeRecord { common, path, .. }) => {
                clear(&common, &path).map_err(|error| error.to_string())
            }
            // Git looks again whether it is clean.
            Removal::Remove(WorktreeRecord { common, path, .. }) => {
                let git = Git::of_repository(&common).within(MAX_REMOVAL);
                let text = path.to_str().ok_or_else(|| blocked(&path, "its path is not UTF-8"))?;
                git.run(&["worktree", "remove", text]).map(drop).map_err(|error| error.to_string())
            }
        };
        removed.map_err(|why| blocked(path, &why))?;
        lock.forget().map_err(|error| blocked(path, &format!("its record cannot be removed: {error}")))
    }
}

fn blocked(path: &Path, why: &str) -> WhyKept {
    let path = path.display();
    WhyKept::Blocked {
        why: why.to_owned(),
        advice: format!(
            "Look at it with \"git -C {path} status\"; commit or push what is needed, or remove it with \"git worktree remove --force {path}\"."
        ),
    }
}
