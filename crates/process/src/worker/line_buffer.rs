//! Line buffer: splits the bytes from the socket into lines, within the frame size limit.

use std::io::BufRead as _;

use super::outgoing::MAX_FRAME_BYTES;

/// Free bytes before each receive.
pub(super) const ROOM_BYTES: usize = 16 * 1024;
/// Capacity above this is released after a large frame.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// Received bytes that are not consumed yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes already consumed.
    taken: usize,
    /// Up to here there is no newline.
    searched: usize,
}

/// A line is longer than any frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) beginning: Vec<u8>,
}

impl LineBuffer {
    /// The buffer to receive into.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.searched -= self.taken;
            self.taken = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > MOST_KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.reserve(ROOM_BYTES);
        &mut self.bytes
    }

    /// The next complete line, without its newline.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let mut rest = &self.bytes[self.searched..];
        // Reading from memory does not fail.
        let skipped = rest.skip_until(b'\n').unwrap_or(0);
        let is_whole = skipped > 0 && self.bytes[self.searched + skipped - 1] == b'\n';
        self.searched += skipped;
        let length = self.searched - self.taken - usize::from(is_whole);
        if length > MAX_FRAME_BYTES {
            const BEGINNING: usize = 256;
            let beginning = self.bytes[self.taken..][..BEGINNING].to_vec();
            return Err(TooLong { beginning });
        }
        if !is_whole {
            return Ok(None);
        }
        let line = self.taken..self.taken + length;
        self.taken = self.searched;
        Ok(Some(&self.bytes[line]))
    }

    /// Whether an incomplete line is buffered.
    pub(super) fn is_in_a_line(&self) -> bool {
        self.bytes.len() > self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines of these pieces.
    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut inbox = LineBuffer::default();
        let mut lines = Vec::new();
        for piece in pieces {
            inbox.room().extend_from_slice(piece);
            while let Some(line) = inbox.next().expect("they are short") {
                lines.push(String::from_utf8(line.to_vec()).expect("text"));
            }
        }
        lines
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        assert_eq!(lines(&[b"one\ntw", b"o\n", b"\nthr", b"e", b"e"]), ["one", "two", ""]);
        let text = b"first\nsecond\n\nlast\n";
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(&single), ["first", "second", "", "last"]);
        assert_eq!(lines(&[text]), ["first", "second", "", "last"]);
    }

    #[test]
    fn a_half_line_is_none() {
        let mut inbox = LineBuffer::default();
        inbox.room().extend_from_slice(b"{\"type\":");
        assert_eq!(inbox.next(), Ok(None));
        assert!(inbox.is_in_a_line());
        inbox.room().extend_from_slice(b"1}\n");
        assert_eq!(inbox.next(), Ok(Some(&b"{\"type\":1}"[..])));
        assert!(!inbox.is_in_a_line());
    }

    #[test]
    fn a_line_has_a_bound_also_before_it_ends() {
        let mut inbox = LineBuffer::default();
        let most = vec![b'x'; MAX_FRAME_BYTES];
        inbox.room().extend_from_slice(&most);
        assert_eq!(inbox.next(), Ok(None), "it may still end here");
        inbox.room().push(b'\n');
        assert_eq!(inbox.next().map(|line| line.map(<[u8]>::len)), Ok(Some(MAX_FRAME_BYTES)));
        for end in [&b"y"[..], b"y\n"] {
            let mut inbox = LineBuffer::default();
            inbox.room().extend_from_slice(&most);
            inbox.room().extend_from_slice(end);
            assert!(inbox.next().is_err_and(|error| error.beginning.starts_with(b"xxx")));
        }
    }

    #[test]
    fn what_a_large_line_needed_is_given_back() {
        let mut inbox = LineBuffer::default();
        inbox.room().extend_from_slice(&vec![b'x'; MOST_KEPT_BYTES * 2]);
        inbox.room().push(b'\n');
        assert!(inbox.next().is_ok_and(|line| line.is_some()));
        assert!(inbox.room().capacity() <= MOST_KEPT_BYTES);
    }
}
