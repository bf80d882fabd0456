//! What a command gave out, within bounds.

use super::policy::OutputForm;
use crate::argument::Argument;
use crate::lines::{CUT, TAIL_BYTES};

/// Stdout, up to a bound.
pub(super) struct Output {
    form: OutputForm,
    bytes: Vec<u8>,
    most: usize,
}

/// More output than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Output {
    pub(super) const fn new(form: OutputForm, most: usize) -> Self {
        Self { form, bytes: Vec::new(), most }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        if self.bytes.len() + chunk.len() > self.most {
            return Err(TooLarge);
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// As JSON text. Nothing is no output.
    pub(super) fn into_json(self) -> Option<String> {
        match self.form {
            OutputForm::Json => {}
            OutputForm::Exact if self.bytes.is_empty() => return None,
            OutputForm::Exact => return serde_json::to_string(&Argument(self.bytes)).ok(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn json(bytes: &[u8]) -> Option<String> {
        let mut output = Output::new(OutputForm::Json, 100);
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
        let mut output = Output::new(OutputForm::Json, 4);
        assert_eq!(output.take(b"1234"), Ok(()));
        assert_eq!(output.take(b"5"), Err(TooLarge));
        assert!(output.beginning().starts_with("1234 …"));
    }
}
