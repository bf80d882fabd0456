//! The node's end of the supervisor socket: one task sends requests, one receives responses.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::child::SpawnError;
use super::frame::{self, Contained, Exit, HEADER_BYTES, Response};

/// Bytes received at once, at least.
const RECEIVED_BYTES: usize = 4 * 1024;

/// Unbounded: a child sends at most a few requests in its lifetime.
pub(super) type MessageSender = mpsc::UnboundedSender<Message>;

#[derive(Debug)]
pub(super) struct Message {
    pub(super) frame: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Pending replies by id. `None` when the supervisor is gone: no caller may begin to wait then.
pub(super) type PendingReplies = Arc<Mutex<Option<HashMap<u64, PendingReply>>>>;

#[derive(Debug)]
pub(super) enum PendingReply {
    /// For a child to start.
    Spawn { spawned: oneshot::Sender<Result<i32, SpawnError>>, ended: oneshot::Sender<Exit> },
    /// For a child to end.
    End(oneshot::Sender<Exit>),
    /// For descriptors to be held.
    Hold(oneshot::Sender<()>),
}

/// The reply to the first request.
pub(super) type FirstReply = Result<(Contained, Option<PathBuf>), String>;

pub(super) fn locked(pending: &PendingReplies) -> MutexGuard<'_, Option<HashMap<u64, PendingReply>>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends requests until all senders are dropped, then closes the socket: the supervisor kills the remaining children.
pub(super) async fn write(
    stream: Arc<UnixStream>,
    mut messages: mpsc::UnboundedReceiver<Message>,
    closed: CancellationToken,
) {
    let sent = async {
        while let Some(Message { frame, descriptors }) = messages.recv().await {
            let mut beside: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            let mut rest = frame.as_slice();
            while !rest.is_empty() {
                let sent = stream.async_io(Interest::WRITABLE, || frame::send(&stream, rest, &beside)).await;
                let Ok(sent) = sent else { return };
                // The descriptors go with the first byte.
                beside.clear();
                rest = &rest[sent..];
            }
        }
    };
    closed.run_until_cancelled(sent).await;
    closed.cancel();
    let _ = shutdown(&*stream, Shutdown::Both);
}

/// Receives responses until the supervisor is gone; then drops all pending replies.
pub(super) async fn read(
    stream: Arc<UnixStream>,
    waiting: PendingReplies,
    begun: oneshot::Sender<FirstReply>,
    lapses: Arc<AtomicU64>,
    closed: CancellationToken,
) {
    let mut begun = Some(begun);
    let mut inbox = ReportReader { stream: &stream, bytes: Vec::new(), taken: 0 };
    while let Ok(report) = inbox.next().await {
        let mut begin = |answer: FirstReply| {
            // The caller may have timed out; so may all those below.
            let _ = begun.take().map(|begun| begun.send(answer));
        };
        match report {
            Response::Ready { contained, cgroup } => begin(Ok((contained, cgroup))),
            Response::Unable { why } => begin(Err(why)),
            Response::Held { id } => {
                if let Some(PendingReply::Hold(held)) = take_pending(&waiting, id) {
                    let _ = held.send(());
                }
            }
            Response::Lapsed => {
                lapses.fetch_add(1, Ordering::SeqCst);
            }
            // The caller is notified by the closed channel.
            Response::NotHeld { id } => drop(take_pending(&waiting, id)),
            Response::Spawned { id, pid } => {
                if let Some(pending) = locked(&waiting).as_mut()
                    && let Some(PendingReply::Spawn { spawned, ended }) = pending.remove(&id)
                {
                    pending.insert(id, PendingReply::End(ended));
                    let _ = spawned.send(Ok(pid));
                }
            }
            Response::Refused { id, errno, about, why } => {
                if let Some(PendingReply::Spawn { spawned, .. }) = take_pending(&waiting, id) {
                    let error = why.map_or_else(|| io::Error::from_raw_os_error(errno), io::Error::other);
                    let _ = spawned.send(Err(SpawnError::Refused { about, error }));
                }
            }
            Response::Ended { id, exit } => {
                if let Some(PendingReply::End(ended)) = take_pending(&waiting, id) {
                    let _ = ended.send(exit);
                }
            }
        }
    }
    closed.cancel();
    *locked(&waiting) = None;
}

fn take_pending(waiting: &PendingReplies, id: u64) -> Option<PendingReply> {
    locked(waiting).as_mut().and_then(|pending| pending.remove(&id))
}

/// Reads responses, several at once if they are available.
struct ReportReader<'a> {
    stream: &'a UnixStream,
    bytes: Vec<u8>,
    /// Bytes already consumed.
    taken: usize,
}

impl ReportReader<'_> {
    async fn next(&mut self) -> io::Result<Response> {
        loop {
            let rest = &self.bytes[self.taken..];
            if let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>()
                && let Some(body) = rest.get(..frame::length(*header)?)
            {
                let report = frame::decode(body)?;
                self.taken += HEADER_BYTES + body.len();
                return Ok(report);
            }
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.bytes.reserve(RECEIVED_BYTES);
            self.stream.readable().await?;
            match self.stream.try_read_buf(&mut self.bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
