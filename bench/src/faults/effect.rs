//! What a task of a fault run does: it leaves a durable line when it begins and one when it ends, and holds a lock of its own
//! meanwhile, so that a second run of the same task at the same time is seen by that run itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::Error;
use crate::child::monotonic;
use crate::stats::Samples;

/// The word of the command line that makes this program the work of a task. Not for people.
pub(crate) const WORD: &str = "effect";
/// The log of all runs, and the folder of their locks.
const LOG: &str = "effects";
const LOCKS: &str = "running";

/// The work itself: one run of the task `id`, for so long.
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

/// Makes the places that runs write to.
pub(super) fn prepare(folder: &Path) -> Result<(), Error> {
    File::create(folder.join(LOG))?;
    Ok(std::fs::create_dir(folder.join(LOCKS))?)
}

/// What the log of a run tells.
pub(super) struct Effects {
    /// Runs that began.
    pub(super) begun: usize,
    /// Runs that began while another run of the same task went on.
    pub(super) overlaps: usize,
    /// From a fault to the next begin of each task that it interrupted.
    pub(super) recovery: Samples,
}

impl Effects {
    /// Reads the log. `faults` are the moments at which something was killed or stopped.
    pub(super) fn read(folder: &Path, faults: &[Duration]) -> Result<Self, Error> {
        let log = std::fs::read_to_string(folder.join(LOG))?;
        let mut read = Self { begun: 0, overlaps: 0, recovery: Samples::default() };
        // Runs that have begun and not ended, by task.
        let mut open: BTreeMap<&str, Duration> = BTreeMap::new();
        for line in log.lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(id), Some(at)) = (words.next(), words.next(), words.next()) else {
                continue; // A line that was being written when its program was killed.
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
