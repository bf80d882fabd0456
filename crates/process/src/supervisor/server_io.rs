//! The supervisor's end of the socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::frame::{self, HEADER_BYTES, MAX_DESCRIPTORS, Request, Response};

/// Receives requests and sends responses.
pub(super) struct ServerIo {
    stream: UnixStream,
    /// The received part of the next frame. It is never read beyond its end: so the received descriptors belong to it.
    frame: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl ServerIo {
    pub(super) fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: UnixStream::from_std(stream)?, frame: Vec::new(), descriptors: Vec::new() })
    }

    /// Waits for the next request, with its descriptors. `None` when the node is gone. Cancel safe.
    pub(super) async fn next_order(&mut self) -> io::Result<Option<(Request, Vec<OwnedFd>)>> {
        loop {
            let wanted = match self.frame.first_chunk::<HEADER_BYTES>() {
                None => HEADER_BYTES,
                Some(header) => HEADER_BYTES + frame::length(*header)?,
            };
            if self.frame.len() == wanted && wanted > HEADER_BYTES {
                let request = frame::decode(&self.frame[HEADER_BYTES..])?;
                self.frame.clear();
                return Ok(Some((request, std::mem::take(&mut self.descriptors))));
            }
            if !self.receive(wanted).await? {
                return Ok(None);
            }
        }
    }

    /// Receives more, until the frame has at most `wanted` bytes. False at the end of the stream.
    async fn receive(&mut self, wanted: usize) -> io::Result<bool> {
        let Self { stream, frame, descriptors } = self;
        let before = frame.len();
        let received = stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            frame.resize(wanted, 0);
            let mut parts = [IoSliceMut::new(&mut frame[before..])];
            let received = recvmsg(&*stream, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC);
            frame.truncate(before + received.as_ref().map_or(0, |received| received.bytes));
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            Ok(received?.bytes)
        });
        Ok(received.await? > 0)
    }

    /// Sends responses to the node. If it is gone, the next receive says so.
    pub(super) async fn report(&self, reports: &[Response]) {
        let frames: Vec<u8> = reports.iter().filter_map(frame::encode).flatten().collect();
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            match self.stream.async_io(Interest::WRITABLE, || frame::send(&self.stream, rest, &[])).await {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}
