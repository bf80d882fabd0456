//! The children of the supervisor: starts them, kills them, and sweeps their orphans.
//!
//! An orphan is reparented to the supervisor before its parent can be reaped. So after each reaping the list of the
//! supervisor's own children is complete: those it did not start are orphans. They are killed with all their descendants,
//! unless they belong to a living child. Their deaths trigger the next sweep, until none is left.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{
    Pid, Rlimit, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process, kill_process_group,
    wait, waitid, waitpid,
};

use super::cgroup::{Cgroup, Cgroups};
use super::descendants::{Finder, mark};
use super::frame::{About, Contained, Containment, Exit, Folder, Socket, Spawn, Stdin};
use super::launch::{OpenFolders, launch};
use crate::descriptors;

pub(super) struct Children {
    me: i32,
    finder: Finder,
    /// `/dev/null`, for children without input.
    nothing: OwnedFd,
    /// The descriptor limit of each child.
    descriptors: Rlimit,
    /// The control groups of children, if they are used.
    cgroups: Option<Cgroups>,
    /// Children that are not reaped: their pids, and so their process groups, cannot be reused.
    living: BTreeMap<u64, Living>,
    /// Child ids by pid.
    ids: HashMap<i32, u64>,
}

struct Living {
    pid: Pid,
    cgroup: Option<Cgroup>,
}

/// When to reap again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReapTimer {
    /// At once: a reaped process may have left orphans that were not listed yet.
    Again,
    WhenChildDies,
}

impl Children {
    /// For the supervisor with this pid. The calling thread must make all further calls.
    pub(super) fn of(me: i32) -> io::Result<Self> {
        let nothing = File::open("/dev/null")?.into();
        let (living, ids) = (BTreeMap::new(), HashMap::new());
        let descriptors = descriptors::of_children(None);
        Ok(Self { me, finder: Finder::new(me), nothing, descriptors, cgroups: None, living, ids })
    }

    /// Sets the soft descriptor limit of children started from now on; `None`: as many as the supervisor may have.
    pub(super) fn let_have(&mut self, soft: Option<u64>) {
        self.descriptors = descriptors::of_children(soft);
    }

    /// Sets how children are contained from now on, and returns the containment in use.
    pub(super) fn contain(&mut self, how: Containment) -> io::Result<Contained> {
        self.cgroups = match how {
            Containment::Group => None,
            Containment::Cgroup => Some(Cgroups::new()?),
            Containment::Auto => Cgroups::new().ok(),
        };
        Ok(match self.cgroups {
            Some(_) => Contained::Cgroup,
            None => Contained::Group,
        })
    }

    /// The folder of the control groups.
    pub(super) fn cgroup(&self) -> Option<&Path> {
        self.cgroups.as_ref().map(Cgroups::folder)
    }

