//! Redaction of a stream of bytes, such as the output of a child: a value may be split over any number of chunks.

use std::borrow::Cow;
use std::fmt;

use super::Secrets;
use super::escapes::TextEnd;

/// Redacts a stream. It holds back only what may be the beginning of a secret.
#[derive(Default)]
pub struct RedactedStream {
    secrets: Secrets,
    /// What may be the beginning of a secret. Never longer than one.
    held: Vec<u8>,
}

impl fmt::Debug for RedactedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactedStream").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

impl RedactedStream {
    #[must_use]
    pub const fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// Takes the next chunk, and returns what is known by now.
    pub fn take<'a>(&mut self, chunk: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(redactor) = self.secrets.redactor() else { return Cow::Borrowed(chunk) };
        let text = if self.held.is_empty() {
            Cow::Borrowed(chunk)
        } else {
            self.held.extend_from_slice(chunk);
            Cow::Owned(std::mem::take(&mut self.held))
        };
        let findings = redactor.find(&text, TextEnd::Open);
        let (known, held) = text.split_at(findings.undecided);
        let known = redactor.replaced(known, &findings.found);
        self.held = held.to_vec();
        Cow::Owned(known)
    }

    /// The rest, when nothing follows for now.
    pub fn flush(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        match self.secrets.redactor().and_then(|redactor| redactor.redacted(&held)) {
            Some(redacted) => redacted,
            None => held,
        }
    }
}
