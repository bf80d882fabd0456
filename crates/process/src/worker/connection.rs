//! Connection to a worker: its socket, its stdout and its stderr. The caller drives all I/O by waiting for the next event; a wait
//! can be cancelled without loss.

use std::borrow::Cow;
use std::io;
use std::task::{Context, Poll};

use ostler_exec::{RedactedStream, Secrets};
use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::incoming::{self, IncomingFrame};
use super::line_buffer::{LineBuffer, TooLong};
use crate::supervisor::Child;

/// Bytes per read of a worker's stdout or stderr.
const CHUNK_BYTES: usize = 16 * 1024;
/// Bytes that wait to be sent. Above it, the worker's socket is not read: the worker asks faster than it reads the replies.
const MAX_UNSENT_BYTES: usize = 1 << 20;
/// Reads before and after an attempt, to get all earlier output: 1 MiB, the most that a pipe holds unless its owner
/// is privileged.
const LAST_READS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Stdout,
    Stderr,
}

/// Whether the worker's socket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    Open,
    /// A frame is still being processed: the next ones wait in the socket.
    Shut,
}

#[derive(Debug)]
pub(super) enum ConnectionEvent {
    /// Bytes arrived on the socket: there may be frames.
    Received,
    /// The worker closed its end of the socket.
    Closed,
    /// The worker wrote the bytes that are in [`Connection::chunk`].
    Wrote(OutputStream),
}

/// Why the frames of a worker can no longer be decoded.
#[derive(Debug)]
pub(super) enum Nonsense {
    Bad(incoming::BadFrame),
    Long(TooLong),
}

pub(super) struct Connection {
    socket: Option<UnixStream>,
    inbox: LineBuffer,
    outgoing: Vec<u8>,
    /// How many of the outgoing bytes were sent.
    sent: usize,
    /// The other end is closed: nothing can be sent any more. Earlier frames may still be received.
    unheard: bool,
    stdout: OutputPipe,
    stderr: OutputPipe,
    secrets: Secrets,
    pub(super) chunk: Vec<u8>,
    /// Which source is polled first: a flood on one of them must not starve the others.
    turn: usize,
}

/// One of a worker's output streams, without the values of secrets.
struct OutputPipe {
    pipe: Option<pipe::Receiver>,
    redacted: RedactedStream,
}

impl OutputPipe {
    fn new(pipe: Option<pipe::Receiver>, secrets: &Secrets) -> Self {
        Self { pipe, redacted: RedactedStream::new(secrets.clone()) }
    }

    /// Replaces a chunk that was read by what is known of it.
    fn redact(&mut self, chunk: &mut Vec<u8>) {
        if let Cow::Owned(redacted) = self.redacted.take(chunk) {
            *chunk = redacted;
        }
    }
}

impl Connection {
    /// Takes the socket and the output pipes of a child.
    pub(super) fn to(child: &mut Child, secrets: &Secrets) -> Self {
        let stdout = OutputPipe::new(child.stdout.take(), secrets);
        let stderr = OutputPipe::new(child.stderr.take(), secrets);
        Self {
            socket: child.socket.take(),
            inbox: LineBuffer::default(),
            outgoing: Vec::new(),
            sent: 0,
            unheard: false,
            stdout,
            stderr,
            secrets: secrets.clone(),
            chunk: Vec::new(),
            turn: 0,
        }
    }

    /// Queues a frame, and sends as much as possible at once.
    pub(super) fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.outgoing);
        self.send();
    }

    /// Whether the worker can still receive frames.
    pub(super) const fn is_heard(&self) -> bool {
        self.socket.is_some() && !self.unheard
    }

    /// The next received frame.
    pub(super) fn next(&mut self) -> Result<Option<IncomingFrame>, Nonsense> {
        match self.inbox.next().map_err(Nonsense::Long)? {
            Some(line) => match incoming::decode(line) {
                Ok(frame) => Ok(Some(frame)),
                // The message has the beginning of the line, which must not cut a secret.
                Err(bad) => {
                    let again = incoming::decode(&self.secrets.redact_bytes(line.to_vec()));
                    Err(Nonsense::Bad(again.err().unwrap_or(bad)))
                }
            },
            None => Ok(None),
        }
    }

    /// Whether an incomplete frame was received.
    pub(super) fn is_in_a_frame(&self) -> bool {
        self.inbox.is_in_a_line()
    }

    /// Waits for the next event, and sends in the meantime.
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

    /// Sends as much as the socket accepts now. An unsendable frame is not missed: the worker's death is noticed.
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

    /// Receives what is available on the socket now.
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
            let Some(pipe) = &self.pipe(stream).pipe else { return Poll::Pending };
            if pipe.poll_read_ready(context).is_pending() {
                return Poll::Pending;
            }
            if self.read(stream) {
                return Poll::Ready(ConnectionEvent::Wrote(stream));
            }
        }
    }

    const fn pipe(&mut self, stream: OutputStream) -> &mut OutputPipe {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Reads what is available now. False: nothing, or the pipe is closed.
    fn read(&mut self, stream: OutputStream) -> bool {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.clear();
        chunk.reserve(CHUNK_BYTES);
        let output = self.pipe(stream);
        let read = output.pipe.as_ref().map(|pipe| pipe.try_read_buf(&mut chunk));
        let has_some = match read {
            Some(Ok(some)) if some > 0 => true,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => false,
            Some(Ok(_) | Err(_)) | None => {
                output.pipe = None;
                false
            }
        };
        output.redact(&mut chunk);
        self.chunk = chunk;
        has_some
    }

    /// Reads everything in the pipes now, up to a limit. Makes the system call itself: the cached readiness may be outdated.
    pub(super) fn read_rest(&mut self, mut take: impl FnMut(OutputStream, &[u8])) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            for _ in 0..LAST_READS {
                let mut chunk = std::mem::take(&mut self.chunk);
                chunk.clear();
                chunk.reserve(CHUNK_BYTES);
                let output = self.pipe(stream);
                let read =
                    output.pipe.as_ref().map(|pipe| rustix::io::read(pipe, spare_capacity(&mut chunk)));
                output.redact(&mut chunk);
                self.chunk = chunk;
                if !matches!(read, Some(Ok(some)) if some > 0) {
                    break;
                }
                take(stream, &self.chunk);
            }
            // What follows belongs to another attempt.
            take(stream, &self.pipe(stream).redacted.flush());
        }
    }

    /// Receives what a dead worker has sent. False when there is no more.
    pub(super) fn receive_rest(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let received = rustix::net::recv(socket, spare_capacity(self.inbox.room()), RecvFlags::DONTWAIT);
        matches!(received, Ok((_, some)) if some > 0)
    }
}
