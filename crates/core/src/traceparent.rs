//! Traceparent: the W3C trace context of the program that submitted a task, for the programs that run it.

use std::fmt;
use std::str::FromStr;

/// A trace context: a version, the ids of a trace and of its parent span, and flags, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Traceparent(Box<str>);

/// The text is not a trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTraceparent;

impl fmt::Display for NoTraceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a W3C trace context in lower case, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
    }
}

impl std::error::Error for NoTraceparent {}

impl Traceparent {
    /// The variable by which programs hand it on to those that they start.
    pub const VARIABLE: &'static str = "TRACEPARENT";

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Traceparent {
    type Err = NoTraceparent;

    fn from_str(text: &str) -> Result<Self, NoTraceparent> {
        let is_hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, parent, flags] = parts[..] else { return Err(NoTraceparent) };
        let lengths = [version.len(), trace.len(), parent.len(), flags.len()];
        let is_one = lengths == [2, 32, 16, 2] && parts.iter().all(is_hex);
        // What the standard calls invalid: a version that is reserved, and ids of nothing.
        if !is_one || version == "ff" || is_zero(trace) || is_zero(parent) {
            return Err(NoTraceparent);
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_takes_is_taken() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(good.parse::<Traceparent>().map(|it| it.to_string()).as_deref(), Ok(good));
        for wrong in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-011",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(wrong.parse::<Traceparent>(), Err(NoTraceparent), "{wrong}");
        }
    }
}
