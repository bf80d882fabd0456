//! Standard output of a command as log events while it runs, a few times a second.
//!
//! Most commands end soon, and their whole output is kept as the task's output: for these a log would only cost a write of the store.
//! So what is written is held for a moment, and a command that succeeds within it logs nothing.

use std::time::Duration;

use ostler_core::EventBody;
use ostler_exec::{EventSender, MAX_STDOUT_PIECES, RedactedStream, Secrets};
use tokio::time::Instant;

use super::output::{MAX_CHAR_BYTES, MAX_END_PIECES, pieces, until_character};
use super::policy::StdoutLog;
use crate::argument::Argument;

/// How long output is held, so that one event has several lines.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The same, for a command that has written for long.
const LATER_PAUSE: Duration = Duration::from_secs(5);
/// After this many pieces a command has written for long.
const EARLY_PIECES: usize = 2_048;
/// The maximum number of pieces; those at the end are counted apart.
const MAX_LIVE_PIECES: usize = MAX_STDOUT_PIECES - MAX_END_PIECES;

/// The part of standard output that is logged while the command runs: its beginning.
pub(super) struct LiveOutput {
    log: StdoutLog,
    /// Standard output, without the values of secrets.
    stream: RedactedStream,
    held: Vec<u8>,
    /// When the held bytes are due.
    due: Option<Instant>,
    /// Bytes that were logged.
    logged: usize,
    /// Bytes that may still be held.
    room: usize,
    pieces: usize,
}

impl LiveOutput {
    /// `most` is the limit of what is logged of the attempt: half of it now, the other half is for the end of the output.
    pub(super) const fn new(log: StdoutLog, secrets: Secrets, most: usize) -> Self {
        let room = (most / 2).saturating_sub(MAX_CHAR_BYTES);
        Self {
            log,
            stream: RedactedStream::new(secrets),
            held: Vec::new(),
            due: None,
            logged: 0,
            room,
            pieces: 0,
        }
    }

    pub(super) fn take(&mut self, chunk: &[u8], now: Instant) {
        match self.log {
            StdoutLog::OfFailures => return,
            StdoutLog::AsItComes | StdoutLog::Always => {}
        }
        if self.room == 0 || self.pieces >= MAX_LIVE_PIECES {
            return;
        }
        let known = self.stream.take(chunk);
        let taken = &known[..known.len().min(self.room)];
        self.room -= taken.len();
        self.held.extend_from_slice(taken);
        let pause = if self.pieces < EARLY_PIECES { FIRST_PAUSE } else { LATER_PAUSE };
        if !self.held.is_empty() {
            self.due.get_or_insert(now + pause);
        }
    }

    /// Completes when held bytes are to be logged.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Logs what is held: up to the end of the last line, or all of it if no line has ended.
    pub(super) fn log(&mut self, events: &EventSender) {
        self.due = None;
        let line = self.held.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let end = line.unwrap_or_else(|| until_character(&self.held).len());
        let rest = self.held.split_off(end);
        let whole = std::mem::replace(&mut self.held, rest);
        for piece in pieces(&whole) {
            if let Ok(json) = serde_json::to_string(&Argument(piece.to_vec())) {
                events.say(EventBody::Stdout { text: json });
                self.pieces += 1;
            }
        }
        self.logged += whole.len();
    }

    /// The bytes of the output that were logged: the rest follows at its end.
    pub(super) const fn logged(&self) -> usize {
        self.logged
    }

    /// Whether the log of an attempt that succeeds has its output.
    pub(super) const fn is_begun(&self) -> bool {
        match self.log {
            StdoutLog::OfFailures => false,
            StdoutLog::AsItComes => self.logged > 0,
            StdoutLog::Always => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(chunks: &[&[u8]], most: usize) -> (Vec<u8>, LiveOutput) {
        let (events, received) = ostler_exec::event_channel();
        let mut live = LiveOutput::new(StdoutLog::AsItComes, Secrets::default(), most);
        for chunk in chunks {
            live.take(chunk, Instant::now());
            live.log(&events);
        }
        let mut bytes = Vec::new();
        for event in std::iter::from_fn(|| received.try_recv()) {
            let EventBody::Stdout { text } = event else { panic!("{event:?}") };
            bytes.extend(serde_json::from_str::<Argument>(&text).expect("JSON").0);
        }
        (bytes, live)
    }

    #[test]
    fn whole_lines_are_logged_byte_by_byte_and_a_line_that_does_not_end_is_too() {
        let (bytes, live) = logged(&[b"one\ntw", b"o\nth"], 1 << 20);
        assert_eq!((bytes.as_slice(), live.logged()), (&b"one\ntwo\n"[..], 8));
        let (bytes, live) = logged(&[b"password: \xe2\x82"], 1 << 20);
        assert_eq!((bytes.as_slice(), live.logged()), (&b"password: "[..], 10), "characters are not cut");
        let (bytes, _) = logged(&[b"\xff\0\n"], 1 << 20);
        assert_eq!(bytes, b"\xff\0\n");
    }

    #[test]
    fn half_of_the_limit_is_left_for_the_end() {
        let (bytes, live) = logged(&[&[b'\n'; 600], &[b'\n'; 600]], 1_000);
        assert!(bytes.len() <= 500 && bytes.len() > 490, "{}", bytes.len());
        assert!(live.is_begun() && live.due.is_none());
    }

    #[test]
    fn nothing_is_due_before_something_is_written() {
        let mut live = LiveOutput::new(StdoutLog::AsItComes, Secrets::default(), 100);
        assert!(live.due.is_none() && !live.is_begun());
        let now = Instant::now();
        live.take(b"a\n", now);
        live.take(b"b\n", now + FIRST_PAUSE / 2);
        assert_eq!(live.due, Some(now + FIRST_PAUSE));
        let mut quiet = LiveOutput::new(StdoutLog::OfFailures, Secrets::default(), 100);
        quiet.take(b"a\n", now);
        assert!(quiet.due.is_none() && !quiet.is_begun());
    }
}
