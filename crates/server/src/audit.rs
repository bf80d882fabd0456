//! The audit: an append-only file of changes that were made by hand, with who, from where, what and how many.
//!
//! A change is recorded twice: before it is made, so that no change is without a record, and with its result before the answer is sent.
//! Both lines are on disk when the call returns. Each line is one JSON object; both lines of a change have its number. An action on many
//! tasks that is started again adds two lines with the number that it has.
//!
//! Several processes write the file: a node, and `ostler mcp` beside it. Each line is written under a lock of the file, and numbers go on
//! after those that others have written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ostler_wire::audit::{AuditView, Change, ChangeResult};

/// The file is set aside at this size; one that was set aside before is replaced.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// How often it is opened again because another process has set it aside.
const MAX_REOPENED: u32 = 8;

/// The newest actions on many tasks whose numbers are known.
const MAX_KNOWN_ACTIONS: usize = 1_000;

#[derive(Debug)]
struct OpenAudit {
    file: File,
    /// Bytes of the file whose numbers are known.
    bytes: u64,
    /// The highest number.
    last: u64,
    /// The numbers of actions on many tasks, the oldest first.
    actions: VecDeque<(String, u64)>,
}

/// The record of changes.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    /// `None`: it was not opened yet.
    open: Arc<Mutex<Option<OpenAudit>>>,
}

impl Audit {
    /// Opens or creates the file, which only its owner can read.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let open = OpenAudit::at(path)?;
        Ok(Self { path: path.to_owned(), open: Arc::new(Mutex::new(Some(open))) })
    }

    /// A file that is opened or created with the first change.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), open: Arc::default() }
    }

    /// Records a change that is about to be made. Returns its number.
    pub(crate) async fn begin(&self, change: Change) -> io::Result<u64> {
        tracing::info!(
            target: "ostler::audit", who = change.who, from = change.from, operation = change.operation,
            target_path = change.target, "change by hand"
        );
        let audit = self.clone();
        blocking(move || {
            audit.write(|open| {
                let number = open.number_of(change.action.as_deref());
                AuditView::new(number, change, None)
            })
        })
        .await
    }

    /// Records what became of a change.
    pub(crate) async fn end(&self, number: u64, change: Change, result: ChangeResult) -> io::Result<()> {
        let audit = self.clone();
        blocking(move || {
            audit.write(|_| AuditView::new(number, change, Some(result)))?;
            Ok(())
        })
        .await
    }

    /// The newest records, the newest first.
    pub(crate) async fn newest(&self, limit: usize) -> io::Result<Vec<AuditView>> {
        let path = self.path.clone();
        blocking(move || {
            let (mut all, mut highest): (Vec<AuditView>, u64) = (Vec::new(), 0);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).lines() {
                // A line that a crash cut short is left out.
                let Ok(view) = serde_json::from_str::<AuditView>(&line?) else { continue };
                let mut records = all.iter_mut().rev();
                let is_known = view.number <= highest;
                highest = highest.max(view.number);
                match records.find(|known| is_known && known.number == view.number) {
                    Some(known) => known.add(view),
                    None => all.push(view),
                }
                if all.len() > 2 * limit {
                    all.drain(..all.len() - limit);
                }
            }
            all.reverse();
            all.truncate(limit);
            Ok(all)
        })
        .await
    }

    /// Writes a line while no other process does. Returns its number.
    fn write(&self, view: impl FnOnce(&mut OpenAudit) -> AuditView) -> io::Result<u64> {
        let mut held = self.open.lock().expect("no panic while the audit is held");
        let open = match &mut *held {
            Some(open) => open,
            none => none.insert(OpenAudit::at(&self.path)?),
        };
        open.lock(&self.path)?;
        let written = open.write(&self.path, view);
        // A lock that cannot be released ends with the file.
        open.file.unlock()?;
        written
    }
}

impl OpenAudit {
    fn at(path: &Path) -> io::Result<Self> {
        let mut open = Self { file: append_to(path)?, bytes: 0, last: 0, actions: VecDeque::new() };
        open.catch_up()?;
        Ok(open)
    }

    /// Locks the file that has the path now: another process may have set ours aside.
    fn lock(&mut self, path: &Path) -> io::Result<()> {
        for _ in 0..MAX_REOPENED {
            self.file.lock()?;
            let ours = self.file.metadata()?;
            let is_ours = |there: std::fs::Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
            if std::fs::metadata(path).is_ok_and(is_ours) {
                return self.catch_up();
            }
            // Numbers go on.
            (self.file, self.bytes) = (append_to(path)?, 0);
        }
        Err(io::Error::other("it is replaced again and again"))
    }

