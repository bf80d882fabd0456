//! Parsers for single values of the command line, with an error message for each.

use std::time::Duration;

use ostler_core::{
    Backoff, ErrorClass, IdPart, KeyHold, Missed, OnConflict, OnFailed, Overlap, Priority, PriorityOrder,
    StateName, TaskId, Timestamp,
};
use ostler_ops::task_name::NamedTask;
use ostler_store::views::{Cursor, Field};
use ostler_store::{MAX_PAGE, check_name};
use ostler_wire::time::TimeView;

use crate::config::duration as durations;

/// The prefix of a unique key, where an id is accepted too.
const KEY_PREFIX: &str = "key:";
const MAX_ATTEMPTS: u32 = 1_000_000;
/// The highest concurrency of an account.
const MAX_AT_ONCE: u32 = 1_000_000;

/// A task by id, by the beginning or the end of one, or by unique key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskName {
    Id(TaskId),
    Part(IdPart),
    Key(String),
}

impl TaskName {
    /// The task that is meant; a key is looked up in `queue`.
    pub(crate) fn in_queue(&self, queue: &str) -> NamedTask {
        match self {
            Self::Id(id) => NamedTask::Id(*id),
            Self::Part(part) => NamedTask::Part(*part),
            Self::Key(key) => NamedTask::Key { queue: queue.to_owned(), key: key.clone() },
        }
    }
}

pub(super) fn task(text: &str) -> Result<TaskName, String> {
    if let Some(key) = text.strip_prefix(KEY_PREFIX) {
        if key.is_empty() {
            return Err("a key must follow the colon, such as key:welcome-17".to_owned());
        }
        return Ok(TaskName::Key(key.to_owned()));
    }
    if let Ok(part) = text.parse() {
        return Ok(TaskName::Part(part));
    }
    text.parse().map(TaskName::Id).map_err(|error: ostler_core::BadId| {
        format!(
            "{error}; its first or last {} or more are enough; or key:K for a unique key",
            IdPart::MIN_LEN
        )
    })
}

pub(super) fn id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|error: ostler_core::BadId| error.to_string())
}

pub(super) fn state(text: &str) -> Result<StateName, String> {
    StateName::named(text).ok_or_else(|| {
        let names: Vec<&str> = StateName::ALL.iter().map(|state| state.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

pub(super) fn class(text: &str) -> Result<ErrorClass, String> {
    ErrorClass::named(text).ok_or_else(|| {
        let names: Vec<&str> = ErrorClass::ALL.iter().map(|class| class.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

pub(super) fn queue(text: &str) -> Result<String, String> {
    named("queue", text)
}

pub(super) fn kind(text: &str) -> Result<String, String> {
    named("kind", text)
}

pub(super) fn account(text: &str) -> Result<String, String> {
    named("account", text)
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

pub(super) fn schedule(text: &str) -> Result<String, String> {
    named("schedule", text)
}

/// Parses one of a few words.
pub(super) fn one_of<T: Copy>(text: &str, all: &[T], word: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|choice| word(*choice) == text);
    found.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|choice| word(*choice)).collect();
        format!("expected one of {}", words.join(", "))
    })
}

pub(super) fn overlap(text: &str) -> Result<Overlap, String> {
    one_of(text, &Overlap::ALL, Overlap::name)
}

pub(super) fn missed(text: &str) -> Result<Missed, String> {
    one_of(text, &Missed::ALL, Missed::name)
}

pub(super) fn on_conflict(text: &str) -> Result<OnConflict, String> {
    one_of(text, &OnConflict::ALL, OnConflict::name)
}

pub(super) fn key_hold(text: &str) -> Result<KeyHold, String> {
    one_of(text, &KeyHold::NAMED, |hold| hold.name().unwrap_or_default())
}

pub(super) fn priority_order(text: &str) -> Result<PriorityOrder, String> {
    one_of(text, &PriorityOrder::ALL, PriorityOrder::name)
}

pub(super) fn on_failed(text: &str) -> Result<OnFailed, String> {
    one_of(text, &OnFailed::ALL, OnFailed::name)
}

pub(super) fn backoff(text: &str) -> Result<Backoff, String> {
    one_of(text, &Backoff::ALL, Backoff::name)
}

pub(super) fn node(text: &str) -> Result<String, String> {
    named("name", text)
}

pub(super) fn job(text: &str) -> Result<String, String> {
    named("job", text)
}

fn named(field: &str, text: &str) -> Result<String, String> {
    check_name(field, text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

pub(super) fn field(text: &str) -> Result<Field, String> {
    Field::parse(text).map_err(|error| error.to_string())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let read = durations::parse(text).map_err(|error| error.to_string())?;
    if read.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(read) }
}

pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    TimeView::parse(text)
}

pub(super) fn priority(text: &str) -> Result<Priority, String> {
    let points = text.parse().ok().and_then(Priority::new);
    points.ok_or_else(|| format!("expected a whole number from {} to {}", Priority::MIN, Priority::MAX))
}

pub(super) fn attempts(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_ATTEMPTS).contains(number));
    number.ok_or_else(|| {
        format!("expected a whole number from 1 to {MAX_ATTEMPTS}; the first attempt counts too")
    })
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
