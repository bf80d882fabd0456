//! Single values as users write them, on the command line and in JSON: one parser each, with a sentence for what is wrong.

use std::time::Duration;

use ostler_core::{
    Backoff, ErrorClass, KeyHold, Missed, OnConflict, OnFailed, Overlap, Priority, PriorityOrder, StateName,
    TaskId, Timestamp, Traceparent, parse_duration,
};
use ostler_store::check_name;
use ostler_store::views::Field;

use crate::time::TimeView;

/// The highest number of attempts of a task.
pub const MAX_ATTEMPTS: u32 = 1_000_000;

/// # Errors
/// A sentence.
pub fn id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|error: ostler_core::BadId| error.to_string())
}

/// # Errors
/// A sentence with an example.
pub fn traceparent(text: &str) -> Result<Traceparent, String> {
    text.parse().map_err(|error: ostler_core::NoTraceparent| error.to_string())
}

/// # Errors
/// A sentence with all states.
pub fn state(text: &str) -> Result<StateName, String> {
    one_of(text, &StateName::ALL, StateName::name)
}

/// # Errors
/// A sentence with all classes.
pub fn class(text: &str) -> Result<ErrorClass, String> {
    one_of(text, &ErrorClass::ALL, ErrorClass::name)
}

/// The name of something: of a queue, a kind, an account, a node.
///
/// # Errors
/// A sentence with the field.
pub fn named(field: &str, text: &str) -> Result<String, String> {
    check_name(field, text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// # Errors
/// A sentence.
pub fn queue(text: &str) -> Result<String, String> {
    named("queue", text)
}

/// # Errors
/// A sentence.
pub fn kind(text: &str) -> Result<String, String> {
    named("kind", text)
}

/// Parses one of a few words.
///
/// # Errors
/// A sentence with all of them.
pub fn one_of<T: Copy>(text: &str, all: &[T], word: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|choice| word(*choice) == text);
    found.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|choice| word(*choice)).collect();
        format!("expected one of {}", words.join(", "))
    })
}

/// # Errors
/// A sentence with all words.
pub fn overlap(text: &str) -> Result<Overlap, String> {
    one_of(text, &Overlap::ALL, Overlap::name)
}

/// # Errors
/// A sentence with all words.
pub fn missed(text: &str) -> Result<Missed, String> {
    one_of(text, &Missed::ALL, Missed::name)
}

/// # Errors
/// A sentence with all words.
pub fn on_conflict(text: &str) -> Result<OnConflict, String> {
    one_of(text, &OnConflict::ALL, OnConflict::name)
}

/// # Errors
/// A sentence with all words.
pub fn priority_order(text: &str) -> Result<PriorityOrder, String> {
    one_of(text, &PriorityOrder::ALL, PriorityOrder::name)
}

/// # Errors
/// A sentence with all words.
pub fn on_failed(text: &str) -> Result<OnFailed, String> {
    one_of(text, &OnFailed::ALL, OnFailed::name)
}

/// # Errors
/// A sentence with all words.
pub fn backoff(text: &str) -> Result<Backoff, String> {
    one_of(text, &Backoff::ALL, Backoff::name)
}

/// # Errors
/// A sentence with all words.
pub fn key_hold(text: &str) -> Result<KeyHold, String> {
    one_of(text, &KeyHold::NAMED, |hold| hold.name().unwrap_or_default())
}

/// A condition on the payload, such as `payload.tenant=acme`.
///
/// # Errors
/// A sentence with an example.
pub fn field(text: &str) -> Result<Field, String> {
    Field::parse(text).map_err(|error| error.to_string())
}

/// A duration that is longer than zero.
///
/// # Errors
/// A sentence with an example.
pub fn duration(text: &str) -> Result<Duration, String> {
    let read = parse_duration(text).map_err(|error| error.to_string())?;
    if read.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(read) }
}

/// # Errors
/// A sentence with an example.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    TimeView::parse(text)
}

/// # Errors
/// A sentence with the range.
pub fn priority(text: &str) -> Result<Priority, String> {
    let points = text.parse().ok().and_then(Priority::new);
    points.ok_or_else(|| format!("expected a whole number from {} to {}", Priority::MIN, Priority::MAX))
}

/// # Errors
/// A sentence with the range.
pub fn attempts(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_ATTEMPTS).contains(number));
    number.ok_or_else(|| {
        format!("expected a whole number from 1 to {MAX_ATTEMPTS}; the first attempt counts too")
    })
}
