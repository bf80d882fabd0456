//! Finds descendants in /proc, and kills them without ever hitting a stranger.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable by which a descendant says whose it is.
pub(super) const MARK: &str = "OSTLER_CHILD";

/// One process, as /proc had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    state: char,
    started: u64,
}

/// All processes at one moment.
pub(super) struct Snapshot(Vec<Process>);

impl Snapshot {
    pub(super) fn take() -> Self {
        let Ok(entries) = fs::read_dir("/proc") else { return Self(Vec::new()) };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(look).collect())
    }

    /// The children of a process.
    pub(super) fn children_of(&self, parent: i32) -> impl Iterator<Item = Process> {
        self.0.iter().copied().filter(move |process| process.parent == parent)
    }

    /// A process with all that descends from it.
    pub(super) fn subtree(&self, root: i32) -> Vec<Process> {
        let mut found: Vec<_> = self.0.iter().copied().filter(|process| process.pid == root).collect();
        let mut seen = HashSet::from([root]);
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let parent = process.pid;
            found.extend(self.children_of(parent).filter(|child| seen.insert(child.pid)));
            next += 1;
        }
        found
    }
}

impl Process {
    /// Whether it only waits to be reaped.
    pub(super) const fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// The mark it bears. One that cleared its environment, or belongs to somebody else, has none that can be seen.
    pub(super) fn mark(&self) -> Option<String> {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let mark = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(mark.to_vec()).ok()
    }

    /// Kills it. Its pid may have gone to a stranger since the snapshot, so it is held first, then looked at again.
    pub(super) fn kill(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if look(self.pid).is_some_and(|now| now.started == self.started) {
            // It may be dead already, or not ours to kill: there is nothing else to be done then.
            let _ = pidfd_send_signal(held, Signal::KILL);
        }
    }
}

fn look(pid: i32) -> Option<Process> {
    // The name stands in brackets and may contain anything, brackets too: what counts comes after the last one.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    const FIELDS_BETWEEN: usize = 17;
    let started = fields.nth(FIELDS_BETWEEN)?.parse().ok()?;
    Some(Process { pid, parent, state, started })
}
