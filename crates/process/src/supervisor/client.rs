//! Supervisor client: the node's handle on its supervisor.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::Outcome;
use ostler_exec::{AttemptResult, LivenessHolder};
use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::cgroup;
use super::child::{Child, KillOnDrop, Launch, SpawnError, SupervisorGone};
use super::client_io::{Message, MessageSender, PendingReplies, PendingReply, locked, read, write};
use super::frame::{self, Contained, Folder, MAX_DESCRIPTORS, Request, Socket, Spawn, Stdin};
use super::program::{StartError, SupervisorProgram};
use crate::descriptors::soft_at_start;

/// Timeout of replies that the supervisor sends at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// The node's handle on its supervisor. When the last handle and the last [`Child`] are dropped, the supervisor exits.
#[derive(Clone, Debug)]
pub struct Supervisor {
    requests: MessageSender,
    waiting: PendingReplies,
    next: Arc<AtomicU64>,
    closed: CancellationToken,
    ended: CancellationToken,
    /// On expiry the supervisor kills all children.
    timer: Arc<OwnedFd>,
    /// How often the timer has expired.
    lapses: Arc<AtomicU64>,
    pid: u32,
    contained: Contained,
}

impl Supervisor {
    /// Starts the supervisor, and gives it descriptors to hold until nothing of the node is left.
    ///
    /// # Errors
    /// When it cannot be started, cannot contain children as configured, or does not reply.
    pub async fn start(program: SupervisorProgram, held: Vec<OwnedFd>) -> Result<Self, StartError> {
        if held.len() > MAX_DESCRIPTORS {
            return Err(StartError::TooMuchToHold);
        }
        let (ours, theirs) = new_sockets()?;
        let mut command = Command::new(program.program);
        command.args(program.args).envs(program.env).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // A process group of its own: Ctrl-C at the terminal is for the node, which then shuts its children down.
        let mut child = command.process_group(0).spawn()?;
        drop(command);
        let pid = child.id();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let ended = CancellationToken::new();
        let over = ended.clone().drop_guard();
        let cgroups = Arc::new(OnceLock::<PathBuf>::new());
        let left = Arc::clone(&cgroups);
        std::thread::Builder::new().name("supervisor-exit".to_owned()).spawn(move || {
            let _ = child.wait();
            // A supervisor that was killed has left its groups, and perhaps processes in them.
            let _ = left.get().map(|folder| cgroup::remove(folder));
            drop(over);
        })?;

        let stream = Arc::new(our_end(ours)?);
        let (requests, messages) = mpsc::unbounded_channel();
        let (begun, has_begun) = oneshot::channel();
        let waiting: PendingReplies = Arc::new(Mutex::new(Some(HashMap::new())));
        let closed = CancellationToken::new();
        tokio::spawn(write(Arc::clone(&stream), messages, closed.clone()));
        let lapses = Arc::<AtomicU64>::default();
        tokio::spawn(read(stream, Arc::clone(&waiting), begun, Arc::clone(&lapses), closed.clone()));
        let (timer, contained) = (Arc::new(new_timer()?), Contained::Group);
        let next = Arc::default();
        let mut supervisor = Self { requests, waiting, next, closed, ended, timer, lapses, pid, contained };
        let begun = async {
            let (containment, descriptors) = (program.containment, soft_at_start());
            supervisor.send(&Request::Begin { containment, descriptors }, Vec::new()).ok()?;
            has_begun.await.ok()
        };
        match tokio::time::timeout(PATIENCE, begun).await.ok().flatten() {
            Some(Ok((contained, folder))) => {
                supervisor.contained = contained;
                folder.into_iter().for_each(|folder| drop(cgroups.set(folder)));
            }
            Some(Err(reason)) => return Err(StartError::NoContainment(reason)),
            None => {
                // It has no children that could be orphaned, and may not even read its input.
                let _ = process.and_then(|process| pidfd_send_signal(process, Signal::KILL));
                return Err(StartError::NoAnswer);
            }
        }
        supervisor.watch().await?;
        if !held.is_empty() {
            supervisor.hold_all(held).await?;
        }
        Ok(supervisor)
    }

    /// The supervisor's pid, for display. Must not be signalled.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    #[must_use]
    pub const fn containment(&self) -> Contained {
        self.contained
    }

    /// Waits until the supervisor is gone, and with it every child it had: after [`stop`](Self::stop), or because it was
    /// killed. Without it a node cannot start children.
    pub async fn gone(&self) {
        self.ended.cancelled().await;
    }

