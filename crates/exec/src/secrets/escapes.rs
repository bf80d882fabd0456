//! JSON escapes: a text with its escapes decoded, where each byte knows its place in the source.
//!
//! A secret in JSON may be written in many ways (`\n`, `\"`, `\/`, `\u0073`). Decoding them leaves one form to look for.

/// A text, and where each of its bytes begins in the source.
#[derive(Debug)]
pub(super) struct DecodedText {
    pub(super) bytes: Vec<u8>,
    /// For each byte the source offset of its character or escape, and at last the end of the source.
    pub(super) starts: Vec<usize>,
    /// The source offset of an escape that is incomplete at the end.
    pub(super) incomplete: Option<usize>,
}

/// Whether more may follow the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextEnd {
    /// It may go on.
    Open,
    Final,
}

/// One escape sequence.
enum Escape {
    /// This character, in this many bytes.
    Char(char, usize),
    /// More bytes are needed to tell.
    Incomplete,
    /// A plain backslash.
    None,
}

impl DecodedText {
    /// The source with its escapes decoded; `None` if it has none.
    pub(super) fn of(source: &[u8], end: TextEnd) -> Option<Self> {
        decode(source, |at| at, source.len(), end)
    }

    /// The same with the escapes decoded that were themselves escaped.
    pub(super) fn again(&self, end: TextEnd) -> Option<Self> {
        let source_end = self.starts.last().copied().unwrap_or_default();
        let decoded = decode(&self.bytes, |at| self.starts[at], source_end, end)?;
        let incomplete = [decoded.incomplete, self.incomplete].into_iter().flatten().min();
        Some(Self { incomplete, ..decoded })
    }

    /// The index of the first byte that begins at this source offset or behind it.
    pub(super) fn index(&self, source: usize) -> usize {
        self.starts.partition_point(|start| *start < source).min(self.bytes.len())
    }

    /// The last source offset up to this one at which a character or an escape begins.
    pub(super) fn boundary(&self, source: usize) -> usize {
        let behind = self.starts.partition_point(|start| *start <= source);
        behind.checked_sub(1).map_or(source, |at| self.starts[at])
    }
}

fn decode(
    text: &[u8],
    start: impl Fn(usize) -> usize,
    source_end: usize,
    end: TextEnd,
) -> Option<DecodedText> {
    if !text.contains(&b'\\') {
        return None;
    }
    let mut decoded = DecodedText {
        bytes: Vec::with_capacity(text.len()),
        starts: Vec::with_capacity(text.len() + 1),
        incomplete: None,
    };
    let mut at = 0;
    while at < text.len() {
        match escape(&text[at..]) {
            Escape::Char(c, length) => {
                let mut utf8 = [0; 4];
                for byte in c.encode_utf8(&mut utf8).bytes() {
                    decoded.bytes.push(byte);
                    decoded.starts.push(start(at));
                }
                at += length;
            }
            Escape::Incomplete if end == TextEnd::Open => {
                decoded.incomplete = Some(start(at));
                decoded.starts.push(start(at));
                return Some(decoded);
            }
            Escape::None | Escape::Incomplete => {
                decoded.bytes.push(text[at]);
                decoded.starts.push(start(at));
                at += 1;
            }
        }
    }
    decoded.starts.push(source_end);
    Some(decoded)
}

/// The escape at the beginning of a text.
fn escape(text: &[u8]) -> Escape {
    let [b'\\', rest @ ..] = text else { return Escape::None };
    let plain = |c| Escape::Char(c, 2);
    match rest {
        [] => Escape::Incomplete,
        [b'n', ..] => plain('\n'),
        [b't', ..] => plain('\t'),
        [b'r', ..] => plain('\r'),
        [b'b', ..] => plain('\u{8}'),
        [b'f', ..] => plain('\u{c}'),
        [c @ (b'"' | b'\\' | b'/'), ..] => plain(char::from(*c)),
        [b'u', digits @ ..] => unicode(digits),
        [_, ..] => Escape::None,
    }
}

/// The escape of these digits, which may be the first half of a pair.
fn unicode(digits: &[u8]) -> Escape {
    const FIRST_BYTES: usize = "\\u0000".len();
    let unit = match unit(digits) {
        Ok(unit) => unit,
        Err(other) => return other,
    };
    if let Some(c) = char::from_u32(unit) {
        return Escape::Char(c, FIRST_BYTES);
    }
    let lone = Escape::Char(char::REPLACEMENT_CHARACTER, FIRST_BYTES);
    if !(0xd800..0xdc00).contains(&unit) {
        return lone;
    }
    let second = match &digits[4..] {
        [] | [b'\\'] => return Escape::Incomplete,
        [b'\\', b'u', digits @ ..] => self::unit(digits),
        [..] => return lone,
    };
    match second {
        Ok(low) if (0xdc00..0xe000).contains(&low) => {
            let c = char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
            Escape::Char(c.unwrap_or(char::REPLACEMENT_CHARACTER), 2 * FIRST_BYTES)
        }
        Err(Escape::Incomplete) => Escape::Incomplete,
        Ok(_) | Err(Escape::Char(..) | Escape::None) => lone,
    }
}

/// Four hexadecimal digits.
fn unit(digits: &[u8]) -> Result<u32, Escape> {
    let four = &digits[..digits.len().min(4)];
    let value = four.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?));
    match value {
        Some(value) if four.len() == 4 => Ok(value),
        Some(_) => Err(Escape::Incomplete),
        None => Err(Escape::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> String {
        let decoded = DecodedText::of(text.as_bytes(), TextEnd::Final);
        decoded.map_or_else(|| text.to_owned(), |it| String::from_utf8(it.bytes).expect("text"))
    }

    #[test]
    fn each_escape_is_its_character_and_what_is_none_stays() {
        for (text, plain) in [
            (r#"a\nb\t\"\\\/\r\b\f"#, "a\nb\t\"\\/\r\u{8}\u{c}"),
            (r"\u0073k-\u00E9\u00e9", "sk-éé"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\ud83d!", "\u{fffd}!"),
            (r"\udc00", "\u{fffd}"),
            (r"C:\windows\x", r"C:\windows\x"),
            (r"\u00zz \", r"\u00zz \"),
            (r"\\n", r"\n"),
        ] {
            assert_eq!(decoded(text), plain, "{text}");
        }
    }

    #[test]
    fn bytes_know_their_places_in_the_source_also_when_decoded_twice() {
        let text = br"a\\u0073\\nb";
        let once = DecodedText::of(text, TextEnd::Final).expect("it has escapes");
        assert_eq!(once.bytes, br"a\u0073\nb");
        let twice = once.again(TextEnd::Final).expect("it has more");
        assert_eq!(twice.bytes, b"as\nb");
        assert_eq!(twice.starts, [0, 1, 8, 11, 12]);
        assert_eq!((twice.index(2), twice.boundary(7), twice.boundary(8)), (2, 1, 8));
    }

    #[test]
    fn an_escape_that_may_go_on_is_not_decoded_yet() {
        for text in [r"ab\", r"ab\u", r"ab\u00e", r"ab\ud83d", r"ab\ud83d\", r"ab\ud83d\ude0"] {
            let open = DecodedText::of(text.as_bytes(), TextEnd::Open).expect("it has an escape");
            assert_eq!((open.incomplete, open.bytes.as_slice()), (Some(2), &b"ab"[..]), "{text}");
        }
    }
}
