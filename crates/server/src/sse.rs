//! Server-sent events: one reader's side of a live stream. A reader that does not read is closed, and comes back where it was.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, RequestError, streamed};
use crate::call::ApiCall;

/// A comment is sent when nothing else was, so that both sides notice a broken connection.
pub(crate) const PING: Duration = Duration::from_secs(15);
/// A reader that takes nothing for this long is closed.
const SLOW: Duration = Duration::from_secs(20);
/// Pieces between a stream and its connection.
const BUFFER: usize = 4;
/// The first bytes: how long a browser waits before it comes back.
const FIRST: &str = "retry: 2000\n\n";

/// A reader is gone, or was closed.
pub(crate) struct Gone;

/// Writes events to one reader.
pub(crate) struct EventWriter {
    sender: Sender<Bytes, Infallible>,
    connection: CancellationToken,
    stopping: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl EventWriter {
    pub(crate) async fn comment(&mut self) -> Result<(), Gone> {
        self.write(Bytes::from_static(b": ping\n\n")).await
    }

    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<(), Gone> {
        let sent = tokio::select! {
            sent = tokio::time::timeout(SLOW, self.sender.send_data(piece)) => sent,
            () = self.stopping.cancelled() => return Err(Gone),
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Gone),
            Err(_) => {
                // The connection waits for the reader, and would never ask for another piece.
                self.connection.cancel();
                Err(Gone)
            }
        }
    }

    /// Waits, until the node stops.
    pub(crate) async fn stopped(&self) {
        self.stopping.cancelled().await;
    }
}

/// One event.
pub(crate) fn event(id: &str, name: Option<&str>, data: &str) -> Bytes {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    Bytes::from(format!("id: {id}\n{name}data: {data}\n\n"))
}

/// An event without an id: a browser does not come back after it.
pub(crate) fn notice(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// Opens a stream: the answer, and the writer for the task that feeds it.
pub(crate) fn open(call: &ApiCall) -> Result<(Answer, EventWriter), RequestError> {
    let place = Semaphore::try_acquire_owned(Arc::clone(&call.app.stream_places))
        .map_err(|_| RequestError::busy("this node has as many open streams as it may have"))?;
    let (mut sender, body) = Channel::new(BUFFER);
    sender
        .try_send(hyper::body::Frame::data(Bytes::from_static(FIRST.as_bytes())))
        .map_err(|_| RequestError::busy("the stream cannot be opened"))?;
    let writer = EventWriter {
        sender,
        connection: call.connection.clone(),
        stopping: call.app.stopping.clone(),
        _place: place,
    };
    Ok((streamed("text/event-stream", body), writer))
}
