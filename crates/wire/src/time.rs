//! Timestamps and durations as users write and read them: RFC 3339, in UTC, with milliseconds; and `1h30m`.

use std::fmt;

use ostler_core::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A timestamp, such as `2026-08-01T03:00:00.000Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeView(Timestamp);

impl From<Timestamp> for TimeView {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl TimeView {
    #[must_use]
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }

    /// Parses an RFC 3339 timestamp. The offset from UTC is required.
    ///
    /// # Errors
    /// A sentence with an example of the right form.
    pub fn parse(text: &str) -> Result<Timestamp, String> {
        let wrong = |_| {
            "a time needs an offset from UTC, such as 2026-08-01T03:00:00Z or \
             2026-08-01T05:00:00+02:00"
                .to_owned()
        };
        let read: jiff::Timestamp = text.trim().parse().map_err(wrong)?;
        Ok(Timestamp::from_millis(read.as_millisecond()))
    }
}

impl fmt::Display for TimeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Timestamps saturate at 64 bits; the calendar ends with the year 9999.
        let last = if self.0.millis() < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let at = jiff::Timestamp::from_millisecond(self.0.millis()).unwrap_or(last);
        write!(f, "{at:.3}")
    }
}

impl Serialize for TimeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeView {
    fn deserialize<D: Deserializer<'de>>(found: D) -> Result<Self, D::Error> {
        let text = String::deserialize(found)?;
        Self::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for TimeView {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeView".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_milliseconds_and_a_z() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_785_553_200_007, "2026-08-01T03:00:00.007Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            let at = Timestamp::from_millis(millis);
            assert_eq!(TimeView::from(at).to_string(), text);
            assert_eq!(TimeView::parse(text), Ok(at));
        }
    }

    #[test]
    fn the_end_of_all_time_can_be_shown() {
        for millis in [i64::MAX, i64::MIN] {
            let shown = TimeView::from(Timestamp::from_millis(millis)).to_string();
            assert!(TimeView::parse(&shown).is_ok(), "{shown}");
        }
    }

    #[test]
    fn other_zones_are_read_and_what_has_none_is_refused() {
        assert_eq!(TimeView::parse("2026-08-01T05:00:00+02:00"), TimeView::parse("2026-08-01T03:00:00Z"));
        for text in
            ["", "tomorrow", "2026-08-01", "2026-08-01T03:00:00", "2026-13-01T00:00:00Z", "1785553200"]
        {
            let sentence = TimeView::parse(text).expect_err(text);
            assert!(sentence.contains("2026-08-01T03:00:00Z"), "{sentence}");
        }
    }
}
