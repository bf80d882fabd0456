//! The work of a task in a fault run: it writes a durable line when it begins and one when it ends, and holds a lock for the task
//! in between, so that an overlapping run of the same task detects itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::Error;
use crate::child::monotonic;
use crate::stats::Samples;

/// The argument that makes this program run the work of a task. Internal.
pub(crate) const WORD: &str = "effect";
/// The log of all runs, and the folder of their locks.
const LOG: &str = "effects";
const LOCKS: &str = "running";

/// One run of the task `id`, for this long.
pub(crate) fn run(folder: &Path, id: &str, time: Duration) -> Result<(), Error> {
    let lock = File::create(folder.join(LOCKS).join(id))?;
    let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    note(folder, if alone { "begin" } else { "overlap" }, id)?;
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let _ = pause.recv_timeout(time);
    note(folder, "end", id)
}

fn note(folder: &Path, what: &str, id: &str) -> Result<(), Error> {
    let line = format!("{what} {id} {}\n", monotonic().as_micros());
    let mut log = OpenOptions::new().append(true).create(true).open(folder.join(LOG))?;
    log.write_all(line.as_bytes())?;
    Ok(log.sync_data()?)
}

/// Creates the log and the folder of locks.
pub(super) fn prepare(folder: &Path) -> Result<(), Error> {
    File::create(folder.join(LOG))?;
    Ok(std::fs::create_dir(folder.join(LOCKS))?)
}

/// The summary of a run's log.
pub(super) struct Effects {
    /// Runs that began.
    pub(super) begun: usize,
    /// Runs that began during another run of the same task.
    pub(super) overlaps: usize,
    /// The time from a fault to the next start of each task that it interrupted.
    pub(super) recovery: Samples,
}

impl Effects {
    /// Reads the log. `faults` are the times at which something was killed or stopped.
    pub(super) fn read(folder: &Path, faults: &[Duration]) -> Result<Self, Error> {
        let log = std::fs::read_to_string(folder.join(LOG))?;
        let mut read = Self { begun: 0, overlaps: 0, recovery: Samples::default() };
        // Runs that have begun and not ended, by task.
        let mut open: BTreeMap<&str, Duration> = BTreeMap::new();
        for line in log.lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(id), Some(at)) = (words.next(), words.next(), words.next()) else {
                continue; // A line cut short when its program was killed.
            };
            let Ok(at) = at.parse().map(Duration::from_micros) else { continue };
            if what == "end" {
                open.remove(id);
                continue;
            }
            read.begun += 1;
            read.overlaps += usize::from(what == "overlap");
            if let Some(before) = open.insert(id, at) {
                let fault = faults.iter().find(|fault| **fault >= before && **fault <= at);
                if let Some(fault) = fault {
                    read.recovery.add(at - *fault);
                }
            }
        }
        Ok(read)
    }
}