    pub(super) fn spawn(
        &mut self,
        spawn: Spawn,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Pid, (About, io::Error)> {
        let id = spawn.id;
        let mut stdio = descriptors;
        if spawn.stdin == Stdin::Nothing {
            stdio.insert(0, self.nothing.try_clone().map_err(|error| (About::Program, error))?);
        }
        // The kernel drops descriptors that exceed the receiver's limit.
        let missing = || (About::Program, Errno::MFILE.into());
        let (mut start, mut own) = (None, None);
        for folder in spawn.folders.iter().rev() {
            let opened = stdio.pop().ok_or_else(missing)?;
            match folder {
                Folder::Start => start = Some(opened),
                Folder::Own => own = Some(opened),
            }
        }
        let socket = match spawn.socket {
            Socket::None => None,
            Socket::Pair => Some(stdio.pop().ok_or_else(missing)?),
        };
        let stdio = stdio.try_into().map_err(|_| missing())?;
        let cgroup = self.cgroups.as_mut().map(Cgroups::take).transpose();
        let mut cgroup = cgroup.map_err(|error| (About::Containment, error))?;
        if let Err(error) = self.limit(cgroup.as_mut(), &spawn) {
            self.end_cgroup(cgroup);
            return Err((About::Sandbox, error));
        }
        let entrance = cgroup.as_ref().map(Cgroup::entrance).transpose();
        let pid = entrance.map_err(|error| (About::Containment, error)).and_then(|entrance| {
            let (socket, entrance) = (socket.as_ref().map(AsFd::as_fd), entrance.as_ref().map(AsFd::as_fd));
            let folders =
                OpenFolders { start: start.as_ref().map(AsFd::as_fd), own: own.as_ref().map(AsFd::as_fd) };
            launch(spawn, &self.mark(id), self.descriptors, &stdio, socket, entrance, folders)
        });
        match pid {
            Ok(pid) => {
                self.living.insert(id, Living { pid, cgroup });
                self.ids.insert(pid.as_raw_pid(), id);
            }
            Err(_) => self.end_cgroup(cgroup),
        }
        pid
    }

    /// Sets the limits of the next child in the group, or removes them.
    fn limit(&self, cgroup: Option<&mut Cgroup>, spawn: &Spawn) -> io::Result<()> {
        let limits = spawn.confinement.as_ref().map(|confinement| confinement.limits).unwrap_or_default();
        match (&self.cgroups, cgroup) {
            (Some(cgroups), Some(cgroup)) => cgroups.limit(cgroup, &limits),
            (_, _) if limits == limits.of_process() => Ok(()),
            (_, _) => Err(io::Error::other(
                "memory and processes are limited by control groups, and children have none here",
            )),
        }
    }

    fn end_cgroup(&mut self, cgroup: Option<Cgroup>) {
        if let (Some(cgroups), Some(cgroup)) = (&mut self.cgroups, cgroup) {
            cgroups.end(cgroup);
        }
    }

    /// Sends SIGTERM to the child's process group.
    pub(super) fn terminate(&self, id: u64) {
        if let Some(child) = self.living.get(&id) {
            let _ = kill_process_group(child.pid, Signal::TERM);
        }
    }

    /// Kills the child and all its descendants. Orphans that the supervisor already has are found after the child's death.
    pub(super) fn kill(&self, id: u64) {
        if let Some(Living { pid, cgroup }) = self.living.get(&id) {
            // Look up the family first: it falls apart when its root dies.
            let family = self.finder.family(pid.as_raw_pid(), self.me);
            cgroup.iter().for_each(Cgroup::kill);
            let _ = kill_process_group(*pid, Signal::KILL);
            family.iter().for_each(|process| process.kill());
        }
    }

    /// Kills all children and all their descendants.
    pub(super) fn kill_all(&self) {
        self.living.keys().for_each(|id| self.kill(*id));
    }

    /// Called after a process has died: kills the orphans of children that have ended, and reaps. Returns the ended children.
    pub(super) fn settle(&mut self) -> (Vec<(u64, Exit)>, ReapTimer) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let dead = |(id, child): (&u64, &Living)| {
            let status = waitid(WaitId::Pid(child.pid), look).ok()??;
            Some((*id, exit(&status)?))
        };
        let dead: Vec<_> = self.living.iter().filter_map(dead).collect();
        self.cgroups.iter_mut().for_each(Cgroups::settle);
        for (id, _) in &dead {
            let Some(Living { pid, cgroup }) = self.living.remove(id) else { continue };
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            self.ids.remove(&pid.as_raw_pid());
            self.end_cgroup(cgroup);
        }
        (dead, self.sweep())
    }

    /// Kills the orphans of children that have ended, and reaps the dead ones.
    fn sweep(&self) -> ReapTimer {
        let mut look = ReapTimer::WhenChildDies;
        for pid in self.finder.own(self.me) {
            if self.ids.contains_key(&pid) {
                continue;
            }
            if matches!(waitpid(Pid::from_raw(pid), WaitOptions::NOHANG), Ok(Some(_))) {
                look = ReapTimer::Again;
            } else if !self.is_wanted(pid) {
                let family = self.finder.family(pid, self.me);
                kill_unreaped(pid);
                family.iter().for_each(|process| process.kill());
            }
        }
        look
    }

    /// Whether an orphan may belong to a living child. One without a mark may belong to any.
    fn is_wanted(&self, orphan: i32) -> bool {
        match mark(orphan) {
            Some(mark) => self.owner(&mark).is_some_and(|id| self.living.contains_key(&id)),
            None => !self.living.is_empty(),
        }
    }

    fn mark(&self, id: u64) -> String {
        format!("{}.{id}", self.me)
    }

    /// The child id in a mark, if this supervisor made it.
    fn owner(&self, mark: &str) -> Option<u64> {
        let (supervisor, id) = mark.split_once('.')?;
        if supervisor.parse() == Ok(self.me) { id.parse().ok() } else { None }
    }

    /// Called when the node is gone: kills until there is no child left to wait for. A process that escapes one round by a fork is the
    /// supervisor's own child in the next, so the end of all children is the end of all descendants.
    pub(super) fn end_all(&mut self) {
        loop {
            for Living { pid, cgroup } in self.living.values() {
                cgroup.iter().for_each(Cgroup::kill);
                let _ = kill_process_group(*pid, Signal::KILL);
            }
            let family = self.finder.family(self.me, self.me);
            family.iter().filter(|process| process.pid != self.me).for_each(|process| process.kill());
            self.finder.own(self.me).into_iter().for_each(kill_unreaped);
            let mut options = WaitOptions::empty();
            loop {
                match wait(options) {
                    Ok(Some((reaped, _))) => self.living.retain(|_, child| child.pid != reaped),
                    Ok(None) => break,
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                }
                options = WaitOptions::NOHANG;
            }
        }
    }
}

/// Kills a child of the supervisor's own. It is not reaped, so its pid cannot be reused, and no pidfd is needed: a supervisor without
/// free descriptors can still kill.
fn kill_unreaped(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may be dead already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn exit(status: &WaitIdStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}
