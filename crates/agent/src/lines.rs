//! Splits the bytes of a pipe into lines, however they were cut into reads.

/// Bytes of one line. The longest one seen of an agent has four megabytes.
pub const MAX_LINE_BYTES: usize = 8 << 20;

/// A line without its line break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    /// The beginning of a line that is longer than [`MAX_LINE_BYTES`].
    Cut {
        beginning: Vec<u8>,
        /// Bytes of the whole line.
        size: u64,
    },
}

/// Collects bytes until a line is complete.
#[derive(Clone, Debug, Default)]
pub struct LineSplitter {
    line: Vec<u8>,
    /// Bytes of the line so far, with those that are not kept.
    size: u64,
}

impl LineSplitter {
    /// The lines that these bytes complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            lines.push(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
        lines
    }

    /// The last line, if it has no line break.
    pub fn end(&mut self) -> Option<Line> {
        (self.size > 0).then(|| self.take())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.size += bytes.len() as u64;
    }

    fn take(&mut self) -> Line {
        let (mut line, size) = (std::mem::take(&mut self.line), std::mem::take(&mut self.size));
        if size > line.len() as u64 {
            return Line::Cut { beginning: line, size };
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Line::Whole(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_needs_no_line_break_and_a_carriage_return_goes() {
        let mut splitter = LineSplitter::default();
        assert_eq!(splitter.push(b"a\r\n\nb"), [Line::Whole(b"a".to_vec()), Line::Whole(Vec::new())]);
        assert_eq!(splitter.end(), Some(Line::Whole(b"b".to_vec())));
        assert_eq!(splitter.end(), None);
    }

    #[test]
    fn a_line_beyond_the_bound_is_cut_and_says_its_size_and_the_next_is_whole() {
        let mut splitter = LineSplitter::default();
        let half = vec![b'x'; MAX_LINE_BYTES / 2 + 1];
        assert_eq!(splitter.push(&half), []);
        let mut rest = half.clone();
        rest.extend_from_slice(b"\nnext\n");
        let lines = splitter.push(&rest);
        let Line::Cut { beginning, size } = &lines[0] else { panic!("it is too long") };
        assert_eq!((beginning.len(), *size), (MAX_LINE_BYTES, 2 * half.len() as u64));
        assert_eq!(lines[1], Line::Whole(b"next".to_vec()));
    }
}