    /// Reads the numbers that others have written.
    fn catch_up(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if size < self.bytes {
            self.bytes = 0;
        }
        if size > self.bytes {
            self.file.seek(SeekFrom::Start(self.bytes))?;
            for line in BufReader::new(&self.file).lines() {
                if let Ok(view) = serde_json::from_str::<AuditView>(&line?) {
                    self.last = self.last.max(view.number);
                    if let Some(action) = view.action {
                        remember(&mut self.actions, action, view.number);
                    }
                }
            }
        }
        self.bytes = size;
        Ok(())
    }

    /// The number of a change: that of the same action if it is started again, or the next one.
    fn number_of(&mut self, action: Option<&str>) -> u64 {
        let known = self.actions.iter().rev().find(|(known, _)| Some(known.as_str()) == action);
        if let Some((_, number)) = known {
            return *number;
        }
        self.last += 1;
        if let Some(action) = action {
            remember(&mut self.actions, action.to_owned(), self.last);
        }
        self.last
    }

    fn write(&mut self, path: &Path, view: impl FnOnce(&mut Self) -> AuditView) -> io::Result<u64> {
        if self.bytes > MAX_FILE_BYTES {
            std::fs::rename(path, path.with_extension("jsonl.1"))?;
            let fresh = append_to(path)?;
            fresh.lock()?;
            (self.file, self.bytes) = (fresh, 0);
        }
        let view = view(self);
        let line = serde_json::to_string(&view)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        self.file.sync_data()?;
        Ok(view.number)
    }
}

/// Keeps the number of an action, if it is a new one.
fn remember(actions: &mut VecDeque<(String, u64)>, action: String, number: u64) {
    if actions.iter().rev().any(|(known, _)| *known == action) {
        return;
    }
    if actions.len() == MAX_KNOWN_ACTIONS {
        actions.pop_front();
    }
    actions.push_back((action, number));
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().read(true).append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use ostler_core::Timestamp;
    use ostler_testkit::scratch;

    use super::*;

    fn change(who: &str) -> Change {
        let (who, target) = (who.to_owned(), "POST /x".to_owned());
        Change { at: Timestamp::from_millis(0), who, from: None, operation: "x", target, action: None }
    }

    #[tokio::test]
    async fn an_action_that_is_started_again_has_the_record_that_it_had() {
        let folder = scratch();
        let path = folder.path().join("audit.jsonl");
        let action = |id: &str| Change { action: Some(id.to_owned()), ..change("owner") };
        let result = |tasks| ChangeResult { status: 202, tasks: Some(tasks) };
        let first = Audit::open(&path).expect("it opens");
        assert_eq!(first.begin(action("a")).await.expect("it is written"), 1);
        first.end(1, action("a"), result(3_000)).await.expect("it is written");
        assert_eq!(first.begin(change("owner")).await.expect("it is written"), 2);
        // Another process, as after a restart.
        let second = Audit::open(&path).expect("it opens");
        assert_eq!(second.begin(action("b")).await.expect("it is written"), 3);
        assert_eq!(second.begin(action("a")).await.expect("it is written"), 1);
        second.end(1, action("a"), result(2_000)).await.expect("it is written");
        assert_eq!(first.begin(action("b")).await.expect("it is written"), 3);
        let newest = first.newest(10).await.expect("it is read");
        let seen: Vec<_> = newest.iter().map(|view| (view.number, view.result.clone())).collect();
        assert_eq!(seen, [(3, None), (2, None), (1, Some(result(3_000)))]);
    }

    #[tokio::test]
    async fn two_processes_write_one_audit() {
        let folder = scratch();
        let path = folder.path().join("audit.jsonl");
        let (node, beside) = (Audit::open(&path).expect("it opens"), Audit::at(&path));
        let first = node.begin(change("node")).await.expect("it is written");
        let second = beside.begin(change("mcp")).await.expect("it is written");
        let third = node.begin(change("node")).await.expect("it is written");
        assert_eq!((first, second, third), (1, 2, 3));
        let result = |status| ChangeResult { status, tasks: None };
        beside.end(second, change("mcp"), result(200)).await.expect("it is written");
        // The file is set aside by one of them, and the other one goes on in the new one.
        std::fs::rename(&path, folder.path().join("audit.jsonl.1")).expect("it is renamed");
        assert_eq!(node.begin(change("node")).await.expect("it is written"), 4);
        assert_eq!(beside.begin(change("mcp")).await.expect("it is written"), 5);
        let newest = node.newest(10).await.expect("it is read");
        let seen: Vec<_> = newest.iter().map(|view| (view.number, view.who.as_str())).collect();
        assert_eq!(seen, [(5, "mcp"), (4, "node")]);
    }

    #[tokio::test]
    async fn what_only_looks_creates_no_audit() {
        let folder = scratch();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::at(&path);
        assert!(audit.newest(10).await.expect("there is none").is_empty());
        assert!(!path.exists());
    }
}
