//! Cron lines in a time zone. `croner` finds matching calendar times; this file handles daylight saving changes:
//!
//! - A time that does not exist on that day runs once, when the clocks go forward.
//! - A time that occurs twice runs once, the first time. But a line for every hour (`*` as its hours) runs in every hour
//!   that passes, and so in both.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp as Instant};
use ostler_core::Timestamp;

use crate::spec::BadScheduleSpec;

/// Maximum length of a line in bytes; realistic lines are far shorter.
const MAX_LINE_BYTES: usize = 256;
/// Calendar times examined to find one that has not passed: enough for a day that occurs twice, and more.
const MAX_REPEATED: usize = 2_000;
/// Clock changes examined between two runs: those of many years.
const MAX_CHANGES: usize = 200;
/// The smallest distance between two runs of a line.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A cron line in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronLine {
    line: String,
    timezone: String,
    pattern: Cron,
    zone: TimeZone,
    hours: Hours,
}

/// The hours in which a line runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hours {
    /// Every hour that passes.
    Every,
    /// The hours named in the line.
    Named,
}

impl CronLine {
    /// The line as given, with normalized spaces.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The IANA name of the time zone.
    #[must_use]
    pub fn timezone(&self) -> &str {
        &self.timezone
    }

    pub(crate) fn new(line: &str, timezone: &str) -> Result<Self, BadScheduleSpec> {
        let wrong = |why: &str| {
            let shown = ostler_core::cut(line, 64);
            BadScheduleSpec(format!(
                "\"{}\" is not a cron expression: {why}; it has five fields (minute, hour, day of month, month, day of week), \
                 such as \"0 3 * * *\"",
                shown.escape_debug()
            ))
        };
        if line.len() > MAX_LINE_BYTES {
            return Err(wrong("it is too long"));
        }
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let fields = line.split_whitespace().count();
        if fields != 5 && !line.starts_with('@') {
            return Err(wrong(&format!("it has {fields} fields")));
        }
        // The parser ignores an empty list item, but "1,,2" may have been meant as "1,3,2".
        if line.split([' ', ',']).any(str::is_empty) {
            return Err(wrong("nothing before or after a comma"));
        }
        let pattern = parser.parse(&line).map_err(|error| match error {
            CronError::ComponentError(why) => {
                wrong(&out_of_range(&line).unwrap_or_else(|| why.trim_end_matches('.').to_lowercase()))
            }
            CronError::IllegalCharacters(_) => wrong("it contains invalid characters"),
            CronError::EmptyPattern
            | CronError::InvalidDate
            | CronError::InvalidTime
            | CronError::TimeSearchLimitExceeded
            | CronError::InvalidPattern(_) => wrong("it cannot be read"),
        })?;
        // The calendar repeats after four hundred years: a line that does not match within them never does.
        if matching(&pattern, DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            return Err(wrong("it names a day that never comes"));
        }
        let zone = TimeZoneDatabase::bundled().get(timezone).map_err(|_| {
            let shown = ostler_core::cut(timezone, 64);
            BadScheduleSpec(format!(
                "\"{}\" is not a time zone; use UTC or a name such as Europe/Berlin",
                shown.escape_debug()
            ))
        })?;
        let timezone = zone.iana_name().unwrap_or(timezone).to_owned();
        let all = (0..24).all(|hour| pattern.pattern.hour_match(hour).unwrap_or(false));
        let hours = if all { Hours::Every } else { Hours::Named };
        Ok(Self { line, timezone, pattern, zone, hours })
    }

    /// The first run after this time; `None` if the calendar ends before.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = Instant::from_millisecond(after.millis()).ok()?;
        let first = self.first_time(after);
        let next = match self.hours {
            Hours::Named => first,
            Hours::Every => self.second_time(after, first).or(first),
        };
        next.map(|next| Timestamp::from_millis(next.as_millisecond()))
    }

    /// The next run if repeated local times count only the first time.
    fn first_time(&self, after: Instant) -> Option<Instant> {
        let mut local = self.zone.to_datetime(after);
        for _ in 0..MAX_REPEATED {
            local = matching(&self.pattern, local)?;
            let moment = self.moment(local)?;
            // It is not if the clocks were set back just before.
            if moment > after {
                return Some(moment);
            }
        }
        None
    }

    /// When the local time first occurs; for a time that is skipped, when the clocks go forward.
    fn moment(&self, local: DateTime) -> Option<Instant> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                let just_before = after.to_timestamp(local).ok()?;
                self.zone.following(just_before).next().map(|change| change.timestamp())
            }
        }
    }

    /// The next repeated occurrence of a matching local time, if there is one before `until`.
    fn second_time(&self, after: Instant, until: Option<Instant>) -> Option<Instant> {
        let last = self.zone.preceding(after.checked_add(SECOND).ok()?).next();
        let to_come = self.zone.following(after).take(MAX_CHANGES);
        let changes = last.into_iter().chain(to_come).map(|change| (change.timestamp(), change.offset()));
        let in_time = |moment: &Instant| until.is_none_or(|until| *moment < until);
        changes
            .take_while(|(change, _)| in_time(change))
            .find_map(|(change, now)| self.in_second_pass(change, now, after).filter(in_time))
    }

    /// The first match after `after` in the period repeated by this clock change; `now` is the UTC offset since the change.
    fn in_second_pass(&self, change: Instant, now: Offset, after: Instant) -> Option<Instant> {
        let just_before = change.checked_sub(SECOND).ok()?;
        let was = self.zone.to_offset(just_before);
        let repeated = i64::from(was.seconds()) - i64::from(now.seconds());
        if repeated <= 0 {
            return None;
        }
        let end = change.checked_add(SignedDuration::from_secs(repeated)).ok()?;
        let local = matching(&self.pattern, now.to_datetime(just_before.max(after)))?;
        now.to_timestamp(local).ok().filter(|moment| *moment < end)
    }
}

