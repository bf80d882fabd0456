//! Child processes, as the node sees them.

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
use super::frame::{self, About, Exit, Request, Socket, Stdin, Variables};

/// A child to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments, verbatim.
    pub argv: Vec<Argument>,
    /// The working directory; defaults to the supervisor's.
    pub folder: Option<String>,
    /// The same as an open descriptor. The path is not used then.
    pub start: Option<Arc<OwnedFd>>,
    /// A folder that the child may change although it is in a sandbox.
    pub own: Option<Arc<OwnedFd>>,
    /// The names of the inherited variables. No others are inherited.
    pub keep: Vec<String>,
    /// Additional variables.
    pub set: Variables,
    pub stdin: Stdin,
    pub socket: Socket,
    /// The sandbox. Without one, the child has the rights of the node.
    pub confinement: Option<Confinement>,
}

/// The supervisor has exited, or the node has closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the supervisor process is gone")]
pub struct SupervisorGone;

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot create a pipe for the child: {0}")]
    Pipe(#[from] io::Error),
    #[error("the child cannot be started: {error}")]
    Refused { about: About, error: io::Error },
    /// Node or supervisor lacks a resource that any child needs: descriptors, memory, or processes. Says nothing about this child.
    #[error("the node is short of {}: {error}", lacking(.error))]
    Short { error: io::Error },
    /// Arguments and variables are larger than any system accepts.
    #[error("arguments and variables are too large")]
    TooLarge,
    #[error(transparent)]
    Gone(#[from] SupervisorGone),
}

impl SpawnError {
    /// Turns the error into [`Short`](Self::Short) if the node lacks a resource, unless the limit is the child's own.
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

/// The resource that the node lacks, by the error.
fn lacking(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => "descriptors (ulimit -n, LimitNOFILE)",
        Some(Errno::AGAIN) => "processes (ulimit -u, TasksMax)",
        Some(_) | None => "memory",
    }
}

/// A child process. Killed when dropped, unless it has ended.
#[derive(Debug)]
pub struct Child {
    pub(super) pid: i32,
    /// The node's end, if the child has a pipe.
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
    /// The node's end of the socket, if the child has one.
    pub socket: Option<UnixStream>,
    pub(super) exit: Option<Exit>,
    pub(super) is_ended: oneshot::Receiver<Exit>,
    pub(super) kill_on_drop: KillOnDrop,
}

impl Child {
    /// The pid, for display. Only the supervisor may signal it.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the child has ended; its process group is dead then, and descendants that left the group are being killed.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn ended(&mut self) -> Result<Exit, SupervisorGone> {
        if self.exit.is_none() {
            self.exit = Some((&mut self.is_ended).await.map_err(|_| SupervisorGone)?);
        }
        self.exit.ok_or(SupervisorGone)
    }

    /// Whether the child is known to have ended.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        if self.exit.is_none() {
            self.exit = self.is_ended.try_recv().ok();
        }
        self.exit.is_some()
    }

    /// Sends SIGTERM to the child's process group.
    pub fn terminate(&self) {
        self.kill_on_drop.send(&Request::Terminate { id: self.kill_on_drop.id });
    }

    /// Kills the child and all its descendants.
    pub fn kill(&self) {
        self.kill_on_drop.send(&Request::Kill { id: self.kill_on_drop.id });
    }
}

/// Kills the child when dropped.
#[derive(Debug)]
pub(super) struct KillOnDrop {
    pub(super) id: u64,
    pub(super) requests: MessageSender,
    pub(super) waiting: PendingReplies,
}

impl KillOnDrop {
    fn send(&self, request: &Request) {
        // Without a supervisor there is no receiver, and the child has died with the supervisor.
        if let Some(frame) = frame::encode(request) {
            let _ = self.requests.send(Message { frame, descriptors: Vec::new() });
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // A child that has ended or was refused is no longer pending.
        let runs = locked(&self.waiting).as_mut().is_some_and(|pending| pending.remove(&self.id).is_some());
        if runs {
            self.send(&Request::Kill { id: self.id });
        }
    }
}
