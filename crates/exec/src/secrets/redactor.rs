//! Redactor: finds the values of secrets in a text, and replaces them by `[secret NAME]`. Pure: no I/O, no clock.
//!
//! The longest value that begins first wins. A value is found as it is, and with the escapes of JSON, in any mixture, once or twice.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

use super::Secret;
use super::escapes::{DecodedText, TextEnd};

/// Shorter values are not looked for: they would be found in much that is no secret.
pub const MIN_REDACTED_BYTES: usize = 8;
/// How often a text is decoded: JSON in a string of JSON.
const MAX_ESCAPE_LEVELS: usize = 2;
/// The longest usual form of one byte in such a text.
const MAX_FORM_BYTES: usize = "\\\\u0000".len();

/// Bytes that are decoded at once: a decoded text takes many times its size.
const WINDOW_BYTES: usize = 64 * 1024;

/// Finds the values of secrets.
pub(crate) struct Redactor {
    values: Vec<Vec<u8>>,
    /// What replaces each value.
    marks: Vec<String>,
    automaton: AhoCorasick,
    longest: usize,
    /// Which bytes a value begins with.
    begins: [bool; 256],
}

/// A value in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundSecret {
    pub(crate) range: Range<usize>,
    value: usize,
}

impl FoundSecret {
    fn moved(self, by: usize) -> Self {
        Self { range: self.range.start + by..self.range.end + by, ..self }
    }
}

/// The values in a text that may go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) found: Vec<FoundSecret>,
    /// From here on it depends on what follows.
    pub(crate) undecided: usize,
}

impl Redactor {
    /// `None` if no value is long enough.
    pub(crate) fn new(secrets: &[Secret]) -> Result<Option<Self>, aho_corasick::BuildError> {
        let long = secrets.iter().filter(|secret| secret.is_redacted());
        let (values, marks): (Vec<Vec<u8>>, Vec<String>) = long
            .map(|secret| (secret.searched().as_bytes().to_vec(), format!("[secret {}]", secret.name())))
            .unzip();
        let Some(longest) = values.iter().map(Vec::len).max() else { return Ok(None) };
        let mut builder = AhoCorasick::builder();
        // A full automaton takes some kilobytes for each byte of a key.
        builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
        let automaton = builder.build(&values)?;
        let mut begins = [false; 256];
        values.iter().for_each(|value| begins[usize::from(value[0])] = true);
        Ok(Some(Self { values, marks, automaton, longest, begins }))
    }

    /// What replaces a value.
    pub(crate) fn mark(&self, found: &FoundSecret) -> &str {
        &self.marks[found.value]
    }

    /// The bytes that a value takes in a text, in the longest usual form.
    pub(crate) const fn longest_form(&self) -> usize {
        self.longest * MAX_FORM_BYTES
    }

    /// The text with its values replaced; `None` if it has none.
    pub(crate) fn redacted(&self, text: &[u8]) -> Option<Vec<u8>> {
        let Findings { found, .. } = self.find(text, TextEnd::Final);
        (!found.is_empty()).then(|| self.replaced(text, &found))
    }

    /// The text with these values replaced.
    pub(crate) fn replaced(&self, text: &[u8], found: &[FoundSecret]) -> Vec<u8> {
        let (mut redacted, mut at) = (Vec::with_capacity(text.len()), 0);
        for one in found {
            redacted.extend_from_slice(&text[at..one.range.start]);
            redacted.extend_from_slice(self.mark(one).as_bytes());
            at = one.range.end;
        }
        redacted.extend_from_slice(&text[at..]);
        redacted
    }

    /// Finds the values, from the beginning, without overlaps.
    pub(crate) fn find(&self, text: &[u8], end: TextEnd) -> Findings {
        let (mut found, mut from, mut size) = (Vec::new(), 0, WINDOW_BYTES);
        loop {
            let until = text.len().min(from + size);
            let window_end = if until == text.len() { end } else { TextEnd::Open };
            let part = self.find_in_window(&text[from..until], window_end);
            found.extend(part.found.into_iter().map(|one| one.moved(from)));
            from += part.undecided;
            if until == text.len() {
                return Findings { found, undecided: from };
            }
            // A window that is the beginning of a value from its first byte on is too small.
            size = if part.undecided == 0 { size * 2 } else { WINDOW_BYTES };
        }
    }

