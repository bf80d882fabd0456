//! Control groups (cgroup v2): a process started in one stays in it, whatever else it leaves, and all members can be killed at once.
//!
//! The supervisor has one folder, in the group that it runs in itself, and below it one group for each running child. Groups are
//! reused: creating and removing one takes much longer than checking that it is empty.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::controllers::{hand_on, limit, place_for_groups};
use super::frame::About;
use super::spawn::{SpawnPlan, start};
use crate::descriptors;
use crate::sandbox::Limits;

/// The prefix of the supervisors' folders.
const PREFIX: &str = "ostler-";
/// How often another process may mistake a new folder for one that a dead supervisor left.
const MAX_TRIES: u32 = 8;
/// The members of a group.
const MEMBERS: &str = "cgroup.procs";
/// Whether there are processes in the group, or in one below it.
const EVENTS: &str = "cgroup.events";
/// Bytes of the events file, at most. It has two short lines today.
const EVENTS_BYTES: usize = 256;
/// How long killed processes may take to exit before their group is left where it is.
const MAX_DYING: Duration = Duration::from_secs(5);

/// The groups of one supervisor.
pub(super) struct Cgroups {
    folder: PathBuf,
    /// Held as long as the supervisor lives.
    _lock: File,
    made: u64,
    /// Empty groups.
    idle: Vec<Cgroup>,
    /// Groups whose members were killed.
    dying: Vec<Cgroup>,
}

/// The group of one child. Keeps no file open: there are as many groups as concurrent children, and descriptors are limited.
#[derive(Debug)]
pub(super) struct Cgroup {
    folder: PathBuf,
    /// The limits of its last child.
    limits: Limits,
}

impl Cgroups {
    /// Creates the folder, and tests that a child can be put into a group and killed there.
    pub(super) fn new() -> io::Result<Self> {
        let place = place_for_groups(own_folder()?);
        remove_abandoned(&place);
        let mut groups = Self::claim(&place)?;
        let group = groups.take()?;
        prove(&group)?;
        groups.idle.push(group);
        Ok(groups)
    }

    fn claim(place: &Path) -> io::Result<Self> {
        let mut refused = io::Error::from(Errno::AGAIN);
        for attempt in 0..MAX_TRIES {
            let folder = place.join(format!("{PREFIX}{}-{attempt}", getpid()));
            match fs::create_dir(&folder).and_then(|()| locked(&folder)) {
                Ok(lock) => {
                    let (idle, dying) = (Vec::new(), Vec::new());
                    return Ok(Self { folder, _lock: lock, made: 0, idle, dying });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns an empty group.
    pub(super) fn take(&mut self) -> io::Result<Cgroup> {
        if let Some(group) = self.idle.pop() {
            return Ok(group);
        }
        self.made += 1;
        let folder = self.folder.join(self.made.to_string());
        fs::create_dir(&folder)?;
        Ok(Cgroup { folder, limits: Limits::default() })
    }

    /// Sets the limits of the next child in a group.
    pub(super) fn limit(&self, group: &mut Cgroup, limits: &Limits) -> io::Result<()> {
        let limits = limits.of_group();
        if group.limits != limits {
            hand_on(&self.folder, &limits)?;
            limit(&group.folder, &limits)?;
            group.limits = limits;
        }
        Ok(())
    }

    /// Takes the group of a child that has ended; remaining members are killed.
    pub(super) fn end(&mut self, group: Cgroup) {
        if group.is_empty().is_ok_and(|is_empty| is_empty) {
            self.idle.push(group);
        } else {
            group.kill();
            self.dying.push(group);
        }
    }

    /// Called after a process has died: a group may have become empty.
    pub(super) fn settle(&mut self) {
        for group in std::mem::take(&mut self.dying) {
            self.end(group);
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let _ = remove(&self.folder);
    }
}

impl Cgroup {
    /// The list of members, in which a child enters itself.
    pub(super) fn entrance(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.folder.join(MEMBERS))
    }

    fn is_empty(&self) -> io::Result<bool> {
        is_empty(&File::open(self.folder.join(EVENTS))?)
    }

    /// Kills all members.
    pub(super) fn kill(&self) {
        if kill_all(&self.folder).is_err() {
            // The kernel is too old for `cgroup.kill`.
            self.kill_each();
        }
    }

    /// Processes started in the meantime are found by the next pass. Groups below are not searched.
    fn kill_each(&self) {
        for pid in self.list() {
            let Some(Ok(held)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
                continue;
            };
            // The pid may have been reused: a process that is listed while its pidfd is open is a member.
            if self.list().contains(&pid) {
                let _ = pidfd_send_signal(held, Signal::KILL);
            }
        }
    }

    fn list(&self) -> Vec<i32> {
        let list = fs::read_to_string(self.folder.join(MEMBERS)).unwrap_or_default();
        list.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Starts a child without a program in the group, as a test.
fn prove(group: &Cgroup) -> io::Result<()> {
    let nothing = File::open("/dev/null")?;
    let entrance = group.entrance()?;
    let stdio = [nothing.as_fd(); 3];
    let cgroup = Some(entrance.as_fd());
    let plan = SpawnPlan {
        programs: &[],
        argv: &[],
        env: &[],
        folder: None,
        start: None,
        descriptors: descriptors::of_children(None),
        stdio,
        socket: None,
        cgroup,
        ruleset: None,
    };
    match start(&plan) {
        Err((About::Program, error)) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(()),
        Err((_, error)) => Err(error),
        Ok(_) => Err(Errno::INVAL.into()),
    }
}

/// The folder of the control group of this process.
pub(crate) fn own_folder() -> io::Result<PathBuf> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "there is no cgroup2 file system here");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).ok_or_else(none)?;
    mounts.lines().find_map(|line| place(line, own)).ok_or_else(none)
}

/// The path of a group under a mount, if that is a cgroup2 mount and shows the group.
fn place(mount: &str, group: &str) -> Option<PathBuf> {
    let (mount, kind) = mount.split_once(" - ")?;
    if kind.split(' ').next() != Some("cgroup2") {
        return None;
    }
    // Mount id, parent, device; then root and mount point.
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = Path::new(group).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

fn locked(folder: &Path) -> io::Result<File> {
    let lock = File::open(folder)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    // Another process may have held the lock, and removed the folder.
    fs::metadata(folder)?;
    Ok(lock)
}

/// Removes the groups of supervisors that were killed together with their nodes: their locks are free.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_supervisors = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_supervisors && locked(&entry.path()).is_ok() {
            let _ = remove(&entry.path());
        }
    }
}

fn kill_all(folder: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(folder.join("cgroup.kill"))?.write_all(b"1")
}

/// Kills all processes in a supervisor's groups, and removes the groups.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    let _ = kill_all(folder);
    until_empty(folder)?;
    remove_empty(folder)
}

