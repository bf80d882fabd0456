//! Durations, times and relative times for people.

use std::time::Duration;

use ostler_core::Timestamp;
use ostler_wire::time::TimeView;

use super::Looks;

/// A time: on a terminal that of the machine's zone, which is named; elsewhere UTC in the form of JSON, for programs.
pub(super) fn moment(at: TimeView, looks: Looks) -> String {
    match looks {
        Looks::Plain => at.to_string(),
        Looks::Terminal | Looks::Colour => in_zone(at, &jiff::tz::TimeZone::system()),
    }
}

fn in_zone(at: TimeView, zone: &jiff::tz::TimeZone) -> String {
    match jiff::Timestamp::from_millisecond(at.timestamp().millis()) {
        Ok(moment) => moment.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        // After the last year of the calendar.
        Err(_) => at.to_string(),
    }
}

/// A duration in at most its two largest units.
pub(crate) fn long(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    let rest = if small == 0 { String::new() } else { format!("{small}{small_unit}") };
    format!("{large}{large_unit}{rest}")
}

/// Relative to now: `3m ago`, `in 2h`, `now`.
pub(super) fn from(now: Timestamp, at: Timestamp) -> String {
    const NEARLY: Duration = Duration::from_secs(1);
    let (past, future) = (now.since(at), at.since(now));
    if past < NEARLY && future < NEARLY {
        return "now".to_owned();
    }
    if at < now { format!("{} ago", long(past)) } else { format!("in {}", long(future)) }
}

/// A past time: `3m ago`, `just now`.
pub(crate) fn ago(now: Timestamp, at: Timestamp) -> String {
    match from(now, at) {
        said if said == "now" => "just now".to_owned(),
        said => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_two_units_at_most() {
        for (seconds, said) in
            [(1, "1s"), (60, "1m"), (61, "1m1s"), (3_600, "1h"), (5_400, "1h30m"), (90_061, "1d1h")]
        {
            assert_eq!(long(Duration::from_secs(seconds)), said);
        }
        assert_eq!(long(Duration::from_millis(250)), "250ms");
        assert_eq!(long(Duration::ZERO), "0ms");
    }

    #[test]
    fn a_time_on_a_terminal_is_local_with_its_zone_and_elsewhere_as_in_json() {
        let at = TimeView::from(Timestamp::from_millis(1_785_553_200_007));
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        assert_eq!(in_zone(at, &zone), "2026-08-01 05:00:00 CEST");
        assert_eq!(moment(at, Looks::Plain), "2026-08-01T03:00:00.007Z");
        let end = TimeView::from(Timestamp::from_millis(i64::MAX));
        assert_eq!(in_zone(end, &zone), end.to_string());
    }

    #[test]
    fn moments_are_said_from_now_whatever_the_clock_says() {
        let at = Timestamp::from_millis;
        assert_eq!(from(at(100_000), at(40_000)), "1m ago");
        assert_eq!(from(at(0), at(7_200_000)), "in 2h");
        assert_eq!(from(at(500), at(0)), "now");
        // With a clock set back to 1970, past times lie in the future.
        assert_eq!(from(Timestamp::ZERO, at(1_785_553_200_000)), "in 20666d3h");
        assert_eq!(from(at(i64::MIN), at(i64::MAX)).split(' ').next(), Some("in"));
    }
}
