//! One child, as the node sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::argument::Argument;
use crate::sandbox::{Confinement, Limits};

use super::client_io::{Message, MessageSender, PendingReplies, locked};
use super::frame::{self, About, Exit, Request, Socket, Stdin};

/// A child to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments, each one argument whatever it contains.
    pub argv: Vec<Argument>,
    /// Where it starts; the supervisor's own folder if there is none.
    pub folder: Option<String>,
    /// The same if it is open already. Nobody looks at the path then.
    pub start: Option<Arc<OwnedFd>>,
    /// A folder that it may change although it is in a sandbox.
    pub own: Option<Arc<OwnedFd>>,
    /// The names of the variables that it inherits. It gets no other.
    pub keep: Vec<String>,
    /// Variables that it gets beside those.
    pub set: Vec<(String, String)>,
    /// What it reads.
    pub stdin: Stdin,
    /// Whether it has a socket too.
    pub socket: Socket,
    /// What it may do at most, if that is less than whatever the node may.
    pub confinement: Option<Confinement>,
}

/// The supervisor is gone, or the node has closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the supervisor of the node's children is gone")]
pub struct SupervisorGone;

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
    /// Node or supervisor lacks what any child needs: descriptors, memory, or processes. It says nothing about this child.
    #[error("the node is short of {}: {error}", lacking(.error))]
    Short {
        /// What the system said.
        error: io::Error,
    },
    /// Arguments and variables are larger than any system takes.
    #[error("arguments and variables are too large")]
    TooLarge,
    /// There is no supervisor.
    #[error(transparent)]
    Gone(#[from] SupervisorGone),
}

impl SpawnError {
    /// The same, or that the node is short of something, unless the child itself may have no more of it.
    pub(super) fn or_short(self, limits: &Limits) -> Self {
        let is_short = |error: &io::Error| match Errno::from_io_error(error) {
            Some(Errno::MFILE) => limits.open_files.is_none(),
            Some(Errno::NFILE) => true,
            Some(Errno::NOMEM) => limits.memory_bytes.is_none(),
            Some(Errno::AGAIN) => limits.processes.is_none(),
            Some(_) | None => false,
        };
        match self {
            Self::Pipe(error) | Self::Refused { error, .. } if is_short(&error) => Self::Short { error },
            Self::Pipe(_) | Self::Refused { .. } | Self::Short { .. } | Self::TooLarge | Self::Gone(_) => {
                self
            }
        }
    }
}

/// What a node lacks that gets such an error.
fn lacking(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => "descriptors (ulimit -n, LimitNOFILE)",
        Some(Errno::AGAIN) => "processes (ulimit -u, TasksMax)",
        Some(_) | None => "memory",
    }
}

/// A child. Dropped before it ended, it is killed.
#[derive(Debug)]
pub struct Child {
    pub(super) pid: i32,
    /// Where it reads, if it was to.
    pub stdin: Option<pipe::Sender>,
    /// What it writes.
    pub stdout: Option<pipe::Receiver>,
    /// What it complains about.
    pub stderr: Option<pipe::Receiver>,
    /// The other end of its socket, if it was to have one.
    pub socket: Option<UnixStream>,
    pub(super) exit: Option<Exit>,
    pub(super) is_ended: oneshot::Receiver<Exit>,
    pub(super) leash: KillOnDrop,
}

impl Child {
    /// Its pid, to be shown. Only the supervisor may signal it.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until it has ended; its group is dead then, and what left the group is being killed.
    ///
    /// # Errors
    /// When the supervisor is gone, and with it whoever could tell.
    pub async fn ended(&mut self) -> Result<Exit, SupervisorGone> {
        if self.exit.is_none() {
            self.exit = Some((&mut self.is_ended).await.map_err(|_| SupervisorGone)?);
        }
        self.exit.ok_or(SupervisorGone)
    }

    /// Whether it is known to have ended.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        if self.exit.is_none() {
            self.exit = self.is_ended.try_recv().ok();
        }
        self.exit.is_some()
    }

    /// Asks its group to end.
    pub fn terminate(&self) {
        self.leash.order(&Request::Terminate { id: self.leash.id });
    }

    /// Kills it with all that descends from it.
    pub fn kill(&self) {
        self.leash.order(&Request::Kill { id: self.leash.id });
    }
}

/// Whoever drops it, kills.
#[derive(Debug)]
pub(super) struct KillOnDrop {
    pub(super) id: u64,
    pub(super) orders: MessageSender,
    pub(super) waiting: PendingReplies,
}

impl KillOnDrop {
    fn order(&self, order: &Request) {
        // Without a supervisor there is nobody to tell, and the supervisor's end was the child's.
        if let Some(frame) = frame::encode(order) {
            let _ = self.orders.send(Message { frame, descriptors: Vec::new() });
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Whoever has ended or was refused is no longer on the roll.
        let runs = locked(&self.waiting).as_mut().is_some_and(|roll| roll.remove(&self.id).is_some());
        if runs {
            self.order(&Request::Kill { id: self.id });
        }
    }
}
