//! Parsers for single values of the command line, with an error message for each.

use ostler_core::Level;
use ostler_store::MAX_PAGE;
use ostler_store::views::Cursor;

pub(crate) use ostler_ops::task_name::TaskName;
use ostler_wire::value::named;
pub(super) use ostler_wire::value::{
    attempts, backoff, class, duration, field, id, key_hold, kind, missed, moment, on_conflict, on_failed,
    one_of, overlap, priority, priority_order, queue, state,
};
use regex::bytes::Regex;

/// The highest concurrency of an account.
const MAX_AT_ONCE: u32 = 1_000_000;

pub(super) fn task(text: &str) -> Result<TaskName, String> {
    text.parse()
}

pub(super) fn account(text: &str) -> Result<String, String> {
    named("account", text)
}

/// The maximum of `--tail`.
const MAX_TAIL: usize = 100_000;

pub(super) fn tail(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MAX_TAIL);
    number.ok_or_else(|| format!("expected a whole number from 0 to {MAX_TAIL}"))
}

pub(super) fn level(text: &str) -> Result<Level, String> {
    one_of(text, Level::ALL, Level::name)
}

/// A number of tasks, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountOrNone(pub(crate) Option<u32>);

pub(super) fn count_or_none(text: &str) -> Result<CountOrNone, String> {
    if text == "none" {
        return Ok(CountOrNone(None));
    }
    let number = text.parse().ok().filter(|number| (1..=MAX_AT_ONCE).contains(number));
    let number = number.ok_or_else(|| format!("expected a whole number from 1 to {MAX_AT_ONCE}, or none"))?;
    Ok(CountOrNone(Some(number)))
}

/// Shells that understand how items are quoted.
const POSIX_SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash"];

/// A shell, by its name or path.
pub(super) fn posix_shell(text: &str) -> Result<String, String> {
    let name = text.rsplit('/').next().unwrap_or_default();
    if POSIX_SHELLS.contains(&name) {
        return Ok(text.to_owned());
    }
    Err(format!("items are quoted for shells of the POSIX family: {}", POSIX_SHELLS.join(", ")))
}

/// A regular expression; a single character stands for itself.
pub(super) fn column_separator(text: &str) -> Result<Regex, String> {
    let is_one = text.chars().count() == 1;
    let pattern = if is_one { regex::escape(text) } else { text.to_owned() };
    let separator = Regex::new(&pattern).map_err(|error| error.to_string())?;
    if separator.is_match(b"") {
        return Err("it must not match nothing at all".to_owned());
    }
    Ok(separator)
}

pub(super) fn schedule(text: &str) -> Result<String, String> {
    named("schedule", text)
}

pub(super) fn node(text: &str) -> Result<String, String> {
    named("name", text)
}

pub(super) fn job(text: &str) -> Result<String, String> {
    named("job", text)
}

pub(super) fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_PAGE).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to {MAX_PAGE}; use --cursor for more"))
}

pub(super) fn cursor(text: &str) -> Result<Cursor, String> {
    text.parse().map_err(|_| {
        "a cursor is the value that the previous list printed after \"more: --cursor\"".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use ostler_core::Priority;

    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_with_the_range() {
        for text in ["101", "-101", "1.5", "", "99999999999999999999", "high", " 5", "5 "] {
            assert!(priority(text).is_err_and(|sentence| sentence.contains("-100 to 100")), "{text}");
        }
        for text in ["0", "-1", "4294967297", "x", " 5", "5\n"] {
            assert!(attempts(text).is_err_and(|sentence| sentence.contains("from 1 to")), "{text}");
            assert!(limit(text).is_err_and(|sentence| sentence.contains("from 1 to 1000")), "{text}");
        }
        assert_eq!(
            (priority("-100").map(Priority::points), limit("1000"), attempts("1")),
            (Ok(-100), Ok(1000), Ok(1))
        );
    }

    #[test]
    fn a_task_is_named_by_id_part_of_it_or_key() {
        assert_eq!(task("key:a:b"), Ok(TaskName::Key("a:b".to_owned())));
        assert!(matches!(task("01jc8z0q4m9t7n3v5x1b2d6f8h"), Ok(TaskName::Id(_))));
        assert!(matches!(task("01JC8Z0Q"), Ok(TaskName::Part(_))));
        for text in ["", "key:", "17", "01JC8Z0Q4M9T7N3V5X1B2D6F8HH", "../../etc"] {
            assert!(task(text).is_err(), "{text}");
        }
    }
}
