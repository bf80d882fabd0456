//! Unanswered requests: what a request has used so far, written down until the attempt has reported it. If the node is killed meanwhile, the
//! next attempt of the task counts it, on the same machine.
//!
//! A task has one small file, which is written before its request is sent, and removed with its answer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::state_folder;
use ostler_core::{TaskId, Usage};
use tokio::time::Instant;

use crate::executor::home::{COUNT_INTERVAL, SeenUsage, private_folder, replace};

/// How long a file is kept whose task has no other attempt: as long as failed tasks are, which can be replayed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Files that are looked at in one sweep.
const MAX_SWEPT: usize = 100_000;

/// The folder of all pools that do not say where theirs is.
pub(super) fn usual_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("llm"))
}

/// Removes files that are left of tasks without another attempt.
pub(super) fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.take(MAX_SWEPT) {
        let changed = entry.metadata().and_then(|found| found.modified()).ok();
        if changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > KEPT) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The file of one task.
#[derive(Debug)]
pub(super) struct UnansweredRequest {
    /// `None`: nothing is written down.
    path: Option<PathBuf>,
    written: Option<Instant>,
}

impl UnansweredRequest {
    pub(super) fn of(task: TaskId, folder: Option<&Path>) -> Self {
        Self { path: folder.map(|folder| folder.join(format!("{task}.json"))), written: None }
    }

    /// What an attempt had used when its node was killed. A file that cannot be read says nothing.
    pub(super) fn lost(&self) -> Vec<Usage> {
        let json = self.path.as_ref().and_then(|path| std::fs::read(path).ok());
        let seen = json.and_then(|json| serde_json::from_slice::<Vec<SeenUsage>>(&json).ok());
        seen.unwrap_or_default().into_iter().map(Usage::from).collect()
    }

    /// A request is about to be sent, which uses at least this.
    pub(super) fn begins(&mut self, usage: &Usage) -> io::Result<()> {
        if let Some(folder) = self.path.as_ref().and_then(|path| path.parent()) {
            private_folder(folder)?;
        }
        self.write(usage)
    }

    /// It has used this so far. Written at most once in [`COUNT_INTERVAL`].
    pub(super) fn has_used(&mut self, usage: &Usage) -> io::Result<()> {
        if self.written.is_some_and(|at| at.elapsed() < COUNT_INTERVAL) {
            return Ok(());
        }
        self.write(usage)
    }

    /// All that was used is reported.
    pub(super) fn is_reported(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }

    fn write(&mut self, usage: &Usage) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.written = Some(Instant::now());
        replace(path, &serde_json::to_vec(&[SeenUsage::from(usage)])?)
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Cost, Id};

    use super::*;

    fn used(output_tokens: u64) -> Usage {
        Usage { output_tokens, cost: Some(Cost::from_nanos(output_tokens)), ..Usage::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_request_has_used_is_there_for_the_next_attempt_until_it_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("llm");
        let task = TaskId(Id::from_bits(1));
        let of = |task| UnansweredRequest::of(task, Some(&folder));
        let mut request = of(task);
        assert_eq!(request.lost(), []);
        request.begins(&used(0)).and_then(|()| request.has_used(&used(5))).expect("it is written");
        assert_eq!(of(task).lost(), [used(0)], "not more often than each second");
        tokio::time::advance(COUNT_INTERVAL).await;
        request.has_used(&used(7)).expect("it is written");
        assert_eq!(of(task).lost(), [used(7)]);
        assert_eq!(of(TaskId(Id::from_bits(2))).lost(), []);
        sweep(&folder);
        assert_eq!(of(task).lost(), [used(7)], "it is not old");
        request.is_reported();
        assert_eq!(of(task).lost(), []);
    }
}
