//! Server-sent events (SSE): from the bytes of a stream, however they were cut into pieces, to its events. No I/O.
//!
//! An event ends with an empty line. What is left at the end of a stream is no event: its sender was cut off.

/// Bytes of one event.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

/// A byte order mark, which may stand before the first line.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The field `event`; `None`: a plain message.
    pub name: Option<String>,
    /// The lines of `data`, joined by line breaks. Bytes that are not UTF-8 become replacement characters.
    pub data: String,
    /// The field `id`: where a stream that is cut goes on.
    pub id: Option<String>,
}

/// The stream has an event that is longer than [`MAX_EVENT_BYTES`]. Nothing more can be read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {MAX_EVENT_BYTES} bytes")]
pub struct EventTooLong;

/// Collects bytes until an event is complete.
#[derive(Clone, Debug, Default)]
pub struct SseParser {
    /// The line that is not complete yet.
    line: Vec<u8>,
    /// The fields of the event that is not complete yet.
    name: Option<String>,
    data: Option<Vec<u8>>,
    id: Option<String>,
    /// The last byte was a carriage return: a line feed after it belongs to the same line break.
    after_return: bool,
    has_begun: bool,
}

impl SseParser {
    /// The events that these bytes complete.
    ///
    /// # Errors
    /// When an event is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut events = Vec::new();
        let mut rest = bytes;
        if std::mem::take(&mut self.after_return) && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.keep(&rest[..end])?;
            let is_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_return {
                self.after_return = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            events.extend(self.line_ends());
        }
        self.keep(rest)?;
        Ok(events)
    }

    /// Whether the stream was cut off inside an event.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        !self.line.is_empty() || self.data.is_some()
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        let data = self.data.as_ref().map_or(0, Vec::len);
        if self.line.len() + data + bytes.len() > MAX_EVENT_BYTES {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ends(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.has_begun, true) && line.starts_with(MARK) {
            line.drain(..MARK.len());
        }
        if line.is_empty() {
            let (name, id) = (self.name.take(), self.id.take());
            // Without data there is no event.
            let data = self.data.take()?;
            return Some(SseEvent { name, data: String::from_utf8_lossy(&data).into_owned(), id });
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.name = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            // Comments begin with a colon. Reconnection times are those of the caller.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(name: Option<&str>, data: &str) -> SseEvent {
        SseEvent { name: name.map(str::to_owned), data: data.to_owned(), id: None }
    }

    #[test]
    fn fields_comments_and_line_breaks_are_read_as_the_standard_says() {
        let stream = "\u{feff}: hello\nevent: a\ndata: one\ndata:two\r\n\r\ndata\r\rid: 7\nretry: 1\n\nevent: b\n\ndata:  x: y\n\n";
        let expected = [event(Some("a"), "one\ntwo"), event(None, ""), event(None, " x: y")];
        assert_eq!(SseParser::default().push(stream.as_bytes()), Ok(expected.to_vec()));
    }

    #[test]
    fn an_event_has_its_own_id_and_no_other() {
        let events = SseParser::default().push(b"id: a-7\ndata: 1\n\ndata: 2\n\nid: a-8\n\ndata: 3\n\n");
        let ids: Vec<_> = events.expect("short events").into_iter().map(|event| event.id).collect();
        assert_eq!(ids, [Some("a-7".to_owned()), None, None]);
    }

    #[test]
    fn what_is_left_at_the_end_is_no_event() {
        let mut parser = SseParser::default();
        assert_eq!(parser.push(b"data: whole\n\ndata: half\n"), Ok(vec![event(None, "whole")]));
        assert!(parser.is_cut_off());
        assert_eq!(parser.push(b"\n"), Ok(vec![event(None, "half")]));
        assert!(!parser.is_cut_off());
    }

    #[test]
    fn an_event_beyond_the_bound_is_refused_in_one_line_and_in_many() {
        let mut parser = SseParser::default();
        assert_eq!(parser.push(b"data: "), Ok(Vec::new()));
        assert_eq!(parser.push(&vec![b'x'; MAX_EVENT_BYTES]), Err(EventTooLong));
        let mut parser = SseParser::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
        let refused = (0..=16).find(|_| parser.push(&line).is_err());
        assert_eq!(refused, Some(15), "sixteen lines of a megabyte and their line breaks are too much");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(0x05_71_e2), ..Default::default()
        })]

        /// However a stream is cut, the same events come out, with every character of their data.
        #[test]
        fn events_do_not_depend_on_how_the_bytes_were_cut(
            texts in prop::collection::vec("[a-zé世🦀 :]{0,12}(\n[a-zé ]{0,6}){0,2}", 0..6),
            line_break in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            cuts in prop::collection::vec(0_usize..400, 0..20),
        ) {
            let mut stream = String::new();
            for text in &texts {
                stream.push_str(": ping");
                stream.push_str(line_break);
                for line in text.split('\n') {
                    stream.push_str("data: ");
                    stream.push_str(line);
                    stream.push_str(line_break);
                }
                stream.push_str(line_break);
            }
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            for pair in at.windows(2) {
                events.extend(parser.push(&stream.as_bytes()[pair[0]..pair[1]]).expect("it is short"));
            }
            let data: Vec<String> = events.into_iter().map(|event| event.data).collect();
            prop_assert_eq!(data, texts);
            prop_assert!(!parser.is_cut_off());
        }
    }
}
