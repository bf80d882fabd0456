//! The tables `[schedule.NAME]`.

use std::time::Duration;

use ostler_core::{Missed, Overlap};

use super::{fault, good};

/// A schedule with these lines, and a task.
fn schedule(lines: &str) -> String {
    format!("[schedule.s]\n{lines}\ntask = {{ queue = \"q\", kind = \"k\" }}\n")
}

#[test]
fn a_schedule_is_read() {
    let config = good(
        r#"
        [schedule.nightly]
        cron = "0 3 * * mon-fri"
        timezone = "Europe/Berlin"
        overlap = "replace"
        missed = "all"
        [schedule.nightly.task]
        queue = "documents"
        kind = "sweep"
        payload = { folder = "${DATA}", ages = [1, 2.5, true], since = 2026-01-01 }
        priority = -7
        attempts = 2
        timeout = "90s"

        [schedule.often]
        every = "1h30m"
        task = { queue = "documents", kind = "look" }

        [schedule.once]
        at = 2030-01-01T01:00:00+01:00
        task = { queue = "documents", kind = "look", payload = "text" }
        "#,
    );
    let [nightly, often, once] = config.schedules.as_slice() else { panic!("{:?}", config.schedules) };
    assert_eq!(nightly.times.to_string(), "cron 0 3 * * mon-fri Europe/Berlin");
    assert_eq!((nightly.overlap, nightly.missed), (Overlap::Replace, Missed::All));
    let task = &nightly.task;
    assert_eq!((task.queue.as_str(), task.kind.as_str(), task.priority.points()), ("documents", "sweep", -7));
    assert_eq!(task.payload, r#"{"ages":[1,2.5,true],"folder":"/srv/data","since":"2026-01-01"}"#);
    assert_eq!((task.overrides.attempts, task.overrides.timeout), (Some(2), Some(Duration::from_secs(90))));
    assert_eq!(often.times.to_string(), "every 1h 30m");
    assert_eq!(
        (often.task.payload.as_str(), often.overlap, often.missed),
        ("null", Overlap::Skip, Missed::One)
    );
    assert_eq!(once.times.to_string(), "at 2030-01-01T00:00:00.000Z");
    assert_eq!(once.task.payload, "\"text\"");
}

#[test]
fn a_schedule_that_cannot_be_kept_is_refused_in_a_sentence() {
    for (lines, sentence) in [
        ("", "schedule.s.cron is missing, and so are every and at"),
        ("cron = \"@daily\"\nevery = \"1h\"", "schedule.s.every and cron are both given"),
        (
            "cron = \"0 25 * * *\"",
            "schedule.s.cron is invalid: \"0 25 * * *\" is not a cron expression: the hour 25 is not in 0-23",
        ),
        ("cron = \"0 0 30 2 *\"", "a day that never comes"),
        ("cron = \"@daily\"\ntimezone = \"Berlin\"", "\"Berlin\" is not a time zone"),
        ("every = \"1h\"\ntimezone = \"UTC\"", "schedule.s.timezone is only for cron"),
        ("every = \"10ms\"", "schedule.s.every is invalid: an interval of 10ms is not allowed"),
        ("every = 5", "schedule.s.every is 5: missing unit"),
        ("at = \"tomorrow\"", "schedule.s.at is \"tomorrow\": a time needs an offset"),
        ("at = 2030-01-01", "a time needs an offset"),
        ("every = \"1h\"\noverlap = \"wait\"", "must be \"skip\" or \"queue\" or \"replace\""),
        ("every = \"1h\"\nmissed = \"none\"", "must be \"skip\" or \"one\" or \"all\""),
        ("every = \"1h\"\ncorn = \"x\"", "schedule.s.corn: unknown key; did you mean cron?"),
    ] {
        let line = fault(&schedule(lines));
        assert!(line.contains(sentence), "{lines}: {line}");
    }
    for (text, sentence) in [
        ("[schedule.s]\nevery = \"1h\"", "schedule.s.task is missing"),
        ("[schedule.s]\nevery = \"1h\"\ntask = { queue = \"q\" }", "schedule.s.task.kind is missing"),
        (
            "[schedule.s]\nevery = \"1h\"\ntask = { queue = \"q\", kind = \"k\", priority = 101 }",
            "task.priority is 101, but must be a whole number from -100 to 100",
        ),
        (
            "[schedule.s]\nevery = \"1h\"\ntask = { queue = \"q\", kind = \"k\", payload = [nan] }",
            "task.payload contains nan, which JSON cannot represent",
        ),
        (
            "[schedule.\"\"]\nevery = \"1h\"\ntask = { queue = \"q\", kind = \"k\" }",
            "schedule must not be empty",
        ),
    ] {
        let line = fault(text);
        assert!(line.contains(sentence), "{text}: {line}");
    }
}
