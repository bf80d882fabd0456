//! Results of a job's items, in their order: one row at a time, so that only one output is in memory.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use ostler_core::{JobId, TaskId, beginning};
use ostler_store::Store;
use ostler_store::jobs::queue_of;
use ostler_store::views::{Filter, TaskDetail, TaskRef};
use ostler_wire::job::JobResultView;

use super::find::by_id;
use super::spec::{ItemFolders, ItemPayload, JobSpec};
use crate::error::OpsError;
use crate::output::AttemptOutput;

/// Tasks per page; each comes with its output.
const PAGE: usize = 50;

/// The tasks of a job in the order of their items.
#[derive(Clone, Debug)]
pub struct JobResults {
    left: std::vec::IntoIter<(u64, TaskId)>,
    /// The number of the last item.
    last: u64,
    folders: Option<ItemFolders>,
}

/// The result of one item.
#[derive(Clone, Debug)]
pub struct ItemResult {
    /// The position among the items, counted from 1.
    pub number: u64,
    pub found: TaskDetail,
    /// The output of the last attempt.
    pub output: AttemptOutput,
    /// The folder of its own.
    pub folder: Option<String>,
}

impl JobResults {
    /// # Errors
    /// When the store cannot be read.
    pub async fn of(store: &dyn Store, job: JobId) -> Result<Self, OpsError> {
        let spec = by_id(store, job).await?.and_then(|record| JobSpec::of(&record));
        let folders = spec.and_then(|spec| spec.item_folders);
        let filter = Filter { queue: Some(queue_of(job)), ..Filter::default() };
        let (mut all, mut unnumbered) = (Vec::new(), Vec::new());
        let mut after = None;
        loop {
            let page = store.list(filter.clone(), after, PAGE).await?;
            for task in &page.tasks {
                match ItemPayload::of(&task.payload) {
                    Some(payload) => all.push((payload.number, task.id)),
                    None => unnumbered.push(task.id),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.sort_unstable();
        let numbered = all.last().map_or(0, |(number, _)| *number);
        // A program that uses the library has payloads of its own, and creates the ids in the order of the items.
        unnumbered.sort_unstable();
        all.extend((numbered + 1..).zip(unnumbered));
        let last = all.last().map_or(0, |(number, _)| *number);
        Ok(Self { left: all.into_iter(), last, folders })
    }

    /// The number of the last item.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The next result; `None` after the last one. A task that was removed since is left out.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<ItemResult>, OpsError> {
        for (number, id) in self.left.by_ref() {
            let Some(found) = store.show(TaskRef::Id(id)).await? else { continue };
            let output = AttemptOutput::of_last(store, &found).await?;
            let folder = self.folders.as_ref().map(|folders| folders.of(id));
            return Ok(Some(ItemResult { number, found, output, folder }));
        }
        Ok(None)
    }
}

/// Names for the files of items, which are safe as file names and differ also where upper and lower case are the same.
#[derive(Clone, Debug, Default)]
pub struct FileNames {
    /// The hashes of the names that are taken: a job may have millions of items. Two names with one hash are only told apart more often.
    taken: HashSet<u64>,
    hashes: RandomState,
}

impl FileNames {
    /// The maximum length of a name in bytes, without what tells it from another one.
    const MAX_BYTES: usize = 120;

    /// The name for the item with this number: the item with `_` for what is not a letter, a digit, or one of `.-+@,=`.
    pub fn of(&mut self, number: u64, item: &[u8]) -> String {
        let text = String::from_utf8_lossy(item);
        let safe = |c: char| if c.is_alphanumeric() || ".-+@,=".contains(c) { c } else { '_' };
        let mut name: String = text.chars().map(safe).collect();
        // Such a name is hidden, or looks like an option.
        if name.is_empty() || name.starts_with(['.', '-']) {
            name.insert(0, '_');
        }
        let mut name = beginning(&name, Self::MAX_BYTES).to_owned();
        while !self.taken.insert(self.hashes.hash_one(name.to_lowercase())) {
            name.push_str(&format!("-{number}"));
        }
        name
    }
}

impl ItemResult {
    #[must_use]
    pub fn view(&self) -> JobResultView {
        let task = &self.found.task.payload;
        let payload = ItemPayload::of(task);
        let item =
            self.item().map_or_else(|| task.clone(), |item| String::from_utf8_lossy(&item).into_owned());
        let AttemptOutput { stdout, stderr, files, .. } = &self.output;
        let view = JobResultView::new(self.number, item, &self.found, stdout, files.clone());
        JobResultView {
            folder: self.folder.clone(),
            stderr: Some(String::from_utf8_lossy(stderr).into_owned()).filter(|stderr| !stderr.is_empty()),
            command: payload.filter(|payload| !payload.argv.is_empty()).map(|payload| payload.command()),
            ..view
        }
    }

    /// The item; `None` if the task has another payload.
    #[must_use]
    pub fn item(&self) -> Option<Vec<u8>> {
        ItemPayload::of(&self.found.task.payload).map(|payload| payload.item.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe_and_differ() {
        let mut names = FileNames::default();
        let items: [(&[u8], &str); 10] = [
            (b"docs/a.md", "docs_a.md"),
            (b"docs_a.md", "docs_a.md-2"),
            (b"Docs/A.md", "Docs_A.md-3"),
            (b"..", "_.."),
            (b"-rf", "_-rf"),
            (b"", "_"),
            (b"a b\n$(x)", "a_b___x_"),
            ("größer".as_bytes(), "größer"),
            (b"\xff", "_-9"),
            (b"docs_a.md-2", "docs_a.md-2-10"),
        ];
        for ((item, expected), number) in items.into_iter().zip(1..) {
            assert_eq!(names.of(number, item), expected);
        }
        assert!(names.of(11, &[b'x'; 300]).len() <= 120);
    }
}