    fn find_in_window(&self, text: &[u8], end: TextEnd) -> Findings {
        let decoded = decoded(text, end);
        let mut searches: Vec<Search<'_>> = Vec::with_capacity(1 + MAX_ESCAPE_LEVELS);
        searches.push(Search { form: Form::Plain(text), next: NextFound::Unknown });
        searches.extend(
            decoded.iter().map(|form| Search { form: Form::Decoded(form), next: NextFound::Unknown }),
        );
        let (mut found, mut at) = (Vec::new(), 0);
        let undecided_from = |at| match end {
            TextEnd::Final => text.len(),
            TextEnd::Open => self.open_end(text, &decoded, at),
        };
        let mut undecided = undecided_from(at);
        loop {
            let nearest = searches
                .iter_mut()
                .filter_map(|search| search.from(at, &self.automaton))
                .min_by_key(|one| (one.range.start, usize::MAX - one.range.end));
            match nearest {
                Some(one) if one.range.start < undecided => {
                    at = one.range.end;
                    found.push(one);
                    if undecided < at {
                        undecided = undecided_from(at);
                    }
                }
                Some(_) | None => {
                    // Within an escape, what follows could not be decoded.
                    let whole = decoded.last().map_or(undecided, |deepest| deepest.boundary(undecided));
                    return Findings { found, undecided: whole.max(at) };
                }
            }
        }
    }

    /// The first place from `at` on where the rest of the text may be the beginning of a value, in any of its forms.
    fn open_end(&self, text: &[u8], decoded: &[DecodedText], at: usize) -> usize {
        let plain = self.beginning_at_end(text, at);
        let escaped = decoded.iter().flat_map(|form| {
            let begins = self.beginning_at_end(&form.bytes, form.index(at));
            [begins.map(|at| form.starts[at]), form.incomplete.filter(|start| *start >= at)]
        });
        escaped.chain([plain]).flatten().min().unwrap_or(text.len())
    }

    /// Where the text ends with the beginning of a value.
    fn beginning_at_end(&self, text: &[u8], from: usize) -> Option<usize> {
        let begins = |at: &usize| {
            let rest = &text[*at..];
            self.begins[usize::from(rest[0])]
                && self.values.iter().any(|value| value.len() > rest.len() && value.starts_with(rest))
        };
        (text.len().saturating_sub(self.longest - 1).max(from)..text.len()).find(begins)
    }
}

/// The text with its escapes decoded once, and twice, if it has any.
fn decoded(text: &[u8], end: TextEnd) -> Vec<DecodedText> {
    let mut forms: Vec<DecodedText> = Vec::new();
    for _ in 0..MAX_ESCAPE_LEVELS {
        let form = match forms.last() {
            None => DecodedText::of(text, end),
            Some(form) => form.again(end),
        };
        let Some(form) = form else { break };
        forms.push(form);
    }
    forms
}

/// The search for values in one form of a text.
struct Search<'a> {
    form: Form<'a>,
    next: NextFound,
}

enum Form<'a> {
    Plain(&'a [u8]),
    Decoded(&'a DecodedText),
}

/// The next value of a form.
enum NextFound {
    Unknown,
    At(FoundSecret),
    None,
}

impl Search<'_> {
    /// The first value at this source offset or behind it.
    fn from(&mut self, at: usize, automaton: &AhoCorasick) -> Option<FoundSecret> {
        let is_behind = match &self.next {
            NextFound::None => return None,
            NextFound::Unknown => false,
            NextFound::At(found) => found.range.start >= at,
        };
        if !is_behind {
            self.next = self.look(at, automaton).map_or(NextFound::None, NextFound::At);
        }
        match &self.next {
            NextFound::At(found) => Some(found.clone()),
            NextFound::Unknown | NextFound::None => None,
        }
    }

    fn look(&self, at: usize, automaton: &AhoCorasick) -> Option<FoundSecret> {
        match self.form {
            Form::Plain(text) => {
                let found = automaton.find(Input::new(text).range(at..))?;
                Some(FoundSecret { range: found.range(), value: found.pattern().as_usize() })
            }
            Form::Decoded(form) => {
                let found = automaton.find(Input::new(&form.bytes).range(form.index(at)..))?;
                let range = form.starts[found.start()]..form.starts[found.end()];
                Some(FoundSecret { range, value: found.pattern().as_usize() })
            }
        }
    }
}