    /// Starts a child.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn spawn(&self, launch: Launch) -> Result<Child, SpawnError> {
        let limits = launch.confinement.as_ref().map(|confinement| confinement.limits).unwrap_or_default();
        self.start_child(launch).await.map_err(|error| error.or_short(&limits))
    }

    async fn start_child(&self, launch: Launch) -> Result<Child, SpawnError> {
        let mut theirs = Vec::new();
        let mut stdin_socket = None;
        let stdin = match launch.stdin {
            Stdin::Nothing => None,
            Stdin::Socket => {
                let (ours, their_end) = new_sockets()?;
                theirs.push(their_end);
                stdin_socket = Some(our_end(ours)?);
                None
            }
            Stdin::Pipe => {
                let (their_in, ours) = new_pipe()?;
                theirs.push(their_in);
                ioctl_fionbio(&ours, true).map_err(io::Error::from)?;
                Some(pipe::Sender::from_owned_fd_unchecked(ours)?)
            }
        };
        let stdout = reading_end(&mut theirs)?;
        let stderr = reading_end(&mut theirs)?;
        let socket = match launch.socket {
            Socket::None => stdin_socket,
            Socket::Pair => {
                let (ours, their_end) = new_sockets()?;
                theirs.push(their_end);
                Some(our_end(ours)?)
            }
        };
        let (spawned, is_spawned) = oneshot::channel();
        let (ended, is_ended) = oneshot::channel();
        let id = self.wait_for(PendingReply::Spawn { spawned, ended })?;
        // From here on a caller that gives up leaves no child behind.
        let kill_on_drop =
            KillOnDrop { id, requests: self.requests.clone(), waiting: Arc::clone(&self.waiting) };
        let (stdout, stderr) = (Some(stdout), Some(stderr));
        let mut child = Child { pid: 0, stdin, stdout, stderr, socket, exit: None, is_ended, kill_on_drop };
        let Launch { argv, folder, start, own, keep, set, stdin, socket, confinement } = launch;
        let mut folders = Vec::new();
        for (what, opened) in [(Folder::Start, start), (Folder::Own, own)] {
            let Some(opened) = opened else { continue };
            theirs.push(opened.try_clone()?);
            folders.push(what);
        }
        let spawn = Spawn { id, argv, stdin, socket, folder, folders, keep, set, confinement };
        self.send(&Request::Spawn(Box::new(spawn)), theirs)?;
        child.pid = is_spawned.await.map_err(|_| SupervisorGone)??;
        Ok(child)
    }

    /// Has the supervisor remove a folder when no process is left that could use it.
    pub(crate) fn tidy(&self, folder: &Path) {
        // Without a supervisor there is no such process either.
        let _ = self.send(&Request::Tidy { folder: folder.to_owned() }, Vec::new());
    }

    /// Closes the supervisor, and waits until it has killed everything and has exited.
    pub async fn stop(&self) {
        self.closed.cancel();
        self.gone().await;
    }

    /// How often all children were killed because the node did not reset the timer in time.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.lapses.load(Ordering::SeqCst)
    }

    /// The result of an attempt that began after this many lapses. A failure that a later lapse may have caused says nothing about
    /// the task, which is handed back.
    #[must_use]
    pub fn unless_lapsed(&self, since: u64, ended: AttemptResult) -> AttemptResult {
        match ended.outcome {
            Outcome::Failed(_) if self.lapses() != since => {
                AttemptResult { slot: ended.slot, ..AttemptResult::handed_back() }
            }
            Outcome::Failed(_)
            | Outcome::Success
            | Outcome::NodeDied
            | Outcome::HandedBack
            | Outcome::Cancelled => ended,
        }
    }

    async fn watch(&self) -> io::Result<()> {
        let timer = self.timer.try_clone()?;
        self.hand_over(|id| Request::Watch { id }, vec![timer]).await
    }

    async fn hold_all(&self, held: Vec<OwnedFd>) -> io::Result<()> {
        let count = held.len();
        self.hand_over(|id| Request::Hold { id, count }, held).await
    }

    /// Sends descriptors with a request, and waits until the supervisor has them.
    async fn hand_over(&self, request: impl Fn(u64) -> Request, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let (is_held, answer) = oneshot::channel();
        let id = self.wait_for(PendingReply::Hold(is_held)).map_err(io::Error::other)?;
        self.send(&request(id), descriptors).map_err(io::Error::other)?;
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) if self.closed.is_cancelled() => Err(io::Error::other(SupervisorGone)),
            Ok(Err(_)) => {
                Err(io::Error::other("the supervisor has too many descriptors open to hold another one"))
            }
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn wait_for(&self, answer: PendingReply) -> Result<u64, SupervisorGone> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.waiting).as_mut().ok_or(SupervisorGone)?.insert(id, answer);
        Ok(id)
    }

    fn send(&self, request: &Request, descriptors: Vec<OwnedFd>) -> Result<(), SpawnError> {
        let frame = frame::encode(request).ok_or(SpawnError::TooLarge)?;
        self.requests.send(Message { frame, descriptors }).map_err(|_| SpawnError::Gone(SupervisorGone))
    }
}

#[async_trait]
impl LivenessHolder for Supervisor {
    async fn hold(&self, liveness_lock: OwnedFd) -> io::Result<()> {
        self.hold_all(vec![liveness_lock]).await
    }

    fn live_until(&self, uptime: Duration) {
        let Ok(moment) = Timespec::try_from(uptime) else { return };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: moment };
        // Fails only for an impossible time, and then the timer is unchanged.
        let _ = timerfd_settime(&*self.timer, TimerfdTimerFlags::ABSTIME, &once);
    }
}

/// A timer shared by node and supervisor: the node sets it, and the supervisor sees it expire. No thread is needed in between.
fn new_timer() -> io::Result<OwnedFd> {
    Ok(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?)
}

fn new_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The node's end of a socket pair.
fn our_end(socket: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn new_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// The node's end of a new pipe, for reading. The other one is the child's.
fn reading_end(theirs: &mut Vec<OwnedFd>) -> io::Result<pipe::Receiver> {
    let (ours, their_end) = new_pipe()?;
    theirs.push(their_end);
    ioctl_fionbio(&ours, true)?;
    pipe::Receiver::from_owned_fd_unchecked(ours)
}