/// Removes a group, with the groups created below it.
fn remove_empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// Waits until the group and those below are empty, up to a timeout.
fn until_empty(folder: &Path) -> io::Result<()> {
    let events = File::open(folder.join(EVENTS))?;
    let until = Instant::now() + MAX_DYING;
    while !is_empty(&events)? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn is_empty(events: &File) -> io::Result<bool> {
    let mut text = [0; EVENTS_BYTES];
    let read = events.read_at(&mut text, 0)?;
    Ok(text[..read].split(|byte| *byte == b'\n').any(|line| line == b"populated 0"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_own_group_is_found_under_the_mount_that_shows_it() {
        let mount =
            |root: &str, kind: &str| format!("41 31 0:38 {root} /sys/fs/cgroup/unified rw - {kind} none rw");
        let found = |root, kind, group| place(&mount(root, kind), group);
        let folder = |path: &str| Some(PathBuf::from(path));
        assert_eq!(found("/", "cgroup2", "/"), folder("/sys/fs/cgroup/unified/"));
        assert_eq!(found("/", "cgroup2", "/a/b"), folder("/sys/fs/cgroup/unified/a/b"));
        assert_eq!(found("/a", "cgroup2", "/a/b"), folder("/sys/fs/cgroup/unified/b"));
        assert_eq!(found("/c", "cgroup2", "/a/b"), None, "it is not under this mount");
        assert_eq!(found("/", "cgroup", "/a"), None, "the first version has no such file");
    }

    #[test]
    fn members_are_killed_one_by_one_where_they_cannot_be_at_once() {
        let mut groups = match Cgroups::new() {
            Ok(groups) => groups,
            Err(error) => return println!("left out: there are no control groups here: {error}"),
        };
        let (group, other) = (groups.take().expect("a group"), groups.take().expect("a group"));
        let mut children: Vec<_> = [&group, &group, &other]
            .map(|group| {
                let child = Command::new("sleep").arg("600").spawn().expect("it starts");
                let mut entrance = group.entrance().expect("there is a list");
                entrance.write_all(child.id().to_string().as_bytes()).expect("it goes in");
                child
            })
            .into();
        assert!(!group.is_empty().expect("it can be read"));
        group.kill_each();
        let mut third = children.pop().expect("there are three");
        for child in &mut children {
            assert_eq!(child.wait().expect("it is dead").signal(), Some(Signal::KILL.as_raw()));
        }
        until_empty(&group.folder).expect("no process is left");
        assert!(third.try_wait().expect("it is ours").is_none(), "another group is left alone");
        other.kill();
        third.wait().expect("it is dead");

        let folder = groups.folder().to_owned();
        drop(groups);
        assert!(!folder.exists(), "nothing is left of the groups");
    }
}
