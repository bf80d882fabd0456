//! Durations as people write them: `30s`, `5m`, `1h30m`, `250ms`, `7d`. For the config file, the command line and the API.

use std::fmt;
use std::time::Duration;

use crate::text::cut;
use crate::time::DURATION_UNITS as UNITS;

/// The longest accepted duration: a hundred years. Longer ones are mistakes, and no sum of times overflows with these.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
/// Bytes of a wrong text that a message shows.
const SHOWN_BYTES: usize = 40;

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    Empty,
    /// A number without a unit; the message shows the right spelling.
    NoUnit(String),
    Negative,
    /// Not a whole number.
    NotANumber,
    UnknownUnit(String),
    /// A unit that is not smaller than the previous one.
    Order,
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected a number with a unit, such as 5s"),
            Self::NoUnit(number) => write!(f, "missing unit; write {number}s, for example"),
            Self::Negative => f.write_str("a duration cannot be negative"),
            Self::NotANumber => f.write_str("expected whole numbers with units, such as 1h30m"),
            Self::UnknownUnit(unit) => {
                write!(f, "unknown unit \"{unit}\"; the units are d, h, m, s and ms")
            }
            Self::Order => f.write_str("units must go from large to small, each only once, such as 1h30m"),
            Self::TooLong => f.write_str("the longest duration is 36500d"),
        }
    }
}

impl std::error::Error for DurationError {}

/// Parses a duration.
///
/// # Errors
/// What is wrong with the text, and what would be right.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
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
            return Err(if alone {
                DurationError::NoUnit(cut_short(digits))
            } else {
                DurationError::NotANumber
            });
        }
        let at = UNITS.iter().position(|(name, _)| *name == unit);
        let at = at.ok_or_else(|| DurationError::UnknownUnit(cut_short(unit)))?;
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
fn split(text: &str, so: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !so(c)).unwrap_or(text.len()))
}

fn cut_short(text: &str) -> String {
    cut(text, SHOWN_BYTES)
}
