//! The audit: an append-only file of changes that were made by hand, with who, from where, what and how many.
//!
//! A change is recorded twice: before it is made, so that no change is without a record, and with its result before the answer is sent.
//! Both lines are on disk when the call returns. Each line is one JSON object; both lines of a change have its number.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ostler_wire::audit::{AuditView, Change, ChangeResult};

/// The file is set aside at this size; one that was set aside before is replaced.
const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug)]
struct OpenAudit {
    file: File,
    bytes: u64,
    next: u64,
}

/// The record of changes.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    open: Arc<Mutex<OpenAudit>>,
}

impl Audit {
    /// Opens or creates the file, which only its owner can read.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = append_to(path)?;
        let bytes = file.metadata()?.len();
        let next = last_number(path)? + 1;
        Ok(Self { path: path.to_owned(), open: Arc::new(Mutex::new(OpenAudit { file, bytes, next })) })
    }

    /// Records a change that is about to be made. Returns its number.
    pub(crate) async fn begin(&self, change: Change) -> io::Result<u64> {
        tracing::info!(
            target: "ostler::audit", who = change.who, from = change.from, operation = change.operation,
            target_path = change.target, "change by hand"
        );
        let audit = self.clone();
        blocking(move || {
            let mut open = audit.open.lock().expect("no panic while the audit is held");
            let number = open.next;
            let view = AuditView::new(number, change, None);
            audit.write(&mut open, &view)?;
            open.next += 1;
            Ok(number)
        })
        .await
    }

    /// Records what became of a change.
    pub(crate) async fn end(&self, number: u64, change: Change, result: ChangeResult) -> io::Result<()> {
        let audit = self.clone();
        blocking(move || {
            let view = AuditView::new(number, change, Some(result));
            audit.write(&mut audit.open.lock().expect("no panic while the audit is held"), &view)
        })
        .await
    }

    /// The newest records, the newest first.
    pub(crate) async fn newest(&self, limit: usize) -> io::Result<Vec<AuditView>> {
        let path = self.path.clone();
        blocking(move || {
            let mut all: Vec<AuditView> = Vec::new();
            for line in BufReader::new(File::open(&path)?).lines() {
                // A line that a crash cut short is left out.
                let Ok(view) = serde_json::from_str::<AuditView>(&line?) else { continue };
                match all.iter_mut().rev().take(64).find(|known| known.number == view.number) {
                    Some(known) => known.result = view.result,
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

    fn write(&self, open: &mut OpenAudit, view: &AuditView) -> io::Result<()> {
        if open.bytes > MAX_FILE_BYTES {
            std::fs::rename(&self.path, self.path.with_extension("jsonl.1"))?;
            (open.file, open.bytes) = (append_to(&self.path)?, 0);
        }
        let line = serde_json::to_string(view)? + "\n";
        open.file.write_all(line.as_bytes())?;
        open.bytes += line.len() as u64;
        open.file.sync_data()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

fn last_number(path: &Path) -> io::Result<u64> {
    let mut last = 0;
    for line in BufReader::new(File::open(path)?).lines() {
        if let Ok(view) = serde_json::from_str::<AuditView>(&line?) {
            last = last.max(view.number);
        }
    }
    Ok(last)
}
