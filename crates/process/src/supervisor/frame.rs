//! What node and supervisor say to each other: JSON behind four bytes of length, with descriptors on the side.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::argument::Argument;
use crate::sandbox::Confinement;

/// Bytes of one frame. More than any argument list that the kernel takes, escaped.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;
/// Descriptors that come with one frame.
pub(super) const MAX_DESCRIPTORS: usize = 8;
/// Bytes that say how long the frame is.
pub(super) const HEADER_BYTES: usize = 4;

/// From the node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Contain children so, and let each have so many descriptors.
    Begin { containment: Containment, descriptors: Option<u64> },
    /// Keep the descriptors that come along open until nothing is left, and no longer those from before.
    Hold { id: u64, count: usize },
    /// Kill all children whenever the timer that comes along has run out. The node sets it anew as long as it is alive.
    Watch { id: u64 },
    /// Start a child on the descriptors that come along: where it reads, if it does, where it writes and complains, its
    /// socket, if it has one, and its folders.
    Spawn(Box<Spawn>),
    /// Remove this folder when nothing is left.
    Tidy { folder: PathBuf },
    /// SIGTERM to the child's group.
    Terminate { id: u64 },
    /// SIGKILL to all of it.
    Kill { id: u64 },
}

/// A child to be started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spawn {
    pub(super) id: u64,
    pub(super) argv: Vec<Argument>,
    pub(super) stdin: Stdin,
    pub(super) socket: Socket,
    pub(super) folder: Option<String>,
    /// What the descriptors are that come after all others, in this order.
    pub(super) folders: Vec<Folder>,
    pub(super) keep: Vec<String>,
    pub(super) set: Vec<(String, String)>,
    pub(super) confinement: Option<Confinement>,
}

/// What a folder is for that comes with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Folder {
    /// The child starts there.
    Start,
    /// It may change it.
    Own,
}

/// What a child reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing: the end at once.
    Nothing,
    /// What the node writes.
    Pipe,
}

/// Whether a child has a socket beside its three pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    /// None.
    #[default]
    None,
    /// One whose other end the node has. The child finds it at [`SOCKET_FD`].
    Pair,
}

/// The descriptor at which a child finds its socket.
pub const SOCKET_FD: i32 = 3;

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    /// It is ready for children.
    Ready { contained: Contained, cgroup: Option<PathBuf> },
    /// It cannot contain children as it was told to.
    Unable { why: String },
    /// It holds what came along, and nothing else.
    Held { id: u64 },
    /// What was to be held did not arrive. It holds what it held before.
    NotHeld { id: u64 },
    /// The timer has run out: all children are being killed. Their ends come after this.
    Lapsed,
    /// The child runs.
    Spawned { id: u64, pid: i32 },
    /// It could not be started. Where a number says too little, a sentence says why.
    Refused { id: u64, errno: i32, about: About, why: Option<String> },
    /// It ended.
    Ended { id: u64, exit: Exit },
}

/// How the children of a supervisor are to be contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// By control groups where they can be had, else by process groups.
    #[default]
    Auto,
    /// By control groups, or not at all.
    Cgroup,
    /// By process groups, and a search for whoever left them.
    Group,
}

/// How the children of a supervisor are contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contained {
    /// By control groups: nobody leaves one unless it may write to their file system.
    Cgroup,
    /// By process groups, and a search for whoever left them.
    Group,
}

/// What a refusal to spawn is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The program, or the means to start any.
    Program,
    /// The folder to start it in.
    Folder,
    /// What is to contain it.
    Containment,
    /// Its sandbox.
    Sandbox,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A frame as bytes; `None` if it is too large.
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

/// How long the frame behind this header is.
pub(super) fn length(header: [u8; HEADER_BYTES]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if length > MAX_FRAME_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

/// The message in a frame.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

/// Sends what it can of these bytes, with the descriptors.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
}
