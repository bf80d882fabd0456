//! What node and keeper say to each other: JSON behind four bytes of length, with descriptors on the side.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of one frame. More than any argument list that the kernel takes, escaped.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;
/// Descriptors that come with one frame.
pub(super) const MAX_DESCRIPTORS: usize = 8;
/// Bytes that say how long the frame is.
pub(super) const HEADER_BYTES: usize = 4;

/// From the node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Keep these descriptors open until nothing is left.
    Hold,
    /// Start a child on the three descriptors that come along.
    Spawn {
        id: u64,
        argv: Vec<String>,
        folder: Option<String>,
        keep: Vec<String>,
        set: Vec<(String, String)>,
    },
    /// SIGTERM to the child's group.
    Terminate { id: u64 },
    /// SIGKILL to all of it.
    Kill { id: u64 },
}

/// From the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// It holds what it was given.
    Ready,
    /// The child runs.
    Spawned { id: u64, pid: i32 },
    /// It could not be started.
    Refused { id: u64, errno: i32, about: About },
    /// It ended.
    Ended { id: u64, exit: Exit },
}

/// What a refusal to spawn is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The program, or the means to start any.
    Program,
    /// The folder to start it in.
    Folder,
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
pub(super) fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
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

/// Waits for the next order, with its descriptors. `None` when the node is gone.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    let mut descriptors = Vec::new();
    let mut header = [0; HEADER_BYTES];
    if !fill(&socket, &mut header, &mut descriptors)? {
        return Ok(None);
    }
    let mut body = vec![0; length(header)?];
    if !fill(&socket, &mut body, &mut descriptors)? {
        return Ok(None);
    }
    Ok(Some((decode(&body)?, descriptors)))
}

/// Reads exactly this much, or finds the end.
fn fill(socket: impl AsFd, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer[filled..])];
        let received = match recvmsg(&socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            received => received?,
        };
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(false);
        }
        filled += received.bytes;
    }
    Ok(true)
}
