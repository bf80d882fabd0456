//! Standard output of a command, up to a limit: an output that is too long keeps its beginning and its end, with a mark between
//! them.

use std::collections::VecDeque;

use ostler_core::{EventBody, MAX_NESTING, is_too_deep};
use ostler_exec::{EventSender, RedactedStream, Secrets};

use super::policy::OutputForm;
use crate::argument::Argument;

/// Bytes of one piece of a failed attempt's output. JSON takes at most six times as many, which fits into an event.
const PIECE_BYTES: usize = 8 * 1024;
/// Bytes of one UTF-8 character, at most.
pub(super) const MAX_CHAR_BYTES: usize = 4;
/// The maximum number of pieces that are recorded at the end.
pub(super) const MAX_END_PIECES: usize = 2_048;

/// Standard output, up to a limit.
#[derive(Clone)]
pub(super) struct Output {
    form: OutputForm,
    /// The beginning: the first half of the limit.
    head: Vec<u8>,
    /// The end of the rest: as much as the limit leaves.
    tail: VecDeque<u8>,
    written: u64,
    most: usize,
}

/// The output of a successful attempt.
pub(super) struct KeptOutput {
    /// JSON text. `None` if nothing was written.
    pub(super) json: Option<String>,
    pub(super) warning: Option<String>,
}

impl Output {
    pub(super) const fn new(form: OutputForm, most: usize) -> Self {
        Self { form, head: Vec::new(), tail: VecDeque::new(), written: 0, most }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) {
        self.written += chunk.len() as u64;
        let room = (self.most / 2).saturating_sub(self.head.len()).min(chunk.len());
        let (first, rest) = chunk.split_at(room);
        self.head.extend_from_slice(first);
        let most = self.most - self.most / 2;
        self.tail.extend(&rest[rest.len().saturating_sub(most)..]);
        self.tail.drain(..self.tail.len().saturating_sub(most));
    }

    /// The same without the values of secrets. Where bytes were left out, those go too that may belong to one.
    pub(super) fn redacted(mut self, secrets: &Secrets) -> Self {
        if secrets.longest_form() == 0 {
            return self;
        }
        let whole = self.written <= (self.head.len() + self.tail.len()) as u64;
        let (head, tail) = (std::mem::take(&mut self.head), Vec::from(std::mem::take(&mut self.tail)));
        let mut redacted = Self::new(self.form, self.most);
        if whole {
            redacted.take(&secrets.redact_bytes([head, tail].concat()));
            return redacted;
        }
        let mut beginning = RedactedStream::new(secrets.clone());
        redacted.head = beginning.take(&head).into_owned();
        redacted.head.truncate(self.most / 2);
        let tail = secrets.redact_bytes(tail);
        redacted.tail = tail[secrets.longest_form().min(tail.len())..].to_vec().into();
        redacted.written = self.written;
        redacted
    }

    /// Returns the output to keep of a success.
    pub(super) fn into_kept(mut self) -> KeptOutput {
        let (mut room, most) = (self.most, self.most);
        loop {
            let part = self.within(room);
            let cut = part.is_cut.then(|| self.was_cut(most));
            let needed = match json(self.form, part, most) {
                Ok(kept) => return KeptOutput { warning: cut.or(kept.warning), ..kept },
                Err(needed) => needed,
            };
            // As JSON the output is longer than it was written. Each round drops a good part of it.
            let scaled = (room as u128 * most as u128 / needed as u128) as usize;
            room = scaled.min(room - room.div_ceil(16));
            if room == 0 {
                return KeptOutput { json: None, warning: Some(self.was_cut(most)) };
            }
        }
    }

    fn was_cut(&self, most: usize) -> String {
        format!(
            "its output was truncated: it wrote {} bytes, but at most {most} are kept, as JSON; the beginning and the end are there",
            self.written
        )
    }

    /// How much of the output may be recorded as notes, if the limit of a log is `most`.
    pub(super) fn loggable(most: usize, max_output_bytes: usize) -> usize {
        most.min(MAX_END_PIECES / 2 * PIECE_BYTES).min(max_output_bytes)
    }

