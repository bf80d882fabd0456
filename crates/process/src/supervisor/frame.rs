//! The supervisor protocol: JSON frames with a length prefix of four bytes, and descriptors as ancillary data.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::argument::Argument;
use crate::sandbox::Confinement;

/// Bytes of one frame, at most: more than any argument list that the kernel accepts, escaped.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;
/// Descriptors sent with one frame, at most.
pub(super) const MAX_DESCRIPTORS: usize = 8;
/// Bytes of the length prefix.
pub(super) const HEADER_BYTES: usize = 4;

/// A request of the node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Contain children in this way, each with this descriptor limit.
    Begin { containment: Containment, descriptors: Option<u64> },
    /// Hold the descriptors sent along until nothing is left, in place of earlier ones.
    Hold { id: u64, count: usize },
    /// Kill all children whenever the timer sent along expires. The node resets it as long as it is alive.
    Watch { id: u64 },
    /// Start a child on the descriptors sent along: its stdin, if it has one, its stdout and stderr, its socket, if it has
    /// one, and its folders.
    Spawn(Box<Spawn>),
    /// Remove this folder when nothing is left.
    Tidy { folder: PathBuf },
    /// Send SIGTERM to the child's process group.
    Terminate { id: u64 },
    /// Send SIGKILL to the child and all its descendants.
    Kill { id: u64 },
}

/// A child to start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spawn {
    pub(super) id: u64,
    pub(super) argv: Vec<Argument>,
    pub(super) stdin: Stdin,
    pub(super) socket: Socket,
    pub(super) folder: Option<String>,
    /// The roles of the last descriptors, in this order.
    pub(super) folders: Vec<Folder>,
    pub(super) keep: Vec<String>,
    pub(super) set: Variables,
    pub(super) confinement: Option<Confinement>,
}

/// Environment variables of a child. Their values may be secret: `Debug` output has only the names.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variables(pub Vec<(String, String)>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The role of a folder sent with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Folder {
    /// The child's working directory.
    Start,
    /// A folder that the child may change.
    Own,
}

/// The standard input of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// End of file at once.
    Nothing,
    /// A pipe from the node.
    Pipe,
    /// A socket pair with the node, for a child that can own nothing but its standard streams.
    Socket,
}

/// Whether a child has a socket besides its three pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    #[default]
    None,
    /// A socket pair with the node. The child's end is [`SOCKET_FD`].
    Pair,
}

/// The descriptor of a child's socket.
pub const SOCKET_FD: i32 = 3;

/// A response of the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    /// The supervisor is ready for children.
    Ready { contained: Contained, cgroup: Option<PathBuf> },
    /// Children cannot be contained as requested.
    Unable { why: String },
    /// The descriptors sent along are held, and no others.
    Held { id: u64 },
    /// The descriptors to hold did not arrive. Earlier ones are still held.
    NotHeld { id: u64 },
    /// The timer has expired: all children are being killed. Their exits follow.
    Lapsed,
    /// The child has started.
    Spawned { id: u64, pid: i32 },
    /// The child could not be started. `why` is set where `errno` says too little.
    Refused { id: u64, errno: i32, about: About, why: Option<String> },
    /// The child has ended.
    Ended { id: u64, exit: Exit },
}

/// How to contain the children of a supervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// By control groups where available, otherwise by process groups.
    #[default]
    Auto,
    /// By control groups, or not at all.
    Cgroup,
    /// By process groups, and a search for processes that left them.
    Group,
}

/// How the children of a supervisor are contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contained {
    /// By control groups: a process cannot leave one unless it may write to their file system.
    Cgroup,
    /// By process groups, and a search for processes that left them.
    Group,
}

/// The subject of a refusal to spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The program, or the means to start any.
    Program,
    /// The working directory.
    Folder,
    Containment,
    Sandbox,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

/// Encodes a frame; `None` if it is too large.
pub(super) fn encode<T: Serialize>(message: &T) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut frame, message).ok()?;
    let length = frame.len() - HEADER_BYTES;
    if length > MAX_FRAME_BYTES {
        return None;
    }
    frame[..HEADER_BYTES].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    Some(frame)
}

/// Decodes the length of the frame behind this header.
pub(super) fn length(header: [u8; HEADER_BYTES]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if length > MAX_FRAME_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

/// Decodes the message in a frame.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

/// Sends as many of these bytes as possible, with the descriptors.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
}
