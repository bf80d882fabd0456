//! The owner of all homes in a folder: removes those whose tasks are gone.

use std::path::{Path, PathBuf};

use ostler_config::{Leftover, LeftoverKeeper, StoreMark, WhyKept};
use ostler_core::TaskId;

use super::home::{HomeTask, forget_sessions, lock_of, users_of};
use super::usual_folder;

/// Homes that are looked at in one go.
const MAX_HOMES: usize = 100_000;

/// The homes of all pools that keep theirs in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HomeKeeper(PathBuf);

impl HomeKeeper {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Of the user's state folder; `None` if there is none.
    pub(crate) fn usual() -> Option<Self> {
        usual_folder().map(Self)
    }
}

impl LeftoverKeeper for HomeKeeper {
    fn folder(&self) -> &Path {
        &self.0
    }

    fn leftovers(&self, mark: &StoreMark) -> Vec<Leftover> {
        let homes = folders_in(&self.0).flat_map(|pool| folders_in(&pool)).take(MAX_HOMES);
        homes.filter_map(|path| Some(Leftover { tasks: tasks_of(&path, mark)?, path })).collect()
    }

    fn obstacle(&self, leftover: &Leftover) -> Option<WhyKept> {
        match lock_of(&leftover.path) {
            Ok(Some(_)) => None,
            Ok(None) => Some(WhyKept::InUse),
            Err(error) => Some(blocked(&leftover.path, &error)),
        }
    }

    fn remove(&self, leftover: &Leftover) -> Result<(), WhyKept> {
        let path = &leftover.path;
        let lock = lock_of(path).map_err(|error| blocked(path, &error))?;
        let Some(_lock) = lock else { return Err(WhyKept::InUse) };
        // Another task may have gone on with the conversation since it was listed.
        let named = |user: &HomeTask| leftover.tasks.iter().any(|task| task.to_string() == user.id);
        if !users_of(path).iter().all(named) {
            return Err(WhyKept::InUse);
        }
        std::fs::remove_dir_all(path).map_err(|error| blocked(path, &error))?;
        if let Some(pool) = path.parent() {
            forget_sessions(pool);
        }
        Ok(())
    }
}

/// The tasks of a home that only tasks of this store have used. The name of a home begins with the id of its first task.
fn tasks_of(home: &Path, mark: &StoreMark) -> Option<Vec<TaskId>> {
    home.file_name()?.to_str()?.split('-').next()?.parse::<TaskId>().ok()?;
    let users = users_of(home);
    let task = |user: &HomeTask| {
        let is_ours = user.store.as_ref() == Some(&mark.0);
        if is_ours { user.id.parse().ok() } else { None }
    };
    let tasks: Option<Vec<TaskId>> = users.iter().map(task).collect();
    tasks.filter(|tasks| !tasks.is_empty())
}

/// The folders in a folder, without links.
fn folders_in(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn blocked(path: &Path, error: &std::io::Error) -> WhyKept {
    WhyKept::Blocked {
        why: format!("the folder of a conversation cannot be removed: {error}"),
        advice: format!("Remove it by hand: {}.", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::home::{Asked, Homes};
    use super::*;

    /// Uses the home of this task, or of this conversation.
    fn used(folder: &Path, task: TaskId, given: Option<&str>, mark: Option<&StoreMark>) {
        let homes = Homes::new(folder.join("reviews"));
        let id = task.to_string();
        let asked = Asked {
            task: &id,
            home: &id,
            query: &id,
            dialect: "claude",
            previous: None,
            given,
            prompt: "Do it.",
            mark,
        };
        let mut home = homes.open(&asked).expect("a home");
        home.begin(&asked, "s".to_owned()).expect("it is written");
        home.has_session(&format!("s-{id}")).expect("it is written");
    }

    fn id(bits: u128) -> TaskId {
        TaskId(ostler_core::Id::from_bits(bits))
    }

    #[test]
    fn a_home_is_listed_for_its_store_alone_with_all_tasks_that_used_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, other) = (StoreMark("ours".to_owned()), StoreMark("other".to_owned()));
        used(folder.path(), id(1), None, Some(&ours));
        used(folder.path(), id(2), Some(&format!("s-{}", id(1))), Some(&ours));
        used(folder.path(), id(3), None, Some(&other));
        used(folder.path(), id(4), None, None);
        used(folder.path(), id(5), None, Some(&ours));
        used(folder.path(), id(6), Some(&format!("s-{}", id(5))), Some(&other));
        let keeper = HomeKeeper::new(folder.path().to_owned());
        let listed = keeper.leftovers(&ours);
        let tasks: Vec<&[TaskId]> = listed.iter().map(|leftover| leftover.tasks.as_slice()).collect();
        assert_eq!(tasks, [&[id(1), id(2)][..]], "not if a task of another store, or of none, has used it");
        assert_eq!(keeper.leftovers(&other).len(), 1);
    }

    #[test]
    fn the_home_of_a_session_goes_with_the_task_whose_handler_began_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = StoreMark("ours".to_owned());
        let (task, homes) = (id(1).to_string(), Homes::new(folder.path().join("runs")));
        let name = format!("{task}-3-1");
        let asked = Asked {
            task: &task,
            home: &name,
            query: "query 1.1",
            dialect: "claude",
            previous: None,
            given: None,
            prompt: "Plan it.",
            mark: Some(&mark),
        };
        homes.open(&asked).expect("a home").begin(&asked, "s".to_owned()).expect("it is written");
        let [leftover] = &HomeKeeper::new(folder.path().to_owned()).leftovers(&mark)[..] else {
            panic!("one home")
        };
        assert_eq!(leftover.tasks, [id(1)]);
    }

    #[test]
    fn a_home_goes_with_its_links_unless_an_attempt_holds_it_or_another_task_came() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = StoreMark("ours".to_owned());
        used(folder.path(), id(1), None, Some(&mark));
        let keeper = HomeKeeper::new(folder.path().to_owned());
        let [leftover] = &keeper.leftovers(&mark)[..] else { panic!("one home") };
        let held = lock_of(&leftover.path).expect("a lock");
        assert_eq!(keeper.remove(leftover), Err(WhyKept::InUse));
        drop(held);
        used(folder.path(), id(2), Some(&format!("s-{}", id(1))), Some(&mark));
        assert_eq!(keeper.remove(leftover), Err(WhyKept::InUse), "it has another task now");
        let [leftover] = &keeper.leftovers(&mark)[..] else { panic!("one home") };
        assert_eq!(keeper.obstacle(leftover), None);
        assert_eq!(keeper.remove(leftover), Ok(()));
        assert!(!leftover.path.exists());
        let sessions = std::fs::read_dir(folder.path().join("reviews/sessions")).expect("a folder");
        assert_eq!(sessions.count(), 0, "no link leads nowhere");
    }
}
