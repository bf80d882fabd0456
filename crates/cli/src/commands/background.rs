//! The node for commands of `ostler add`: started in the background when none is up, at most one for each store and user.
//!
//! A lock file in the state folder is held by the node that takes such commands. `ostler add` takes it, and hands it to the node that it
//! starts as its standard input: so of two callers at once one starts a node, and the lock is free when that node is gone, however it
//! went. The node gives it up when it begins to drain.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use ostler_ops::added::{StoreReach, is_served};
use ostler_store::Store;
use rustix::fs::{FlockOperation, flock};
use tokio::time::Instant;

use super::{Console, config};
use crate::config::StoreUrl;
use crate::exit::{Code, refused, say};
use crate::leftovers::mark_of;
use crate::print::visible;
use crate::store_location::{STORE_VARIABLE, StoreLocation, state_folder};

use super::up::machine;

/// How long a node may take to start.
const MAX_START: Duration = Duration::from_secs(20);
/// How often to look whether another caller's node is up.
const LOOK: Duration = Duration::from_millis(50);
/// A larger log is set aside when a node starts.
const MAX_LOG_BYTES: u64 = 10 << 20;
/// The end of the log that is read if the node does not start.
const LOG_END_BYTES: u64 = 4 << 10;

/// The queue of added commands on this store.
pub(super) fn command_queue(store: &StoreUrl) -> String {
    match store {
        StoreUrl::Sqlite(_) => StoreReach::OneMachine.queue(),
        StoreUrl::Postgres(_) => StoreReach::ManyMachines(&machine()).queue(),
    }
}

/// The name of the node that serves them.
pub(super) fn node_name() -> String {
    format!("{}-commands", machine())
}

/// The lock of the node for the commands of a store, and its log.
pub(super) struct NodeFiles {
    lock: PathBuf,
    log: PathBuf,
    folder: PathBuf,
}

impl NodeFiles {
    pub(super) fn of(store: &StoreUrl) -> anyhow::Result<Self> {
        let folder = state_folder().context("the node for added commands needs a folder for its log")?;
        let file = |end: &str| folder.join(format!("commands-{}.{end}", mark_of(store).0));
        Ok(Self { lock: file("lock"), log: file("log"), folder })
    }

    /// Takes the lock; `None`: a node has it, or one is being started.
    pub(super) fn try_lock(&self) -> anyhow::Result<Option<File>> {
        let about = || format!("the lock file {} cannot be used", self.lock.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.lock).with_context(about)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(about),
        }
    }

    fn open_log(&self) -> anyhow::Result<File> {
        if std::fs::metadata(&self.log).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
            // If it cannot be renamed, it grows.
            let _ = std::fs::rename(&self.log, self.log.with_extension("log.old"));
        }
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.log);
        opened.with_context(|| format!("the log {} cannot be written", self.log.display()))
    }

    /// The last line of the log.
    fn last_line(&self) -> Option<String> {
        use std::io::{Seek as _, SeekFrom};
        let mut file = File::open(&self.log).ok()?;
        let size = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LOG_END_BYTES))).ok()?;
        let mut end = Vec::new();
        file.take(LOG_END_BYTES).read_to_end(&mut end).ok()?;
        String::from_utf8_lossy(&end).lines().rev().find(|line| !line.trim().is_empty()).map(visible)
    }
}

/// Gives the lock up, wherever its copies are open: the node that has it takes no more commands.
pub(super) fn unlock(lock: impl AsFd) {
    // It is free at the latest when the process ends.
    let _ = flock(lock, FlockOperation::Unlock);
}

/// Starts a node for added commands, unless one is up.
pub(super) async fn ensure(
    console: &Console,
    place: &StoreLocation,
    store: &dyn Store,
    queue: &str,
) -> anyhow::Result<()> {
    let files = NodeFiles::of(place.url())?;
    let name = node_name();
    let until = Instant::now() + MAX_START;
    loop {
        let survey = store.survey().await?;
        match files.try_lock()? {
            // One of this name that the store still has is dead, or ends.
            Some(_) if is_served(&survey, queue, Some(&name)) => return Ok(()),
            Some(lock) => return start(console, place, &files, lock, &name).await,
            None if is_served(&survey, queue, None) => return Ok(()),
            None if Instant::now() > until => {
                let log = files.log.display();
                let sentence =
                    format!("another process starts a node for it, and that is not up yet; its log: {log}");
                return Err(refused(Code::Store, sentence));
            }
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn start(
    console: &Console,
    place: &StoreLocation,
    files: &NodeFiles,
    lock: File,
    name: &str,
) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe().context("this program cannot find itself")?);
    command.args(["up", "--commands", "--background", "--listen", "none"]);
    if let Some(file) = config::here() {
        command.arg("--config").arg(std::path::absolute(file)?);
    }
    if console.names_store() {
        command.env(STORE_VARIABLE, address(place.url())?);
    }
    command.env_remove(super::SERVER_VARIABLE).current_dir(&files.folder);
    let mut child = command
        .stdin(Stdio::from(lock))
        .stdout(Stdio::piped())
        .stderr(Stdio::from(files.open_log()?))
        .spawn()
        .context("a node cannot be started")?;
    let out = child.stdout.take().context("the output of the node is a pipe")?;
    // It prints one line when it is up. The pipe ends when it is not.
    let first = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map(|_| line)
    });
    let line = tokio::time::timeout(MAX_START, first).await;
    let is_up = matches!(&line, Ok(Ok(Ok(line))) if !line.is_empty());
    let log = files.log.display();
    if !is_up {
        let why = files.last_line().map(|line| format!(": {line}")).unwrap_or_default();
        let sentence = format!("the task is stored, but no node for it could be started{why} (log: {log})");
        return Err(refused(Code::Store, sentence));
    }
    say(&format!("started a node in the background; to stop it: ostler drain {name}; its log: {log}"));
    Ok(())
}

/// The address of the store for a process in another folder.
fn address(store: &StoreUrl) -> anyhow::Result<std::ffi::OsString> {
    Ok(match store {
        StoreUrl::Sqlite(path) => absolute_url(path)?,
        StoreUrl::Postgres(address) => address.secret().into(),
    })
}

fn absolute_url(path: &Path) -> anyhow::Result<std::ffi::OsString> {
    let mut url = std::ffi::OsString::from("sqlite:");
    url.push(std::path::absolute(path)?);
    Ok(url)
}
