//! The node's side: starts the keeper, and holds one handle per child.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::frame::{self, About, Exit, MAX_DESCRIPTORS, Order, Spawn, Stdin};
use super::wire::{Orders, Parcel, Roll, Waiting, locked, read, write};

/// How long the keeper may take to say that it is there.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// How the keeper's process is started: a program whose main function then calls [`serve`](super::serve()).
#[derive(Clone, Debug)]
pub struct KeeperProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables it gets beside the node's own.
    pub env: Vec<(OsString, OsString)>,
}

impl KeeperProgram {
    /// The program that runs now, with these arguments. It is found by its inode: node and keeper are the same version
    /// even while an update replaces the file.
    #[must_use]
    pub fn this<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
        }
    }
}

/// Why there is no keeper.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused something.
    #[error("the keeper cannot be started: {0}")]
    System(#[from] io::Error),
    /// More descriptors to hold than one frame carries.
    #[error("the keeper can hold at most {MAX_DESCRIPTORS} descriptors")]
    TooMuchToHold,
    /// The program was started, but it is no keeper, or it hangs.
    #[error("the program that was started as the keeper does not answer as one")]
    NoAnswer,
}

/// The keeper is gone, or the node has closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keeper of the node's children is gone")]
pub struct Gone;

/// Why there is no child.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No pipe could be made.
    #[error("no pipe for the child: {0}")]
    Pipe(#[from] io::Error),
    /// The system refused to start it.
    #[error("the child cannot be started: {error}")]
    Refused {
        /// What it is about.
        about: About,
        /// What the system said.
        error: io::Error,
    },
    /// Arguments and variables are larger than any system takes.
    #[error("arguments and variables are too large")]
    TooLarge,
    /// There is no keeper.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// A child to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments, each one argument whatever it contains.
    pub argv: Vec<String>,
    /// Where it starts; the keeper's own folder if there is none.
    pub folder: Option<String>,
    /// The names of the variables that it inherits. It gets no other.
    pub keep: Vec<String>,
    /// Variables that it gets beside those.
    pub set: Vec<(String, String)>,
    /// What it reads.
    pub stdin: Stdin,
}

/// The node's handle on its keeper. When the last handle and the last [`Child`] are dropped, the keeper ends.
#[derive(Clone, Debug)]
pub struct Keeper {
    orders: Orders,
    waiting: Roll,
    next: Arc<AtomicU64>,
    closed: CancellationToken,
    ended: CancellationToken,
    pid: u32,
}

impl Keeper {
    /// Starts the keeper, and gives it descriptors to hold until nothing of the node is left.
    ///
    /// # Errors
    /// When it cannot be started, or does not answer.
    pub async fn start(program: KeeperProgram, held: Vec<OwnedFd>) -> Result<Self, StartError> {
        if held.len() > MAX_DESCRIPTORS {
            return Err(StartError::TooMuchToHold);
        }
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        let mut command = Command::new(program.program);
        command.args(program.args).envs(program.env).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // A group of its own: Ctrl-C at the terminal is for the node, which then ends its children in order.
        let mut child = command.process_group(0).spawn()?;
        drop(command);
        let pid = child.id();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let ended = CancellationToken::new();
        let over = ended.clone().drop_guard();
        std::thread::Builder::new().name("keeper-exit".to_owned()).spawn(move || {
            let _ = child.wait();
            drop(over);
        })?;

        let ours = std::os::unix::net::UnixStream::from(ours);
        ours.set_nonblocking(true)?;
        let stream = Arc::new(UnixStream::from_std(ours)?);
        let (orders, parcels) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let waiting: Roll = Arc::new(Mutex::new(Some(HashMap::new())));
        let closed = CancellationToken::new();
        tokio::spawn(write(Arc::clone(&stream), parcels, closed.clone()));
        tokio::spawn(read(stream, Arc::clone(&waiting), ready, closed.clone()));
        let keeper = Self { orders, waiting, next: Arc::default(), closed, ended, pid };
        keeper.order(&Order::Hold, held).map_err(|_| StartError::NoAnswer)?;
        match tokio::time::timeout(START_PATIENCE, is_ready).await {
            Ok(Ok(())) => Ok(keeper),
            Ok(Err(_)) | Err(_) => {
                // It has no children that would be left alone, and need not even read its input.
                let _ = process.and_then(|process| pidfd_send_signal(process, Signal::KILL));
                Err(StartError::NoAnswer)
            }
        }
    }

