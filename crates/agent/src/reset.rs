//! When a usage limit resets: from timestamps, or from a time of day in a sentence; and until when an account is held.

use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use ostler_core::Timestamp;

/// Added to a reset time: the clocks of both sides differ.
pub const RESET_MARGIN: Duration = Duration::from_secs(60);
/// No limit lasts longer than a week; what says so is wrong.
pub const MAX_HOLD: Duration = Duration::from_secs(8 * 24 * 3_600);
/// When to look again if the reset time is not known, or has passed and the account is still blocked.
pub const POLL_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// A time of day that has passed by less than this was today: the message was late. One that has passed by more is tomorrow's.
const JUST_PASSED: Duration = Duration::from_secs(10 * 60);

/// Until when an account is held after a usage limit.
#[must_use]
pub fn hold_until(resets_at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    match resets_at {
        Some(reset) if reset > now => reset.after(RESET_MARGIN).min(now.after(MAX_HOLD)),
        Some(_) | None => now.after(POLL_INTERVAL),
    }
}

/// From seconds since 1970. `None` for what is no timestamp.
pub(crate) fn from_seconds(seconds: u64) -> Option<Timestamp> {
    i64::try_from(seconds).ok()?.checked_mul(1_000).map(Timestamp::from_millis)
}

/// The time in "try again at 3:11 PM", or with a date, "try again at Nov 18th, 2026 3:11 PM", written by a program in this zone.
#[must_use]
pub fn from_sentence(sentence: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let after = sentence.rsplit_once("try again at ")?.1;
    let words: Vec<&str> = after.split_whitespace().map(|word| word.trim_end_matches(['.', ','])).collect();
    match words[..] {
        [month, day, year, clock, half, ..] if is_month(month) => {
            let date = date(month, day, year)?;
            instant(date, time(clock, half)?, zone)
        }
        [clock, half, ..] => next(time(clock, half)?, now, zone),
        _ => None,
    }
}

/// The next time that a clock in this zone shows it.
fn next(time: Time, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let today = jiff::Timestamp::from_millisecond(now.millis()).ok()?.to_zoned(zone.clone()).date();
    let then = instant(today, time, zone)?;
    if then.after(JUST_PASSED) >= now {
        return Some(then);
    }
    instant(today.tomorrow().ok()?, time, zone)
}

fn instant(date: Date, time: Time, zone: &TimeZone) -> Option<Timestamp> {
    let zoned = date.to_datetime(time).to_zoned(zone.clone()).ok()?;
    Some(Timestamp::from_millis(zoned.timestamp().as_millisecond()))
}

/// `3:11` and `PM`.
fn time(clock: &str, half: &str) -> Option<Time> {
    let (hour, minute) = clock.split_once(':')?;
    let (hour, minute): (i8, i8) = (hour.parse().ok()?, minute.parse().ok()?);
    let past_noon = match half {
        "AM" | "am" => 0,
        "PM" | "pm" => 12,
        _ => return None,
    };
    (1..=12).contains(&hour).then(|| Time::new(hour % 12 + past_noon, minute, 0, 0).ok())?
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn is_month(word: &str) -> bool {
    MONTHS.contains(&word)
}

/// `Nov`, `18th` and `2026`.
fn date(month: &str, day: &str, year: &str) -> Option<Date> {
    let month = i8::try_from(MONTHS.iter().position(|name| *name == month)? + 1).ok()?;
    let day = day.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
    Date::new(year.parse().ok()?, month, day).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<jiff::Timestamp>().expect("a timestamp").as_millisecond())
    }

    fn kolkata() -> TimeZone {
        TimeZone::posix("IST-5:30").expect("a zone")
    }

    #[test]
    fn a_time_of_day_is_read_in_the_zone_of_the_agent() {
        let sentence = "You\u{2019}ve hit your usage limit. Upgrade to Pro, or try again at 3:11 PM.";
        assert_eq!(
            from_sentence(sentence, at("2026-11-17T14:11:00Z"), &TimeZone::UTC),
            Some(at("2026-11-17T15:11:00Z"))
        );
        // 3:11 PM in Kolkata is 9:41 in UTC.
        assert_eq!(
            from_sentence(sentence, at("2026-11-17T05:00:00Z"), &kolkata()),
            Some(at("2026-11-17T09:41:00Z"))
        );
    }

    #[test]
    fn a_reset_past_midnight_is_tomorrow_with_and_without_a_date() {
        // 23:30 in Kolkata.
        let now = at("2026-11-17T18:00:00Z");
        let midnight = Some(at("2026-11-17T18:40:00Z"));
        assert_eq!(from_sentence("try again at 12:10 AM.", now, &kolkata()), midnight);
        assert_eq!(from_sentence("try again at Nov 18th, 2026 12:10 AM.", now, &kolkata()), midnight);
        let noon = from_sentence("or try again at Dec 1st, 2026 12:00 PM.", now, &TimeZone::UTC);
        assert_eq!(noon, Some(at("2026-12-01T12:00:00Z")));
    }

    #[test]
    fn a_time_that_has_just_passed_is_not_tomorrow() {
        let now = at("2026-11-17T15:12:30Z");
        let passed = from_sentence("try again at 3:11 PM.", now, &TimeZone::UTC);
        assert_eq!(passed, Some(at("2026-11-17T15:11:00Z")));
        assert_eq!(hold_until(passed, now), now.after(POLL_INTERVAL));
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_polled_and_no_hold_is_endless() {
        let now = at("2026-11-17T15:12:30Z");
        for sentence in [
            "try again later.",
            "try again at noon.",
            "try again at 13:11 PM.",
            "try again at",
            "",
            "try again at Nov 40th, 2026 1:00 PM",
        ] {
            assert_eq!(from_sentence(sentence, now, &TimeZone::UTC), None, "{sentence}");
        }
        assert_eq!(hold_until(None, now), now.after(POLL_INTERVAL));
        let hour = now.after(Duration::from_secs(3_600));
        assert_eq!(hold_until(Some(hour), now), hour.after(RESET_MARGIN));
        assert_eq!(hold_until(Some(now.after(MAX_HOLD * 40)), now), now.after(MAX_HOLD));
        assert_eq!(from_seconds(u64::MAX), None);
    }
}