    /// Records the output as notes, up to this many bytes, without those of its beginning that were recorded before.
    pub(super) fn log(&mut self, notes: &EventSender, most: usize, recorded: usize) -> Recorded {
        let most = Self::loggable(most, self.most);
        let part = self.within(most);
        for piece in pieces(&part.bytes[recorded.min(part.head)..]) {
            if let Ok(json) = serde_json::to_string(&Argument(piece.to_vec())) {
                notes.say(EventBody::Stdout { text: json });
            }
        }
        if part.is_cut { Recorded::Truncated { most } } else { Recorded::Whole }
    }

    /// The same for a command that did not succeed, with a warning if not all is recorded.
    pub(super) fn tell(&mut self, notes: &EventSender, most: usize, recorded: usize) {
        if let Recorded::Truncated { most } = self.log(notes, most, recorded) {
            let message = format!(
                "its output was truncated: it wrote {} bytes, but at most {most} are kept of an attempt that did not succeed",
                self.written
            );
            notes.say(EventBody::warning(message));
        }
    }

    /// All of the output if it fits into `most` bytes; otherwise its beginning and end, with a mark between them.
    fn within(&mut self, most: usize) -> Part {
        let tail = self.tail.make_contiguous();
        if self.written <= most as u64 {
            let bytes = [&self.head, &*tail].concat();
            return Part { head: bytes.len(), bytes, is_cut: false };
        }
        let head = until_character(&self.head[..self.head.len().min(most / 2)]);
        // Little was written: the part that is not in the tail is in the head.
        let joined;
        let all: &[u8] = if self.written <= (self.head.len() + tail.len()) as u64 {
            joined = [&self.head[head.len()..], &*tail].concat();
            &joined
        } else {
            tail
        };
        let tail = from_character(&all[all.len().saturating_sub(most - most / 2)..]);
        let left_out = self.written - (head.len() + tail.len()) as u64;
        let mark = format!("\n… {left_out} bytes left out …\n");
        Part { bytes: [head, mark.as_bytes(), tail].concat(), head: head.len(), is_cut: true }
    }
}

/// How much of an output was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Whole,
    /// At most this many bytes.
    Truncated {
        most: usize,
    },
}

/// The whole output, or its beginning and its end.
struct Part {
    bytes: Vec<u8>,
    /// The length of the beginning; of the whole output its length.
    head: usize,
    is_cut: bool,
}

/// Converts to JSON text of at most `most` bytes; the error is the length it would have.
fn json(form: OutputForm, Part { bytes, is_cut, .. }: Part, most: usize) -> Result<KeptOutput, usize> {
    let kept = |json| Ok(KeptOutput { json, warning: None });
    if bytes.is_empty() {
        return kept(None);
    }
    match form {
        OutputForm::Json => {}
        OutputForm::Exact => {
            let needed = length(&bytes);
            return if needed > most {
                Err(needed)
            } else {
                kept(serde_json::to_string(&Argument(bytes)).ok())
            };
        }
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if text.is_empty() {
        return kept(None);
    }
    // Truncated text is not the program's JSON, even if it parses.
    let is_json = !is_cut && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let is_deep = is_json && is_too_deep(text);
    if is_json && !is_deep && text.len() <= most {
        return kept(Some(text.to_owned()));
    }
    let needed = length(text.as_bytes());
    if needed > most {
        return Err(needed);
    }
    let warning = is_deep.then(|| {
        format!("its output is JSON nested more than {MAX_NESTING} levels deep, and is kept as a string")
    });
    Ok(KeptOutput { json: serde_json::to_string(text).ok(), warning })
}

/// The length of these bytes as JSON: a string if they are UTF-8, otherwise a list. Counted, because writing it is slow and may
/// take several times the memory.
fn length(bytes: &[u8]) -> usize {
    let quotes_or_brackets = 2;
    if std::str::from_utf8(bytes).is_ok() {
        let of_byte = |byte: &u8| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => "\\u0000".len(),
            0x20.. => 1,
        };
        return bytes.iter().map(of_byte).sum::<usize>() + quotes_or_brackets;
    }
    let digits = |byte: &u8| match byte {
        0..10 => 1,
        10..100 => 2,
        100.. => 3,
    };
    let commas = bytes.len().saturating_sub(1);
    bytes.iter().map(digits).sum::<usize>() + commas + quotes_or_brackets
}

