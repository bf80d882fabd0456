//! Durations: `30s`, `5m`, `1h30m`, `250ms`, `7d`. Their rules are those of `ostler-core`.

pub use ostler_core::{DurationError, parse_duration as parse, show_duration as show};

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
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::cases;

    /// A hundred years.
    const LONGEST_MS: u64 = 36_500 * 24 * 60 * 60 * 1_000;

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
        fn what_is_shown_is_read_as_the_same(millis in 0..=LONGEST_MS) {
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