/// The first value that is not in the range of its field, such as the hour 25.
fn out_of_range(line: &str) -> Option<String> {
    const FIELDS: [(&str, u32, u32); 5] =
        [("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("day of week", 0, 7)];
    line.split(' ').zip(FIELDS).find_map(|(field, (name, least, most))| {
        let mut values =
            field.split(|c: char| !c.is_ascii_digit()).filter_map(|value| value.parse::<u32>().ok());
        let wrong = values.find(|value| !(least..=most).contains(value))?;
        Some(format!("the {name} {wrong} is not in {least}-{most}"))
    })
}

/// The first matching calendar time after this one, ignoring clock changes.
fn matching(pattern: &Cron, after: DateTime) -> Option<DateTime> {
    let whole = after.with().subsec_nanosecond(0).build().ok()?;
    // In UTC, every calendar time occurs once.
    let next = pattern.find_next_occurrence(&whole.to_zoned(TimeZone::UTC).ok()?, false).ok()?;
    Some(next.datetime())
}

/// The name of this machine's time zone, from `TZ` or the system's settings; `None`: it has no name that the bundled database knows.
#[must_use]
pub fn local_timezone() -> Option<String> {
    let zone = TimeZone::try_system().ok()?;
    let known = TimeZoneDatabase::bundled().get(zone.iana_name()?).ok()?;
    known.iana_name().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};

    use super::*;

    fn line(line: &str, zone: &str) -> CronLine {
        CronLine::new(line, zone).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The next `count` runs after this time, in UTC.
    fn moments(cron: &CronLine, after: &str, count: usize) -> Vec<String> {
        let mut at = millis(after);
        (0..count)
            .map(|_| {
                at = cron.next(at).expect("there is one");
                Instant::from_millisecond(at.millis()).unwrap().to_string()
            })
            .collect()
    }

    fn millis(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<Instant>().unwrap().as_millisecond())
    }

    #[test]
    fn a_time_that_does_not_exist_that_day_runs_once_at_the_shift() {
        // 02:00 becomes 03:00 on this day, which is 01:00 in UTC.
        let berlin = line("30 2 * * *", "Europe/Berlin");
        let days = moments(&berlin, "2026-03-28T00:00:00Z", 3);
        assert_eq!(days, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let twice = line("0,30 2 * * *", "Europe/Berlin");
        let days = moments(&twice, "2026-03-28T12:00:00Z", 2);
        assert_eq!(days, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
        let new_york = line("30 2 * * *", "America/New_York");
        let days = moments(&new_york, "2026-03-07T12:00:00Z", 2);
        assert_eq!(days, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]);
        // Where the clocks go forward at midnight, the day has no midnight.
        let midnight = line("@daily", "America/Sao_Paulo");
        assert_eq!(moments(&midnight, "2018-11-03T12:00:00Z", 1), ["2018-11-04T03:00:00Z"]);
        // A whole day was skipped here: the 30th of December 2011.
        let apia = line("0 12 * * *", "Pacific/Apia");
        let days = moments(&apia, "2011-12-29T12:00:00Z", 3);
        assert_eq!(days, ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]);
    }

    #[test]
    fn a_time_that_comes_twice_runs_once_the_first_time() {
        // 03:00 becomes 02:00 on this day, which is 01:00 in UTC.
        let berlin = line("30 2 * * *", "Europe/Berlin");
        let days = moments(&berlin, "2026-10-24T12:00:00Z", 2);
        assert_eq!(days, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        // The same when searching between the two occurrences.
        assert_eq!(moments(&berlin, "2026-10-25T01:10:00Z", 1), ["2026-10-26T01:30:00Z"]);
        let often = line("*/20 2 * * *", "Europe/Berlin");
        let day = moments(&often, "2026-10-24T12:00:00Z", 4);
        let expected =
            ["2026-10-25T00:00:00Z", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z", "2026-10-26T01:00:00Z"];
        assert_eq!(day, expected);
        let new_york = line("30 1 * * *", "America/New_York");
        let days = moments(&new_york, "2026-10-31T12:00:00Z", 2);
        assert_eq!(days, ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    }

    #[test]
    fn a_line_for_every_hour_runs_in_every_hour_that_passes() {
        let half_hours = line("*/30 * * * *", "Europe/Berlin");
        for (after, first) in [("2026-10-24T22:45:00Z", 23), ("2026-03-28T22:45:00Z", 23)] {
            let all = moments(&half_hours, after, 12);
            let expected: Vec<Timestamp> = (0..12)
                .map(|half| millis(&after.replace("22:45", &format!("{first}:00"))).after(half * HALF_HOUR))
                .collect();
            assert_eq!(all.iter().map(|moment| millis(moment)).collect::<Vec<_>>(), expected);
        }
        // Half an hour is repeated here, and the line runs once in each.
        let lord_howe = line("45 * * * *", "Australia/Lord_Howe");
        let all = moments(&lord_howe, "2026-04-04T14:00:00Z", 3);
        assert_eq!(all, ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"]);
    }

    const HALF_HOUR: std::time::Duration = std::time::Duration::from_secs(1_800);

    #[test]
    fn seconds_and_milliseconds_after_a_moment_do_not_bring_it_again() {
        let daily = line("0 3 * * *", "UTC");
        for after in ["2026-01-01T03:00:00Z", "2026-01-01T03:00:00.001Z", "2026-01-01T03:00:59.999Z"] {
            assert_eq!(moments(&daily, after, 1), ["2026-01-02T03:00:00Z"]);
        }
        assert_eq!(moments(&daily, "2026-01-01T02:59:59.999Z", 1), ["2026-01-01T03:00:00Z"]);
    }

    #[test]
    fn what_crontab_knows_is_read() {
        for (text, next) in [
            ("@hourly", "2026-01-01T01:00:00Z"),
            ("@daily", "2026-01-02T00:00:00Z"),
            ("@weekly", "2026-01-04T00:00:00Z"),
            ("@monthly", "2026-02-01T00:00:00Z"),
            ("@yearly", "2027-01-01T00:00:00Z"),
            ("5,10-12 * * * *", "2026-01-01T00:05:00Z"),
            ("0 9 * * mon-fri", "2026-01-01T09:00:00Z"),
            ("0 0 * * 7", "2026-01-04T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("0 0 L * *", "2026-01-31T00:00:00Z"),
            // The 13th, and every Friday.
            ("0 0 13 * 5", "2026-01-02T00:00:00Z"),
        ] {
            assert_eq!(moments(&line(text, "UTC"), "2026-01-01T00:00:00Z", 1), [next], "{text}");
        }
    }

    #[test]
    fn what_is_no_cron_line_is_refused_with_what_would_be_right() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "61 * * * *",
            "0 24 * * *",
            "*/0 * * * *",
            "5-1 * * * *",
            "@never",
            "x",
        ] {
            let error = CronLine::new(text, "UTC").expect_err(text).to_string();
            assert!(error.contains("such as \"0 3 * * *\""), "{text}: {error}");
        }
        for never in ["0 0 30 2 *", "0 0 31 4,6 *"] {
            let error = CronLine::new(never, "UTC").expect_err(never).to_string();
            assert!(error.contains("a day that never comes"), "{error}");
        }
        for zone in ["", "Berlin", "Europe/Berlyn", "+02:00", "local"] {
            let error = CronLine::new("0 3 * * *", zone).expect_err(zone).to_string();
            assert!(error.contains("such as Europe/Berlin"), "{error}");
        }
        assert!(CronLine::new(&"1,".repeat(200), "UTC").is_err_and(|error| error.to_string().len() < 400));
    }

    proptest! {
        #![proptest_config(Config { cases: 1_000, failure_persistence: None, rng_seed: RngSeed::Fixed(0x05_71_e2), ..Config::default() })]

        #[test]
        fn no_text_makes_it_panic(text in "[0-9*/,LW#@a-z? -]{0,24}|.{0,40}", zone in "UTC|Europe/Berlin|.{0,12}") {
            if let Ok(cron) = CronLine::new(&text, &zone) {
                let after = Timestamp::from_millis(1_767_225_600_000);
                prop_assert!(cron.next(after).is_some_and(|next| next > after));
            }
        }

        /// In any time zone, the runs of an every-minute line are a minute apart, and those of a daily line come once a
        /// day.
        #[test]
        fn no_moment_is_lost_or_comes_twice(hour in 0..(20 * 366 * 24_i64), zone in 0..ZONES.len()) {
            let after = Timestamp::from_millis(1_262_304_000_000 + hour * 3_600_000);
            let minutely = line("* * * * *", ZONES[zone]);
            prop_assert_eq!(minutely.next(after), Some(after.after(std::time::Duration::from_secs(60))));
            let daily = line("30 2 * * *", ZONES[zone]);
            let first = daily.next(after).expect("there is one");
            let second = daily.next(first).expect("there is one");
            let hours = second.since(first).as_secs() / 3_600;
            prop_assert!(first > after && (22..=26).contains(&hours), "{} hours", hours);
        }
    }

    /// Zones with changes at midnight, by half an hour, twice around Ramadan, or never.
    const ZONES: [&str; 8] = [
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Tehran",
        "Asia/Kolkata",
        "UTC",
    ];
}
