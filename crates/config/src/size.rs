//! Sizes in bytes: `64KiB`, `1MiB`, `10MB`. For the config file and the command line.

use crate::duration::{short, split};

/// Units in bytes, binary ones first: they are preferred for display.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("expected a whole number with a unit, such as 1MiB")]
    NotANumber,
    #[error("missing unit; use one such as 64KiB or 1MiB")]
    NoUnit,
    #[error("unknown unit \"{0}\"; the units are B, kB, MB, GB, KiB, MiB and GiB")]
    UnknownUnit(String),
    #[error("too large")]
    TooLarge,
}

/// Parses a size into bytes.
///
/// # Errors
/// What is wrong with the text, and what would be right.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let (digits, unit) = split(text.trim(), |c| c.is_ascii_digit());
    let unit = unit.trim_start();
    if digits.is_empty() {
        return Err(SizeError::NotANumber);
    }
    if unit.is_empty() {
        return Err(SizeError::NoUnit);
    }
    let (_, bytes) = UNITS
        .iter()
        .find(|(name, _)| *name == unit || (*name == "kB" && unit == "KB"))
        .ok_or_else(|| SizeError::UnknownUnit(short(unit)))?;
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    number.checked_mul(*bytes).ok_or(SizeError::TooLarge)
}

/// Formats a size exactly, in the unit that gives the smallest number.
#[must_use]
pub fn show(bytes: u64) -> String {
    let exact = UNITS.iter().filter(|(_, unit)| bytes.is_multiple_of(*unit) && bytes >= *unit);
    let smallest = exact.min_by_key(|(_, unit)| bytes / unit);
    smallest.map_or_else(|| "0B".to_owned(), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cases;

    #[test]
    fn a_size_is_read_with_its_unit() {
        for (text, bytes) in [
            ("512MiB", 512 << 20),
            ("1MiB", 1 << 20),
            ("64KiB", 64 << 10),
            ("2GiB", 2 << 30),
            ("10MB", 10_000_000),
            ("3kB", 3_000),
            ("3KB", 3_000),
            ("1GB", 1_000_000_000),
            ("17B", 17),
            ("64 KiB", 64 << 10),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_would_be_right() {
        for (text, sentence) in [
            ("", "such as 1MiB"),
            ("MiB", "such as 1MiB"),
            ("-1MiB", "such as 1MiB"),
            ("1048576", "missing unit"),
            ("10M", "unknown unit \"M\""),
            ("1.5MiB", "unknown unit \".5MiB\""),
            ("99999999999999999999B", "too large"),
            ("99999999999GiB", "too large"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(sentence), "\"{text}\": {error}");
        }
    }

    #[test]
    fn it_is_shown_in_the_unit_that_fits() {
        for (bytes, text) in
            [(0, "0B"), (17, "17B"), (1 << 20, "1MiB"), (10_000_000, "10MB"), (1_024_000, "1000KiB")]
        {
            assert_eq!(show(bytes), text);
        }
    }

    proptest! {
        #![proptest_config(cases(2_000))]

        #[test]
        fn what_is_shown_is_read_as_the_same(bytes in any::<u64>(), shift in 0_u32..40) {
            for bytes in [bytes, (bytes >> 44) << shift, (bytes % 1_000) * 1_000_000] {
                prop_assert_eq!(parse(&show(bytes)), Ok(bytes));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9kKMGiB. -]{0,24}|.*") {
            let _ = parse(&text);
        }
    }
}
