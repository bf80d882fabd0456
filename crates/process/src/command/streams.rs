//! What a command wrote, within bounds.

use std::collections::VecDeque;

use ostler_exec::{Level, Note, Notes};

/// Bytes of one log line. The rest of a longer one is dropped, and that is said.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Bytes of the end of stderr that stand in a failure's details.
const TAIL_BYTES: usize = 4 * 1024;
const CUT: &str = " … (cut)";

/// Stdout, up to a bound.
pub(super) struct Output {
    bytes: Vec<u8>,
    most: usize,
}

/// More output than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Output {
    pub(super) const fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        if self.bytes.len() + chunk.len() > self.most {
            return Err(TooLarge);
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// As JSON text: as it is if it is JSON, else as a JSON string. Nothing is no output.
    pub(super) fn into_json(self) -> Option<String> {
        let text = match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        if text.is_empty() {
            return None;
        }
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        Some(if is_json { text.to_owned() } else { serde_json::Value::from(text).to_string() })
    }

    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// How it began, for whoever wants to know what was too large.
    pub(super) fn beginning(&self) -> String {
        let end = self.bytes.len().min(TAIL_BYTES);
        format!("{}{CUT}", String::from_utf8_lossy(&self.bytes[..end]))
    }
}

/// Stderr: line by line to the notes, and its end for a failure.
pub(super) struct Lines {
    notes: Notes,
    line: Vec<u8>,
    state: Line,
    left: usize,
    tail: VecDeque<u8>,
}

#[derive(Clone, Copy)]
enum Line {
    Kept,
    /// It is too long: its rest is dropped.
    Cut,
    /// All that is allowed has been kept: everything is dropped.
    Over,
}

impl Lines {
    pub(super) const fn new(notes: Notes, most: usize) -> Self {
        Self { notes, line: Vec::new(), state: Line::Kept, left: most, tail: VecDeque::new() }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) {
        self.tail.extend(&chunk[chunk.len().saturating_sub(TAIL_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            match self.state {
                Line::Kept => {
                    let room = MAX_LINE_BYTES - self.line.len();
                    self.line.extend_from_slice(&text[..text.len().min(room)]);
                    if text.len() > room {
                        self.state = Line::Cut;
                    }
                }
                Line::Cut => {}
                Line::Over => return,
            }
            if ends {
                self.end_line();
            }
        }
    }

    /// What stands there without a line's end is a line too. Gives the end of it all.
    pub(super) fn finish(mut self) -> Option<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        let tail = String::from_utf8_lossy(self.tail.make_contiguous()).trim().to_owned();
        (!tail.is_empty()).then_some(tail)
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let cut = match std::mem::replace(&mut self.state, Line::Kept) {
            Line::Kept => "",
            Line::Cut => CUT,
            Line::Over => return self.state = Line::Over,
        };
        let Some(left) = self.left.checked_sub(line.len() + 1) else {
            self.state = Line::Over;
            return self.say("… (the rest of stderr is not kept: it is too much)".to_owned());
        };
        self.left = left;
        self.say(format!("{}{cut}", String::from_utf8_lossy(&line)));
    }

    fn say(&self, message: String) {
        self.notes.say(Note::Log { level: Level::Info, message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(bytes: &[u8]) -> Option<String> {
        let mut output = Output::new(100);
        output.take(bytes).expect("it fits");
        output.into_json()
    }

    #[test]
    fn output_is_json_or_becomes_a_json_string() {
        assert_eq!(json(b""), None);
        assert_eq!(json(b"\n"), None);
        assert_eq!(json(b"{\"a\": 1}\n").as_deref(), Some("{\"a\": 1}"));
        assert_eq!(json(b"12").as_deref(), Some("12"));
        assert_eq!(json(b"two words\n\n").as_deref(), Some("\"two words\\n\""), "one end of line is dropped");
        assert_eq!(json(b"a\xffb").as_deref(), Some("\"a\u{fffd}b\""));
    }

    #[test]
    fn output_has_a_bound() {
        let mut output = Output::new(4);
        assert_eq!(output.take(b"1234"), Ok(()));
        assert_eq!(output.take(b"5"), Err(TooLarge));
        assert!(output.beginning().starts_with("1234 …"));
    }

    /// The lines that are kept of these chunks, and the end.
    fn lines(most: usize, chunks: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let (notes, said) = ostler_exec::notes();
        let mut lines = Lines::new(notes, most);
        chunks.iter().for_each(|chunk| lines.take(chunk));
        let tail = lines.finish();
        let mut kept = Vec::new();
        while let Some(note) = said.try_recv() {
            match note {
                Note::Log { message, .. } => kept.push(message),
                Note::Progress { .. } | Note::Warning(_) | Note::Dropped(_) => {
                    panic!("only lines are said: {note:?}")
                }
            }
        }
        (kept, tail)
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
    fn too_many_lines_are_dropped_and_that_is_said_once() {
        let (kept, tail) = lines(10, &[b"12345\n", b"67890\n", b"more\n", b"last"]);
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(kept[1].contains("not kept"));
        assert!(tail.is_some_and(|tail| tail.ends_with("last")), "the end is kept all the same");
    }
}