/// Drops an incomplete character at the end.
pub(super) fn until_character(bytes: &[u8]) -> &[u8] {
    let begins = |at: &usize| bytes[*at] & 0b1100_0000 != 0b1000_0000;
    let last = (bytes.len().saturating_sub(MAX_CHAR_BYTES)..bytes.len()).rev().find(begins);
    match last {
        Some(at) if bytes[at] >= 0x80 && std::str::from_utf8(&bytes[at..]).is_err() => &bytes[..at],
        Some(_) | None => bytes,
    }
}

/// Drops an incomplete character at the beginning.
fn from_character(bytes: &[u8]) -> &[u8] {
    let is_inside = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let inside = bytes.iter().take(MAX_CHAR_BYTES - 1).take_while(is_inside).count();
    &bytes[inside..]
}

/// Splits the bytes into pieces that end with a line where possible, otherwise with a character.
pub(super) fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let most = &bytes[..bytes.len().min(PIECE_BYTES)];
        let end = if most.len() == bytes.len() {
            most.len()
        } else {
            // Not much shorter than the limit, so that there are not too many pieces.
            let line = most.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
            line.filter(|end| *end > PIECE_BYTES / 2).unwrap_or_else(|| until_character(most).len())
        };
        let (piece, rest) = bytes.split_at(end);
        bytes = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: OutputForm, most: usize, chunks: &[&[u8]]) -> Output {
        let mut output = Output::new(form, most);
        chunks.iter().for_each(|chunk| output.take(chunk));
        output
    }

    fn json(bytes: &[u8]) -> Option<String> {
        let kept = of(OutputForm::Json, 100, &[bytes]).into_kept();
        assert_eq!(kept.warning, None);
        kept.json
    }

    /// The recorded output of a failure, joined, and the warnings.
    fn told(mut output: Output, most: usize) -> (Vec<u8>, Vec<String>) {
        let (notes, heard) = ostler_exec::event_channel();
        output.tell(&notes, most, 0);
        let (mut bytes, mut warnings) = (Vec::new(), Vec::new());
        for note in std::iter::from_fn(|| heard.try_recv()) {
            if let EventBody::Stdout { text: piece } = &note {
                assert!(piece.len() <= 64 * 1024, "it fits into an event");
                bytes.extend(serde_json::from_str::<Argument>(piece).expect("JSON").0);
            } else if let EventBody::Warning { text: warning } = note {
                warnings.push(warning);
            } else {
                panic!("{note:?}");
            }
        }
        (bytes, warnings)
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
    fn of_too_much_the_beginning_and_the_end_are_kept_with_a_mark() {
        let text: String = (0..1_000).map(|number| format!("line {number}\n")).collect();
        for chunk in [1, 7, 4_096, text.len()] {
            for form in [OutputForm::Exact, OutputForm::Json] {
                let chunks: Vec<&[u8]> = text.as_bytes().chunks(chunk).collect();
                let kept = of(form, 1_000, &chunks).into_kept();
                let json = kept.json.expect("there is some");
                assert!(json.len() <= 1_000 && json.len() > 800, "{}", json.len());
                let shown: String = serde_json::from_str(&json).expect("a text");
                let (head, rest) = shown.split_once("\n… ").expect("a mark");
                let (left_out, tail) = rest.split_once(" bytes left out …\n").expect("a mark");
                assert!(
                    text.starts_with(head) && text.ends_with(tail) || tail.ends_with("line 999"),
                    "{shown}"
                );
                let left_out: usize = left_out.parse().expect("a number");
                assert!(head.len() + left_out + tail.len() + 1 >= text.len(), "{shown}");
                assert!(kept.warning.is_some_and(|warning| warning.contains("it wrote 8890 bytes")));
            }
        }
    }

    #[test]
    fn what_just_fits_is_whole_and_json_counts_as_it_is_kept() {
        let fits = of(OutputForm::Json, 12, &[b"123456", b"7890"]).into_kept();
        assert_eq!((fits.json.as_deref(), fits.warning), (Some("1234567890"), None));
        // Ten newlines are twenty bytes of JSON, and two for the quotes.
        let lines = of(OutputForm::Exact, 22, &[b"\n\n\n\n\n\n\n\n\n\n"]).into_kept();
        assert_eq!((lines.json.map(|json| json.len()), lines.warning), (Some(22), None));
        for (form, byte) in [(OutputForm::Exact, 0xff), (OutputForm::Exact, 1), (OutputForm::Json, 0xff)] {
            let bytes = vec![byte; 10_000];
            let kept = of(form, 10_000, &[&bytes]).into_kept();
            assert!(
                kept.json.is_some_and(|json| json.len() <= 10_000 && json.len() > 5_000),
                "{form:?} {byte}"
            );
            assert!(kept.warning.is_some_and(|warning| warning.contains("it wrote 10000 bytes")));
        }
        let none = of(OutputForm::Exact, 1, &[b"ab"]).into_kept();
        assert!(none.json.is_none() && none.warning.is_some());
    }

    #[test]
    fn bytes_of_json_are_counted_as_they_are_written() {
        let every: Vec<u8> = (0..=255).collect();
        let text: String = (0..0x800).filter_map(char::from_u32).collect();
        for bytes in [&every[..], text.as_bytes(), b"", b"\xff", "\"\\/\u{7f}\u{2028}".as_bytes()] {
            let json = serde_json::to_string(&Argument(bytes.to_vec())).expect("JSON");
            assert_eq!(length(bytes), json.len(), "{json}");
        }
    }

    #[test]
    fn json_that_is_cut_or_too_deep_is_kept_as_a_text() {
        let long = format!("[{}]", vec!["1"; 600].join(","));
        let kept = of(OutputForm::Json, 1_000, &[long.as_bytes()]).into_kept();
        let text: String = serde_json::from_str(&kept.json.expect("some")).expect("a text");
        assert!(text.starts_with("[1,1,") && text.ends_with(",1]") && text.contains("left out"), "{text}");
        assert!(kept.warning.is_some());
        let deep = "[".repeat(MAX_NESTING + 1) + &"]".repeat(MAX_NESTING + 1);
        let kept = of(OutputForm::Json, 1_000, &[deep.as_bytes()]).into_kept();
        assert_eq!(kept.json, Some(format!("\"{deep}\"")));
        assert!(kept.warning.is_some_and(|warning| warning.contains("deep")));
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "ä€😀".repeat(300);
        for most in 200..240 {
            let json = of(OutputForm::Exact, most, &[text.as_bytes()]).into_kept().json.expect("some");
            assert!(json.starts_with('"') && !json.contains('\u{fffd}'), "{json}");
        }
    }

    #[test]
    fn what_was_recorded_as_it_came_is_not_recorded_again() {
        let text: String = (0..1_000).map(|number| format!("line {number}\n")).collect();
        let recorded = |most: usize, before: usize| {
            let (notes, heard) = ostler_exec::event_channel();
            let how = of(OutputForm::Json, 1 << 20, &[text.as_bytes()]).log(&notes, most, before);
            let events = std::iter::from_fn(|| heard.try_recv());
            let pieces = events.map(|event| {
                let EventBody::Stdout { text: piece } = event else { panic!("{event:?}") };
                serde_json::from_str::<String>(&piece).expect("JSON")
            });
            (pieces.collect::<String>(), how)
        };
        assert_eq!(recorded(1 << 20, 70), (text[70..].to_owned(), Recorded::Whole));
        assert_eq!(recorded(1 << 20, text.len()), (String::new(), Recorded::Whole));
        let (rest, how) = recorded(1_000, 70);
        assert_eq!((&rest[..430], how), (&text[70..500], Recorded::Truncated { most: 1_000 }));
        assert!(rest[430..].starts_with("\n… ") && rest.ends_with("line 999\n"), "{rest}");
        let (rest, _) = recorded(1_000, 600);
        assert!(rest.starts_with("\n… "), "{rest}");
    }

    #[test]
    fn what_a_failure_wrote_is_told_byte_by_byte_within_its_bound() {
        let mut bytes = "a line, then a long one\n".repeat(2_000).into_bytes();
        bytes.extend([0, 0xff, b'\n', 0xe2]);
        bytes.extend(vec![1; 3 * PIECE_BYTES]);
        assert_eq!(told(of(OutputForm::Json, 1 << 20, &[&bytes]), 1 << 20), (bytes.clone(), vec![]));
        assert_eq!(told(of(OutputForm::Exact, 1 << 20, &[]), 1 << 20), (vec![], vec![]));
        let (kept, warnings) = told(of(OutputForm::Exact, 1 << 20, &[&bytes]), 1_000);
        assert!(kept.len() < 1_100 && kept.starts_with(b"a line") && kept.ends_with(&[1; 400]));
        assert!(warnings.len() == 1 && warnings[0].contains("at most 1000 are kept"), "{warnings:?}");
    }
}
