//! The children that the keeper has: starts them, ends them, and lets none of them leave anybody behind.
//!
//! Whoever loses its parent comes to the keeper, before that parent can be reaped. So after each reaping the list of the
//! keeper's own children tells all: those it did not start are what somebody left behind. They are killed with all that
//! descends from them, unless they belong to a child that lives. Their deaths lead to the next look, until nobody is left.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process_group, wait, waitid, waitpid,
};

use super::frame::{About, Exit, Spawn, Stdin};
use super::kin::{Finder, mark};
use super::launch::launch;

pub(super) struct Children {
    me: i32,
    finder: Finder,
    /// What a child reads that reads nothing.
    nothing: OwnedFd,
    /// Children that are not reaped: their pids, and so their groups, belong to nobody else.
    living: BTreeMap<u64, Pid>,
    /// Whose the pids are.
    ids: HashMap<i32, u64>,
}

/// When the dead are to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// At once: somebody was reaped who may have left others, and they were not on the list yet.
    Again,
    WhenSomebodyDies,
}

impl Children {
    /// For the keeper with this pid. The thread that calls this does everything that follows.
    pub(super) fn of(me: i32) -> io::Result<Self> {
        let nothing = File::open("/dev/null")?.into();
        Ok(Self { me, finder: Finder::new(me), nothing, living: BTreeMap::new(), ids: HashMap::new() })
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
        let stdio = stdio.try_into().map_err(|_| (About::Program, Errno::MFILE.into()))?;
        let pid = launch(spawn, &self.mark(id), &stdio)?;
        self.living.insert(id, pid);
        self.ids.insert(pid.as_raw_pid(), id);
        Ok(pid)
    }

    /// Asks the child's group to end.
    pub(super) fn terminate(&self, id: u64) {
        if let Some(pid) = self.living.get(&id) {
            let _ = kill_process_group(*pid, Signal::TERM);
        }
    }

    /// Kills the child with all that descends from it. What came to the keeper already is found when it is dead.
    pub(super) fn kill(&self, id: u64) {
        if let Some(pid) = self.living.get(&id) {
            // The family is looked up first: it falls apart when its head dies.
            let family = self.finder.family(pid.as_raw_pid(), self.me);
            let _ = kill_process_group(*pid, Signal::KILL);
            family.iter().for_each(|process| process.kill());
        }
    }

    /// Somebody died: ends what children have ended, with all they left behind, and reaps. Says who has ended.
    pub(super) fn settle(&mut self) -> (Vec<(u64, Exit)>, Look) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let dead = |(id, pid): (&u64, &Pid)| {
            let status = waitid(WaitId::Pid(*pid), look).ok()??;
            Some((*id, *pid, exit(&status)?))
        };
        let dead: Vec<_> = self.living.iter().filter_map(dead).collect();
        for (id, pid, _) in &dead {
            let _ = kill_process_group(*pid, Signal::KILL);
            let _ = waitpid(Some(*pid), WaitOptions::empty());
            self.living.remove(id);
            self.ids.remove(&pid.as_raw_pid());
        }
        let look = self.sweep();
        (dead.into_iter().map(|(id, _, exit)| (id, exit)).collect(), look)
    }

    /// Kills what children left behind that have ended, and reaps of it who is dead.
    fn sweep(&self) -> Look {
        let mut look = Look::WhenSomebodyDies;
        for pid in self.finder.own(self.me) {
            if self.ids.contains_key(&pid) {
                continue;
            }
            if matches!(waitpid(Pid::from_raw(pid), WaitOptions::NOHANG), Ok(Some(_))) {
                look = Look::Again;
            } else if !self.is_wanted(pid) {
                self.finder.family(pid, self.me).iter().for_each(|process| process.kill());
            }
        }
        look
    }

    /// Whether an orphan may belong to a child that lives. Who bears no mark may be anybody's.
    fn is_wanted(&self, orphan: i32) -> bool {
        match mark(orphan) {
            Some(mark) => self.living.keys().any(|id| self.mark(*id) == mark),
            None => !self.living.is_empty(),
        }
    }

    fn mark(&self, id: u64) -> String {
        format!("{}.{id}", self.me)
    }

    /// The node is gone: kills until there is nobody left to wait for. Whatever escapes one round by a fork is the
    /// keeper's own child in the next, so the end of all children is the end of all descendants.
    pub(super) fn end_all(&mut self) {
        loop {
            for pid in self.living.values() {
                let _ = kill_process_group(*pid, Signal::KILL);
            }
            let family = self.finder.family(self.me, self.me);
            family.iter().filter(|process| process.pid != self.me).for_each(|process| process.kill());
            let mut options = WaitOptions::empty();
            loop {
                match wait(options) {
                    Ok(Some((reaped, _))) => self.living.retain(|_, pid| *pid != reaped),
                    Ok(None) => break,
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                }
                options = WaitOptions::NOHANG;
            }
        }
    }
}

fn exit(status: &WaitIdStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}
