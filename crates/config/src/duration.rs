//! Durations: `30s`, `5m`, `1h30m`, `250ms`, `7d`. For the config file and the command line.

use std::time::Duration;

use ostler_core::DURATION_UNITS as UNITS;
pub use ostler_core::show_duration as show;

/// The longest accepted duration: a hundred years. Longer ones are mistakes, and no sum of times overflows with these.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("expected a number with a unit, such as 5s")]
    Empty,
    /// A number without a unit; the message shows the right spelling.
    #[error("missing unit; write {0}s, for example")]
    NoUnit(String),
    #[error("a duration cannot be negative")]
    Negative,
    /// Not a whole number.
    #[error("expected whole numbers with units, such as 1h30m")]
    NotANumber,
    #[error("unknown unit \"{0}\"; the units are d, h, m, s and ms")]
    UnknownUnit(String),
    /// A unit that is not smaller than the previous one.
    #[error("units must go from large to small, each only once, such as 1h30m")]
    Order,
    #[error("the longest duration is 36500d")]
    TooLong,
}

/// Parses a duration.
///
/// # Errors
/// What is wrong with the text, and what would be right.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut total_ms: u64 = 0;
    // The largest unit that may still follow.
    let mut next_unit = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, after) = split(rest, |c| c.is_ascii_digit());
        let (unit, after) = split(after, char::is_alphabetic);
        if digits.is_empty() {
            return Err(DurationError::NotANumber);
        }
        if unit.is_empty() {
            let alone = after.is_empty() && next_unit == 0;
            return Err(if alone { DurationError::NoUnit(short(digits)) } else { DurationError::NotANumber });
        }
        let at = UNITS.iter().position(|(name, _)| *name == unit);
        let at = at.ok_or_else(|| DurationError::UnknownUnit(short(unit)))?;
        if at < next_unit {
            return Err(DurationError::Order);
        }
        let number: u64 = digits.parse().map_err(|_| DurationError::TooLong)?;
        let part_ms = number.checked_mul(UNITS[at].1).ok_or(DurationError::TooLong)?;
        total_ms = total_ms.checked_add(part_ms).ok_or(DurationError::TooLong)?;
        next_unit = at + 1;
        rest = after;
    }
    let total = Duration::from_millis(total_ms);
    if total > LONGEST { Err(DurationError::TooLong) } else { Ok(total) }
}

/// Splits off the leading characters that satisfy `so`.
pub(crate) fn split(text: &str, so: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !so(c)).unwrap_or(text.len()))
}

/// Shortens a user's text for a message.
pub(crate) fn short(text: &str) -> String {
    const SHOWN_BYTES: usize = 40;
    ostler_core::cut(text, SHOWN_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cases;

    #[test]
    fn a_duration_is_read_with_its_units() {
        for (text, millis) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("7d", 604_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            (" 5s ", 5_000),
            ("0s", 0),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_what_would_be_right() {
        for (text, sentence) in [
            ("", "expected a number with a unit, such as 5s"),
            ("5", "missing unit; write 5s"),
            ("-5s", "cannot be negative"),
            ("1.5h", "such as 1h30m"),
            ("s", "such as 1h30m"),
            ("5 s", "such as 1h30m"),
            ("1h30", "such as 1h30m"),
            ("5 minutes", "such as 1h30m"),
            ("5min", "unknown unit \"min\""),
            ("5M", "unknown unit \"M\""),
            ("5µs", "unknown unit \"µs\""),
            ("30m1h", "from large to small"),
            ("1s1s", "from large to small"),
            ("36500d1ms", "the longest duration is 36500d"),
            ("99999999999999999999s", "the longest duration is 36500d"),
            ("18446744073709551615d", "the longest duration is 36500d"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(sentence), "\"{text}\": {error}");
        }
    }

    proptest! {
        #![proptest_config(cases(2_000))]

        #[test]
        fn what_is_shown_is_read_as_the_same(millis in 0..=LONGEST.as_millis() as u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&show(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9dhms. µ-]{0,24}|.*") {
            if let Ok(duration) = parse(&text) {
                prop_assert_eq!(parse(&show(duration)), Ok(duration));
            }
        }
    }
}
