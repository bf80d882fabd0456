//! Timestamps, as every part of Ostler stores and compares them.

use std::fmt;
use std::time::Duration;

/// A timestamp in milliseconds since 1970-01-01 UTC.
///
/// The store's clock makes these; the rules only compare and add. Arithmetic saturates, so that no
/// duration a user writes can overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01 00:00 UTC.
    pub const ZERO: Self = Self(0);

    /// A timestamp from milliseconds since 1970.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This timestamp plus `by`.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// This timestamp minus `by`.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(millis(by)))
    }

    /// The duration since `earlier`; zero if that lies in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A duration in whole milliseconds, saturating at the maximum of a [`Timestamp`].
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Units of durations in milliseconds, from the largest.
pub const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Formats a duration in whole milliseconds, rounded down.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut left = duration.as_millis();
    let mut text = String::new();
    for (unit, unit_ms) in DURATION_UNITS {
        let unit_ms = u128::from(unit_ms);
        if left >= unit_ms {
            text.push_str(&format!("{}{unit}", left / unit_ms));
            left %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}
