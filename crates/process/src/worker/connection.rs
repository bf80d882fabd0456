//! The node's end of one worker: its socket, and what it writes for people. Whoever holds the link moves
//! bytes by asking it for the next event; nothing is lost when the asking is given up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::incoming::{self, IncomingFrame};
use super::line_buffer::{LineBuffer, TooLong};
use crate::supervisor::Child;

/// Bytes that are read at once of what a worker writes for people.
const CHUNK_BYTES: usize = 16 * 1024;
/// Bytes that wait to be sent. Above it, the worker is not listened to: it asks faster than it reads the answers.
const MAX_UNSENT_BYTES: usize = 1 << 20;
/// Reads before and after an attempt, to have what was written until then: 1 MiB, the most that a pipe holds unless its owner
/// is privileged.
const LAST_READS: usize = 64;

/// What a worker writes for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Stdout,
    Stderr,
}

/// Whether the worker is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    Open,
    /// Something that it said is still being done: what it says next waits in its socket.
    Shut,
}

/// Something happened.
#[derive(Debug)]
pub(super) enum ConnectionEvent {
    /// Bytes came over the socket: there may be frames.
    Received,
    /// It closed its end of the socket.
    Closed,
    /// It wrote this many bytes, which are in [`Connection::chunk`].
    Wrote(OutputStream),
}

/// Why nothing more can be understood of what a worker says.
#[derive(Debug)]
pub(super) enum Nonsense {
    Bad(incoming::BadFrame),
    Long(TooLong),
}

pub(super) struct Connection {
    socket: Option<UnixStream>,
    inbox: LineBuffer,
    outgoing: Vec<u8>,
    /// So many of them were sent.
    sent: usize,
    /// The other end is closed: nothing can be sent any more. What came before may still be received.
    unheard: bool,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    pub(super) chunk: Vec<u8>,
    /// Whose turn is first: a flood on one of them must not hold up the others.
    turn: usize,
}

impl Connection {
    /// Takes what the node has of a child.
    pub(super) fn to(child: &mut Child) -> Self {
        let (socket, stdout, stderr) = (child.socket.take(), child.stdout.take(), child.stderr.take());
        Self {
            socket,
            inbox: LineBuffer::default(),
            outgoing: Vec::new(),
            sent: 0,
            unheard: false,
            stdout,
            stderr,
            chunk: Vec::new(),
            turn: 0,
        }
    }

