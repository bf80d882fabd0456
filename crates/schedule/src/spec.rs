//! Schedule times: a cron line in a time zone, a fixed interval, or a single time. Computes the next run from a spec and a
//! timestamp, without clock or files: the time zone database is bundled.
//!
//! A store keeps the [`Display`](fmt::Display) text of a [`ScheduleSpec`] and does not interpret it.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use ostler_core::{Timestamp, millis};

use crate::cron::CronLine;

/// The shortest interval: a schedule is not a busy loop.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest interval, a hundred years.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// Why a schedule spec is invalid, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadScheduleSpec(pub(crate) String);

/// The times of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// Whenever the local time of a time zone matches a cron line.
    Cron(Box<CronLine>),
    /// At a fixed interval, counted from the first run: a late run does not shift the next one.
    Every(Interval),
    /// Once.
    At(Timestamp),
}

/// The interval between two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(Duration);

impl Interval {
    /// The interval as a duration.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

impl ScheduleSpec {
    /// A cron line with five fields, in a time zone such as `Europe/Berlin`.
    ///
    /// # Errors
    /// When the line is invalid or never matches, or the time zone is unknown.
    pub fn cron(line: &str, timezone: &str) -> Result<Self, BadScheduleSpec> {
        CronLine::new(line, timezone).map(|line| Self::Cron(Box::new(line)))
    }

    /// A fixed interval, from one second to a hundred years.
    ///
    /// # Errors
    /// When the interval is shorter than a second or longer than a hundred years.
    pub fn every(step: Duration) -> Result<Self, BadScheduleSpec> {
        if (SHORTEST..=LONGEST).contains(&step) {
            // Stores have millisecond resolution.
            return Ok(Self::Every(Interval(Duration::from_millis(step.as_millis() as u64))));
        }
        Err(BadScheduleSpec(format!("an interval of {step:?} is not allowed: it must be from 1s to 36500d")))
    }

    /// A single time. A time in the past counts as missed.
    #[must_use]
    pub const fn at(moment: Timestamp) -> Self {
        Self::At(moment)
    }

    /// Parses the text written by [`Display`](fmt::Display).
    ///
    /// # Errors
    /// When it cannot be parsed; another version may have written it.
    pub fn parse(text: &str) -> Result<Self, BadScheduleSpec> {
        let unreadable =
            || BadScheduleSpec(format!("\"{}\" is not a readable recurrence", text.escape_debug()));
        let (sort, rest) = text.split_once(' ').ok_or_else(unreadable)?;
        match sort {
            "cron" => {
                let (line, timezone) = rest.rsplit_once(' ').ok_or_else(unreadable)?;
                Self::cron(line, timezone)
            }
            "every" => {
                let step: SignedDuration = rest.parse().map_err(|_| unreadable())?;
                Self::every(Duration::try_from(step).map_err(|_| unreadable())?)
            }
            "at" => {
                let moment: jiff::Timestamp = rest.parse().map_err(|_| unreadable())?;
                Ok(Self::At(Timestamp::from_millis(moment.as_millisecond())))
            }
            _ => Err(unreadable()),
        }
    }

    /// The first run of a schedule that is created now; `None` if there will never be one.
    #[must_use]
    pub fn first(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(line) => line.next(now),
            Self::Every(step) => Some(now.after(step.0)),
            Self::At(moment) => Some(*moment),
        }
    }

    /// The first run after `after`. `known` is any run time of the schedule, from which intervals are counted.
    #[must_use]
    pub fn next(&self, known: Timestamp, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(line) => line.next(after),
            Self::Every(step) => {
                let step = millis(step.0);
                let passed = after.millis().checked_sub(known.millis())?.div_euclid(step);
                let next = passed.checked_add(1)?.checked_mul(step)?.checked_add(known.millis())?;
                Some(Timestamp::from_millis(next))
            }
            Self::At(moment) => (*moment > after).then_some(*moment),
        }
    }
}

impl fmt::Display for ScheduleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(line) => write!(f, "cron {} {}", line.line(), line.timezone()),
            Self::Every(Interval(step)) => {
                write!(f, "every {:#}", SignedDuration::from_millis(millis(*step)))
            }
            Self::At(moment) => {
                // The calendar ends with the year 9999.
                let last = if moment.millis() < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
                write!(f, "at {:.3}", jiff::Timestamp::from_millisecond(moment.millis()).unwrap_or(last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timestamp = Timestamp::from_millis(1_767_225_600_000);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_shown_is_read_as_the_same() {
        for (times, text) in [
            (ScheduleSpec::cron("0  3 * * MON", "europe/berlin"), "cron 0 3 * * MON Europe/Berlin"),
            (ScheduleSpec::cron("@daily", "UTC"), "cron @daily UTC"),
            (ScheduleSpec::every(90 * MINUTE), "every 1h 30m"),
            (ScheduleSpec::every(Duration::from_millis(1_500)), "every 1s 500ms"),
            (ScheduleSpec::every(LONGEST), "every 876000h"),
            (Ok(ScheduleSpec::at(T)), "at 2026-01-01T00:00:00.000Z"),
        ] {
            let times = times.unwrap();
            assert_eq!(times.to_string(), text);
            assert_eq!(ScheduleSpec::parse(text), Ok(times));
        }
    }

    #[test]
    fn what_says_no_times_is_refused() {
        for text in
            ["", "cron", "cron 0", "daily", "every", "every moon", "every 10ms", "at noon", "sometimes x"]
        {
            assert!(ScheduleSpec::parse(text).is_err(), "{text}");
        }
        assert!(ScheduleSpec::every(Duration::from_millis(999)).is_err());
        assert!(ScheduleSpec::every(LONGEST + MINUTE).is_err());
    }

    #[test]
    fn steps_are_counted_from_a_known_moment_and_do_not_drift() {
        let times = ScheduleSpec::every(10 * MINUTE).unwrap();
        let first = times.first(T).unwrap();
        assert_eq!(first, T.after(10 * MINUTE));
        // Evaluated late, and after many runs were missed.
        for late in [0, 1, 9] {
            assert_eq!(times.next(first, first.after(late * MINUTE)), Some(first.after(10 * MINUTE)));
        }
        assert_eq!(times.next(first, first.after(1_234_567 * MINUTE)), Some(first.after(1_234_570 * MINUTE)));
        assert_eq!(times.next(first, first.before(MINUTE)), Some(first));
        let end = Timestamp::from_millis(i64::MAX);
        assert_eq!(times.next(first, end), None);
    }

    #[test]
    fn one_moment_comes_once_and_is_not_lost_by_being_in_the_past() {
        let once = ScheduleSpec::at(T);
        assert_eq!(once.first(T.after(MINUTE)), Some(T));
        assert_eq!(once.next(T, T.before(MINUTE)), Some(T));
        assert_eq!(once.next(T, T), None);
    }
}
