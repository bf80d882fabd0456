//! The children that the supervisor has: starts them, ends them, and lets none of them leave anybody behind.
//!
//! Whoever loses its parent comes to the supervisor, before that parent can be reaped. So after each reaping the list of the
//! supervisor's own children tells all: those it did not start are what somebody left behind. They are killed with all that
//! descends from them, unless they belong to a child that lives. Their deaths lead to the next look, until nobody is left.

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
    /// What a child reads that reads nothing.
    nothing: OwnedFd,
    /// How many descriptors each of them may have.
    descriptors: Rlimit,
    /// Where children are put, if they are.
    cgroups: Option<Cgroups>,
    /// Children that are not reaped: their pids, and so their process groups, belong to nobody else.
    living: BTreeMap<u64, Living>,
    /// Whose the pids are.
    ids: HashMap<i32, u64>,
}

struct Living {
    pid: Pid,
    cgroup: Option<Cgroup>,
}

/// When the dead are to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReapTimer {
    /// At once: somebody was reaped who may have left others, and they were not on the list yet.
    Again,
    WhenSomebodyDies,
}

impl Children {
    /// For the supervisor with this pid. The thread that calls this does everything that follows.
    pub(super) fn of(me: i32) -> io::Result<Self> {
        let nothing = File::open("/dev/null")?.into();
        let (living, ids) = (BTreeMap::new(), HashMap::new());
        let descriptors = descriptors::of_children(None);
        Ok(Self { me, finder: Finder::new(me), nothing, descriptors, cgroups: None, living, ids })
    }

    /// Children have this soft limit of descriptors from now on; `None`: as many as the supervisor may have.
    pub(super) fn let_have(&mut self, soft: Option<u64>) {
        self.descriptors = descriptors::of_children(soft);
    }

    /// Decides how children are contained from now on, and says it.
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
        // The kernel drops descriptors for which the receiver has no room.
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

    /// Limits whoever comes into the group next as it is to be, or to nothing.
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

    /// Asks the child's group to end.
    pub(super) fn terminate(&self, id: u64) {
        if let Some(child) = self.living.get(&id) {
            let _ = kill_process_group(child.pid, Signal::TERM);
        }
    }

    /// Kills the child with all that descends from it. What came to the supervisor already is found when it is dead.
    pub(super) fn kill(&self, id: u64) {
        if let Some(Living { pid, cgroup }) = self.living.get(&id) {
            // The family is looked up first: it falls apart when its head dies.
            let family = self.finder.family(pid.as_raw_pid(), self.me);
            cgroup.iter().for_each(Cgroup::kill);
            let _ = kill_process_group(*pid, Signal::KILL);
            family.iter().for_each(|process| process.kill());
        }
    }

    /// Kills all children with all that descends from them.
    pub(super) fn kill_all(&self) {
        self.living.keys().for_each(|id| self.kill(*id));
    }

    /// Somebody died: ends what children have ended, with all they left behind, and reaps. Says who has ended.
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

    /// Kills what children left behind that have ended, and reaps of it who is dead.
    fn sweep(&self) -> ReapTimer {
        let mut look = ReapTimer::WhenSomebodyDies;
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

    /// Whether an orphan may belong to a child that lives. Who bears no mark may be anybody's.
    fn is_wanted(&self, orphan: i32) -> bool {
        match mark(orphan) {
            Some(mark) => self.owner(&mark).is_some_and(|id| self.living.contains_key(&id)),
            None => !self.living.is_empty(),
        }
    }

    fn mark(&self, id: u64) -> String {
        format!("{}.{id}", self.me)
    }

    /// Whose mark it is, if this supervisor made it.
    fn owner(&self, mark: &str) -> Option<u64> {
        let (supervisor, id) = mark.split_once('.')?;
        if supervisor.parse() == Ok(self.me) { id.parse().ok() } else { None }
    }

    /// The node is gone: kills until there is nobody left to wait for. Whatever escapes one round by a fork is the
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

/// Kills a child of the supervisor's own. It is not reaped, so its pid belongs to nobody else, and no descriptor is needed to hold
/// it: a supervisor that has none left still ends what it must end.
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
