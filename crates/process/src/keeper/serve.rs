//! The keeper's own loop: one thread reads orders, one waits for deaths, and this one does everything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpid, kill_process_group,
    set_child_subreaper, wait, waitid, waitpid,
};

use super::frame::{self, About, Exit, Order, Report};
use super::sweep::{MARK, Snapshot};

/// Events that wait for the loop. Over it, the node waits.
const MAX_EVENTS: usize = 64;
/// So many times in a row there may be nothing to do after a death. Two can follow one death; more mean somebody dead
/// whom /proc does not show, and who cannot be reaped by name.
const MAX_FRUITLESS: u32 = 16;
/// How long the keeper rests then, so that it does not look all the time.
const REST: Duration = Duration::from_millis(100);

/// Why the keeper could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system refused something at the start.
    #[error("the keeper cannot start: {0}")]
    Start(#[source] io::Error),
}

enum Event {
    Order(Order, Vec<OwnedFd>),
    /// Somebody whom the keeper can reap.
    Died,
    NodeGone,
}

/// Keeps children for the node at the other end of standard input, until that end closes and nothing is left.
///
/// The main function of the keeper's process calls it, before it starts anything else, and exits when it returns.
///
/// # Errors
/// When standard input is not the socket, or the system refuses a thread.
pub fn serve() -> Result<(), ServeError> {
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(ServeError::Start)?;
    set_child_subreaper(Some(getpid())).map_err(|errno| ServeError::Start(errno.into()))?;
    let (events, inbox) = sync_channel(MAX_EVENTS);
    let (look_again, again) = sync_channel(1);
    let orders = socket.try_clone().map_err(ServeError::Start)?;
    let said = events.clone();
    start("keeper-orders", move || read_orders(&orders, &said))?;
    start("keeper-deaths", move || wait_for_deaths(&again, &events))?;
    let mut keeper =
        Serving { socket, living: BTreeMap::new(), held: Vec::new(), me: getpid().as_raw_pid(), look_again };
    keeper.run(&inbox);
    keeper.end_all();
    drop(keeper.held);
    Ok(())
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServeError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(ServeError::Start)?;
    Ok(())
}

fn read_orders(socket: &OwnedFd, events: &SyncSender<Event>) {
    // A frame that cannot be read means a node that cannot be followed: its children must not be left alone.
    while let Ok(Some((order, descriptors))) = frame::receive(socket) {
        if events.send(Event::Order(order, descriptors)).is_err() {
            return;
        }
    }
    let _ = events.send(Event::NodeGone);
}

/// Says when there is somebody to reap, and reaps nobody: the loop has to kill the group of a child first, while the
/// dead child still keeps the group's number from being used again. It takes the place of SIGCHLD.
fn wait_for_deaths(again: &Receiver<()>, events: &SyncSender<Event>) {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(Errno::INTR) => continue,
            // No child at all: the loop says when there is one.
            Err(_) => {}
            Ok(_) => {
                if events.send(Event::Died).is_err() {
                    return;
                }
            }
        }
        if again.recv().is_err() {
            return;
        }
    }
}

struct Serving {
    socket: OwnedFd,
    /// Children that are not reaped: their pids, and so their groups, belong to nobody else.
    living: BTreeMap<u64, Pid>,
    held: Vec<OwnedFd>,
    me: i32,
    look_again: SyncSender<()>,
}

