//! The node's end of the socket: one task sends orders, one takes reports.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::client::SpawnError;
use super::frame::{self, Exit, HEADER_BYTES, Report};

/// Bytes of reports that are received at once, at least.
const RECEIVED_BYTES: usize = 4 * 1024;

/// It has no bound of its own: a child puts at most four orders into it in its life.
pub(super) type Orders = mpsc::UnboundedSender<Parcel>;

#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) frame: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Who waits for what. `None` when the keeper is gone: nobody may begin to wait then.
pub(super) type Roll = Arc<Mutex<Option<HashMap<u64, Waiting>>>>;

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) spawned: Option<oneshot::Sender<Result<i32, SpawnError>>>,
    pub(super) ended: oneshot::Sender<Exit>,
}

pub(super) fn locked(roll: &Roll) -> MutexGuard<'_, Option<HashMap<u64, Waiting>>> {
    roll.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends orders until nobody can give any, then closes: the keeper kills what is left.
pub(super) async fn write(
    stream: Arc<UnixStream>,
    mut parcels: mpsc::UnboundedReceiver<Parcel>,
    closed: CancellationToken,
) {
    let sent = async {
        while let Some(Parcel { frame, descriptors }) = parcels.recv().await {
            let mut beside: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            let mut rest = frame.as_slice();
            while !rest.is_empty() {
                let sent = stream.async_io(Interest::WRITABLE, || frame::send(&stream, rest, &beside)).await;
                let Ok(sent) = sent else { return };
                // They go with the first byte.
                beside.clear();
                rest = &rest[sent..];
            }
        }
    };
    closed.run_until_cancelled(sent).await;
    closed.cancel();
    let _ = shutdown(&*stream, Shutdown::Both);
}

/// Takes reports until the keeper is gone; then nobody waits for it any more.
pub(super) async fn read(
    stream: Arc<UnixStream>,
    waiting: Roll,
    ready: oneshot::Sender<()>,
    closed: CancellationToken,
) {
    let mut ready = Some(ready);
    let mut inbox = Inbox { stream: &stream, bytes: Vec::new(), taken: 0 };
    while let Ok(report) = inbox.next().await {
        match report {
            Report::Ready => {
                let _ = ready.take().map(|ready| ready.send(()));
            }
            Report::Spawned { id, pid } => {
                let spawned = (locked(&waiting).as_mut())
                    .and_then(|roll| roll.get_mut(&id))
                    .and_then(|child| child.spawned.take());
                let _ = spawned.map(|spawned| spawned.send(Ok(pid)));
            }
            Report::Refused { id, errno, about } => {
                let child = locked(&waiting).as_mut().and_then(|roll| roll.remove(&id));
                let error = io::Error::from_raw_os_error(errno);
                let _ = child
                    .and_then(|child| child.spawned)
                    .map(|spawned| spawned.send(Err(SpawnError::Refused { about, error })));
            }
            Report::Ended { id, exit } => {
                let child = locked(&waiting).as_mut().and_then(|roll| roll.remove(&id));
                let _ = child.map(|child| child.ended.send(exit));
            }
        }
    }
    closed.cancel();
    *locked(&waiting) = None;
}

/// Reports as they come, several at once if they do.
struct Inbox<'a> {
    stream: &'a UnixStream,
    bytes: Vec<u8>,
    /// So many of them are taken out.
    taken: usize,
}

impl Inbox<'_> {
    async fn next(&mut self) -> io::Result<Report> {
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
