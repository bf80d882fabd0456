//! Log lines: the output of a child, line by line as notes, and its tail for a failure.

use std::collections::VecDeque;

use ostler_core::{EventBody, Level, LogStream};
use ostler_exec::EventSender;

/// Bytes of one log line. The rest of a longer one is dropped, with a mark.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Bytes of the tail in a failure's details.
pub(crate) const TAIL_BYTES: usize = 4 * 1024;
pub(crate) const CUT: &str = " … (cut)";

/// The end of an output stream.
#[derive(Debug, Default)]
pub struct Tail(VecDeque<u8>);

impl Tail {
    pub fn take(&mut self, chunk: &[u8]) {
        self.0.extend(&chunk[chunk.len().saturating_sub(TAIL_BYTES)..]);
        self.0.drain(..self.0.len().saturating_sub(TAIL_BYTES));
    }

    /// Returns the tail as text, if there is any.
    #[must_use]
    pub fn text(&mut self) -> Option<String> {
        let text = String::from_utf8_lossy(self.0.make_contiguous()).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// The line that says why a program died: the last one of its output, unless the program is known to end with another. Node.js
/// ends with its version.
pub(crate) fn reason(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let last = text.lines().next_back()?;
    if !last.starts_with("Node.js v") {
        return Some(last);
    }
    let before = || text.lines().rev().skip(1).map(str::trim_end);
    let says = |line: &&str| names_an_error(line);
    // Without an error, such as after `throw "text"`, it is the last line before the version and the hint.
    let rest = |line: &&str| !line.is_empty() && !line.starts_with("(Use `node");
    before().find(says).or_else(|| before().find(rest)).or(Some(last))
}

/// Whether a line is the first one of an error as Node.js prints it, such as `TypeError [ERR_X]: no`.
fn names_an_error(line: &str) -> bool {
    let name = line.trim_start_matches("Uncaught ").split([' ', ':', '[']).find(|word| !word.is_empty());
    let is_error = |name: &str| {
        ["Error", "Exception", "UnhandledPromiseRejection"].iter().any(|end| name.ends_with(end))
    };
    !line.starts_with(char::is_whitespace) && name.is_some_and(is_error)
}

/// One output stream of an attempt, as log lines.
#[derive(Debug)]
pub struct Lines {
    events: EventSender,
    stream: LogStream,
    line: Vec<u8>,
    state: LogLine,
    left: usize,
}

#[derive(Clone, Copy, Debug)]
enum LogLine {
    Kept,
    /// The line is too long: its rest is dropped.
    Cut,
    /// The limit is reached: everything is dropped.
    Over,
}

impl Lines {
    /// Keeps at most `most` bytes.
    #[must_use]
    pub const fn new(events: EventSender, stream: LogStream, most: usize) -> Self {
        Self { events, stream, line: Vec::new(), state: LogLine::Kept, left: most }
    }

    pub fn take(&mut self, chunk: &[u8]) {
        if matches!(self.state, LogLine::Over) {
            return;
        }
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            match self.state {
                LogLine::Kept => {
                    let room = MAX_LINE_BYTES - self.line.len();
                    self.line.extend_from_slice(&text[..text.len().min(room)]);
                    if text.len() > room {
                        self.state = LogLine::Cut;
                    }
                }
                LogLine::Cut => {}
                LogLine::Over => return,
            }
            if ends {
                self.end_line();
            }
        }
    }

    /// Logs a last line without a newline.
    pub fn finish(mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let cut = match std::mem::replace(&mut self.state, LogLine::Kept) {
            LogLine::Kept => "",
            LogLine::Cut => CUT,
            LogLine::Over => return self.state = LogLine::Over,
        };
        let Some(left) = self.left.checked_sub(line.len() + 1) else {
            self.state = LogLine::Over;
            return self.say(format!("… (the rest of {} was dropped: it is too long)", self.stream.name()));
        };
        self.left = left;
        self.say(format!("{}{cut}", String::from_utf8_lossy(&line)));
    }

    fn say(&self, message: String) {
        self.events.say(EventBody::Log { level: Level::Info, stream: self.stream, text: message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log lines of these chunks, and the tail.
    fn lines(most: usize, chunks: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let (notes, received) = ostler_exec::event_channel();
        let (mut lines, mut tail) = (Lines::new(notes, LogStream::Stderr, most), Tail::default());
        for chunk in chunks {
            lines.take(chunk);
            tail.take(chunk);
        }
        lines.finish();
        let mut kept = Vec::new();
        while let Some(note) = received.try_recv() {
            let EventBody::Log { text, stream: LogStream::Stderr, .. } = note else { panic!("{note:?}") };
            kept.push(text);
        }
        (kept, tail.text())
    }

    #[test]
    fn lines_are_put_together_from_chunks() {
        let (kept, tail) = lines(100, &[b"one\ntw", b"o\n", b"\nb\xffd"]);
        assert_eq!(kept, ["one", "two", "", "b\u{fffd}d"]);
        assert_eq!(tail.as_deref(), Some("one\ntwo\n\nb\u{fffd}d"));
    }

    #[test]
    fn a_long_line_is_cut_and_marked_and_the_next_is_whole() {
        let long = [b'x'; MAX_LINE_BYTES];
        let (kept, _) = lines(1 << 20, &[&long, b"yz\nnext\n"]);
        assert_eq!(kept.len(), 2);
        assert!(kept[0].ends_with(CUT) && kept[0].len() == MAX_LINE_BYTES + CUT.len());
        assert_eq!(kept[1], "next");
    }

    #[test]
    fn the_reason_is_the_last_line_but_not_the_version_of_node() {
        for (text, reason_of) in [
            ("Traceback\n  File\nRuntimeError: as requested", "RuntimeError: as requested"),
            ("one\ntwo\n\n", "two"),
            (
                "Error: handled before\n/a/b.mjs:3\n    throw new Error(\"later\")\n    ^\n\nTypeError [ERR_X]: later: more\n    at \
                 Timeout\n  [cause]: Error: inner\n      at x {\n  code: 'E'\n}\n\nNode.js v20.20.2\n",
                "TypeError [ERR_X]: later: more",
            ),
            (
                "node:internal/process/promises:288\n    ^\n\n[UnhandledPromiseRejection: This error came] {\n  code: 'E'\n}\n\n\
                 Node.js v20.20.2",
                "[UnhandledPromiseRejection: This error came] {",
            ),
            (
                "/a/b.mjs:1\nthrow \"x\"\n^\nx\n(Use `node --trace-uncaught ...` to show where)\n\nNode.js v20.20.2",
                "x",
            ),
            ("Node.js v20.20.2", "Node.js v20.20.2"),
        ] {
            assert_eq!(reason(text), Some(reason_of));
        }
        assert_eq!(reason(" \n"), None);
    }

    #[test]
    fn too_many_lines_are_dropped_and_that_is_said_once() {
        let (kept, tail) = lines(10, &[b"12345\n", b"67890\n", b"more\n", b"last"]);
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(kept[1].contains("was dropped"));
        assert!(tail.is_some_and(|tail| tail.ends_with("last")), "the end is kept all the same");
    }
}