impl Serving {
    fn run(&mut self, inbox: &Receiver<Event>) {
        let mut fruitless = 0;
        loop {
            let event = if fruitless < MAX_FRUITLESS {
                inbox.recv().map_err(RecvTimeoutError::from)
            } else {
                inbox.recv_timeout(REST)
            };
            match event {
                Ok(Event::Order(order, descriptors)) => self.obey(order, descriptors),
                Ok(Event::Died) => {
                    match self.settle() {
                        0 => fruitless += 1,
                        _ => fruitless = 0,
                    }
                    if fruitless < MAX_FRUITLESS {
                        self.watch();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    fruitless = 0;
                    self.watch();
                }
                Ok(Event::NodeGone) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Lets the other thread look for deaths. If it has not looked since the last time, it will.
    fn watch(&self) {
        let _ = self.look_again.try_send(());
    }

    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        match order {
            Order::Hold => {
                self.held.extend(descriptors);
                self.report(&Report::Ready);
            }
            Order::Spawn { id, argv, folder, keep, set } => {
                let report = match self.spawn(id, &argv, folder.as_deref(), &keep, set, descriptors) {
                    Ok(pid) => Report::Spawned { id, pid: pid.as_raw_pid() },
                    Err((about, error)) => Report::Refused {
                        id,
                        errno: error.raw_os_error().unwrap_or_else(|| Errno::INVAL.raw_os_error()),
                        about,
                    },
                };
                self.report(&report);
                self.watch();
            }
            Order::Terminate { id } => {
                if let Some(pid) = self.living.get(&id) {
                    let _ = kill_process_group(*pid, Signal::TERM);
                }
            }
            Order::Kill { id } => {
                if let Some(pid) = self.living.get(&id) {
                    // The family is looked up first: it falls apart when its head dies.
                    let family = Snapshot::take().subtree(pid.as_raw_pid());
                    let _ = kill_process_group(*pid, Signal::KILL);
                    family.iter().for_each(|process| process.kill());
                }
            }
        }
    }

    fn spawn(
        &mut self,
        id: u64,
        argv: &[String],
        folder: Option<&str>,
        keep: &[String],
        set: Vec<(String, String)>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Pid, (About, io::Error)> {
        let program = |errno: Errno| (About::Program, io::Error::from(errno));
        let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            // The kernel drops descriptors for which the receiver has no room.
            return Err(program(Errno::MFILE));
        };
        let (first, rest) = argv.split_first().ok_or_else(|| program(Errno::INVAL))?;
        let mut command = Command::new(first);
        command.args(rest).env_clear().process_group(0);
        command.envs(keep.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(set).env(MARK, self.mark(id));
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
        if let Some(folder) = folder {
            // The system does not say whether the program or the folder is missing.
            let found = fs::metadata(folder).map_err(|error| (About::Folder, error))?;
            if !found.is_dir() {
                return Err((About::Folder, Errno::NOTDIR.into()));
            }
            command.current_dir(folder);
        }
        let child = command.spawn().map_err(|error| (About::Program, error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("the kernel's pids are positive and fit");
        self.living.insert(id, pid);
        Ok(pid)
    }

    fn mark(&self, id: u64) -> String {
        format!("{}.{id}", self.me)
    }

    /// Somebody died: ends what children have ended, with all they left behind, and reaps. Says how many.
    fn settle(&mut self) -> usize {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let ended: Vec<_> = (self.living.iter())
            .filter_map(|(id, pid)| Some((*id, *pid, exit(&waitid(WaitId::Pid(*pid), look).ok()??)?)))
            .collect();
        for (id, pid, _) in &ended {
            let _ = kill_process_group(*pid, Signal::KILL);
            let _ = waitpid(Some(*pid), WaitOptions::empty());
            self.living.remove(id);
        }
        let reaped = ended.len() + self.sweep();
        for (id, _, exit) in ended {
            self.report(&Report::Ended { id, exit });
        }
        reaped
    }

    /// Kills what children left behind that have ended. The deaths that follow lead here again, until nothing is found.
    /// Says how many it reaped.
    fn sweep(&self) -> usize {
        let mut reaped = 0;
        let snapshot = Snapshot::take();
        let marks: Vec<_> = self.living.keys().map(|id| self.mark(*id)).collect();
        for orphan in snapshot.children_of(self.me) {
            let Some(pid) = Pid::from_raw(orphan.pid) else { continue };
            if self.living.values().any(|child| *child == pid) {
                continue;
            }
            if orphan.is_dead() {
                reaped += usize::from(matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_))));
                continue;
            }
            let wanted = match orphan.mark() {
                Some(mark) => marks.contains(&mark),
                None => !marks.is_empty(),
            };
            if !wanted {
                snapshot.subtree(orphan.pid).iter().for_each(|process| process.kill());
            }
        }
        reaped
    }

    /// The node is gone: kills until there is nobody left to wait for. Whatever escapes one round by a fork is the
    /// keeper's own child in the next, so the end of all children is the end of all descendants.
    fn end_all(&mut self) {
        loop {
            let snapshot = Snapshot::take();
            for pid in self.living.values() {
                let _ = kill_process_group(*pid, Signal::KILL);
            }
            let family = snapshot.subtree(self.me);
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

    /// Tells the node. If it is gone, the other thread sees that too.
    fn report(&self, report: &Report) {
        let Some(frame) = frame::encode(report) else { return };
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match frame::send(&self.socket, rest, &[]) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

fn exit(status: &WaitIdStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}