    /// Puts a frame into what is to be sent, and sends what can be sent at once.
    pub(super) fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.outgoing);
        self.send();
    }

    /// Whether somebody is there to hear what is said.
    pub(super) const fn is_heard(&self) -> bool {
        self.socket.is_some() && !self.unheard
    }

    /// The next frame that was received.
    pub(super) fn next(&mut self) -> Result<Option<IncomingFrame>, Nonsense> {
        match self.inbox.next().map_err(Nonsense::Long)? {
            Some(line) => incoming::decode(line).map(Some).map_err(Nonsense::Bad),
            None => Ok(None),
        }
    }

    /// Whether it has begun a frame that did not end.
    pub(super) fn is_in_a_frame(&self) -> bool {
        self.inbox.is_in_a_line()
    }

    /// Waits until something comes, and sends meanwhile.
    pub(super) async fn moved(&mut self, ear: Listening) -> ConnectionEvent {
        std::future::poll_fn(|context| self.poll(ear, context)).await
    }

    fn poll(&mut self, ear: Listening, context: &mut Context<'_>) -> Poll<ConnectionEvent> {
        self.poll_send(context);
        const SOURCES: usize = 3;
        self.turn = (self.turn + 1) % SOURCES;
        for source in 0..SOURCES {
            let moved = match (self.turn + source) % SOURCES {
                0 => self.poll_socket(ear, context),
                1 => self.poll_pipe(OutputStream::Stdout, context),
                _ => self.poll_pipe(OutputStream::Stderr, context),
            };
            if moved.is_ready() {
                return moved;
            }
        }
        Poll::Pending
    }

    fn poll_send(&mut self, context: &mut Context<'_>) {
        while !self.outgoing.is_empty() {
            let Some(socket) = &self.socket else { return self.outgoing.clear() };
            match socket.poll_write_ready(context) {
                Poll::Ready(Ok(())) => self.send(),
                Poll::Ready(Err(_)) => return self.outgoing.clear(),
                Poll::Pending => return,
            }
        }
    }

    /// Sends as much as the socket takes now. What cannot be sent because nobody is there, is not missed: its death is seen.
    fn send(&mut self) {
        let Some(socket) = &self.socket else { return self.outgoing.clear() };
        while self.sent < self.outgoing.len() {
            match socket.try_write(&self.outgoing[self.sent..]) {
                Ok(some) => self.sent += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.unheard = true;
                    break;
                }
            }
        }
        self.outgoing.clear();
        self.sent = 0;
    }

    fn poll_socket(&mut self, ear: Listening, context: &mut Context<'_>) -> Poll<ConnectionEvent> {
        if ear == Listening::Shut || self.outgoing.len() - self.sent > MAX_UNSENT_BYTES {
            return Poll::Pending;
        }
        loop {
            let Some(socket) = &self.socket else { return Poll::Pending };
            if socket.poll_read_ready(context).is_pending() {
                return Poll::Pending;
            }
            if let Some(moved) = self.receive() {
                return Poll::Ready(moved);
            }
        }
    }

    /// What there is on the socket now.
    fn receive(&mut self) -> Option<ConnectionEvent> {
        let socket = self.socket.as_ref()?;
        match socket.try_read_buf(self.inbox.room()) {
            Ok(some) if some > 0 => Some(ConnectionEvent::Received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(_) | Err(_) => {
                self.socket = None;
                Some(ConnectionEvent::Closed)
            }
        }
    }

    fn poll_pipe(&mut self, stream: OutputStream, context: &mut Context<'_>) -> Poll<ConnectionEvent> {
        loop {
            let Some(pipe) = self.pipe(stream) else { return Poll::Pending };
            if pipe.poll_read_ready(context).is_pending() {
                return Poll::Pending;
            }
            if self.read(stream) {
                return Poll::Ready(ConnectionEvent::Wrote(stream));
            }
        }
    }

    fn pipe(&mut self, stream: OutputStream) -> &mut Option<pipe::Receiver> {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Reads what is there now. False: nothing, or the pipe is closed.
    fn read(&mut self, stream: OutputStream) -> bool {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.clear();
        chunk.reserve(CHUNK_BYTES);
        let pipe = self.pipe(stream);
        let read = pipe.as_ref().map(|pipe| pipe.try_read_buf(&mut chunk));
        let has_some = match read {
            Some(Ok(some)) if some > 0 => true,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => false,
            Some(Ok(_) | Err(_)) | None => {
                *pipe = None;
                false
            }
        };
        self.chunk = chunk;
        has_some
    }

    /// All that is in the pipes now, within a bound. The system is asked itself: what it has told so far may be older.
    pub(super) fn read_rest(&mut self, mut take: impl FnMut(OutputStream, &[u8])) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            for _ in 0..LAST_READS {
                let mut chunk = std::mem::take(&mut self.chunk);
                chunk.clear();
                chunk.reserve(CHUNK_BYTES);
                let read =
                    self.pipe(stream).as_ref().map(|pipe| rustix::io::read(pipe, spare_capacity(&mut chunk)));
                self.chunk = chunk;
                if !matches!(read, Some(Ok(some)) if some > 0) {
                    break;
                }
                take(stream, &self.chunk);
            }
        }
    }

    /// The worker is dead: all that it has sent is in the socket now. False when there is no more.
    pub(super) fn receive_rest(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let received = rustix::net::recv(socket, spare_capacity(self.inbox.room()), RecvFlags::DONTWAIT);
        matches!(received, Ok((_, some)) if some > 0)
    }
}

/// A future that is there or not.
pub(super) async fn maybe<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => Pin::new(future).await,
        None => std::future::pending().await,
    }
}