    /// The keeper's pid, to be shown. It is nobody's to signal.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts a child.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn spawn(&self, launch: Launch) -> Result<Child, SpawnError> {
        let mut theirs = Vec::new();
        let stdin = match launch.stdin {
            Stdin::Nothing => None,
            Stdin::Pipe => {
                let (their_in, ours) = new_pipe()?;
                theirs.push(their_in);
                ioctl_fionbio(&ours, true).map_err(io::Error::from)?;
                Some(pipe::Sender::from_owned_fd_unchecked(ours)?)
            }
        };
        let stdout = reading_end(&mut theirs)?;
        let stderr = reading_end(&mut theirs)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (spawned, is_spawned) = oneshot::channel();
        let (ended, is_ended) = oneshot::channel();
        locked(&self.waiting).as_mut().ok_or(Gone)?.insert(id, Waiting { spawned: Some(spawned), ended });
        // From here on a caller that gives up leaves no child behind.
        let leash = Leash { id, orders: self.orders.clone(), waiting: Arc::clone(&self.waiting) };
        let mut child =
            Child { pid: 0, stdin, stdout: Some(stdout), stderr: Some(stderr), exit: None, is_ended, leash };
        let Launch { argv, folder, keep, set, stdin } = launch;
        self.order(&Order::Spawn(Spawn { id, argv, stdin, folder, keep, set }), theirs)?;
        child.pid = is_spawned.await.map_err(|_| Gone)??;
        Ok(child)
    }

    /// Closes the keeper, and waits until it has killed everything and is gone itself.
    pub async fn stop(&self) {
        self.closed.cancel();
        self.ended.cancelled().await;
    }

    fn order(&self, order: &Order, descriptors: Vec<OwnedFd>) -> Result<(), SpawnError> {
        let frame = frame::encode(order).ok_or(SpawnError::TooLarge)?;
        self.orders.send(Parcel { frame, descriptors }).map_err(|_| SpawnError::Gone(Gone))
    }
}

fn new_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// The end of a new pipe at which the node reads. The other one is the child's.
fn reading_end(theirs: &mut Vec<OwnedFd>) -> io::Result<pipe::Receiver> {
    let (ours, their_end) = new_pipe()?;
    theirs.push(their_end);
    ioctl_fionbio(&ours, true)?;
    pipe::Receiver::from_owned_fd_unchecked(ours)
}

/// A child. Dropped before it ended, it is killed.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    /// Where it reads, if it was to.
    pub stdin: Option<pipe::Sender>,
    /// What it writes.
    pub stdout: Option<pipe::Receiver>,
    /// What it complains about.
    pub stderr: Option<pipe::Receiver>,
    exit: Option<Exit>,
    is_ended: oneshot::Receiver<Exit>,
    leash: Leash,
}

impl Child {
    /// Its pid, to be shown. Only the keeper may signal it.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until it has ended; its group is dead then, and what left the group is being killed.
    ///
    /// # Errors
    /// When the keeper is gone, and with it whoever could tell.
    pub async fn ended(&mut self) -> Result<Exit, Gone> {
        if self.exit.is_none() {
            self.exit = Some((&mut self.is_ended).await.map_err(|_| Gone)?);
        }
        self.exit.ok_or(Gone)
    }

    /// Asks its group to end.
    pub fn terminate(&self) {
        self.leash.order(&Order::Terminate { id: self.leash.id });
    }

    /// Kills it with all that descends from it.
    pub fn kill(&self) {
        self.leash.order(&Order::Kill { id: self.leash.id });
    }
}

#[derive(Debug)]
struct Leash {
    id: u64,
    orders: Orders,
    waiting: Roll,
}

impl Leash {
    fn order(&self, order: &Order) {
        // Without a keeper there is nobody to tell, and the keeper's end was the child's.
        if let Some(frame) = frame::encode(order) {
            let _ = self.orders.send(Parcel { frame, descriptors: Vec::new() });
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        // Whoever has ended or was refused is no longer on the roll.
        let runs = locked(&self.waiting).as_mut().is_some_and(|roll| roll.remove(&self.id).is_some());
        if runs {
            self.order(&Order::Kill { id: self.id });
        }
    }
}
