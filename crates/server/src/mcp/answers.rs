//! Answers of tools as text within a bound: agents pay for what they read, and clients cut what is too long without a word.

use std::fmt::Write as _;

use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::answer::{Answer, RequestError};
use crate::operations::Operation;

/// The longest text of an answer, without its mark.
pub(super) const MAX_ANSWER_BYTES: usize = 48 * 1024;
/// The longest string in an answer that would be too long otherwise.
const MAX_STRING_BYTES: usize = 2 * 1024;
/// What is read of an answer at most.
const MAX_READ_BYTES: usize = 8 << 20;

/// The text of an answer; what does not fit is cut, with a mark.
pub(super) async fn text(operation: &Operation, answer: Answer) -> Result<String, RequestError> {
    let (bytes, rest) = read(operation, answer).await?;
    let whole = String::from_utf8_lossy(&bytes).into_owned();
    if rest == Rest::None && whole.len() <= MAX_ANSWER_BYTES {
        return Ok(whole);
    }
    Ok(if operation.answers.is_lines() {
        cut_lines(operation, &whole, rest)
    } else {
        cut_json(operation, &whole)
    })
}

/// Whether there is more than was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    None,
    Unread,
}

async fn read(operation: &Operation, answer: Answer) -> Result<(Vec<u8>, Rest), RequestError> {
    // The lines after these are not shown, so they are not read from the store either.
    let enough = if operation.answers.is_lines() { MAX_ANSWER_BYTES } else { MAX_READ_BYTES };
    let (mut body, mut bytes) = (answer.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| RequestError::busy("the answer broke off; ask again"))?;
        bytes.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        if bytes.len() > enough {
            return Ok((bytes, Rest::Unread));
        }
    }
    Ok((bytes, Rest::None))
}

/// Whole lines that fit, and a mark.
fn cut_lines(operation: &Operation, whole: &str, rest: Rest) -> String {
    let (mut text, mut shown) = (String::new(), 0_usize);
    for line in whole.lines() {
        let line = match line.len() > MAX_STRING_BYTES {
            true => shortened(line).unwrap_or_else(|| line.to_owned()),
            false => line.to_owned(),
        };
        if text.len() + line.len() >= MAX_ANSWER_BYTES {
            break;
        }
        text.push_str(&line);
        text.push('\n');
        shown += 1;
    }
    let more = match rest {
        Rest::Unread => "more".to_owned(),
        Rest::None => format!("{} more", whole.lines().count() - shown),
    };
    let _ = write!(text, "[cut: {shown} are shown, and there are {more}. {}]", all_of(operation));
    text
}

/// With shorter strings, if that is enough; else its beginning. And a mark.
fn cut_json(operation: &Operation, whole: &str) -> String {
    let mark = |what: &str| format!("\n[cut: {what} of {} bytes. {}]", whole.len(), all_of(operation));
    match shortened(whole).filter(|text| text.len() <= MAX_ANSWER_BYTES) {
        Some(text) => text + &mark("long texts in this answer"),
        None => beginning(whole, MAX_ANSWER_BYTES).to_owned() + &mark("this is the beginning of an answer"),
    }
}

/// How to read the rest.
fn all_of(operation: &Operation) -> String {
    match operation.command {
        "" => "Ask for less: by a filter, or a smaller limit".to_owned(),
        command => {
            format!("Ask for less, by a filter or a smaller limit; `{command} --json` prints all of it")
        }
    }
}

/// JSON in which long strings are cut.
fn shortened(text: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    shorten(&mut value);
    Some(value.to_string())
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_STRING_BYTES => {
            let kept = beginning(text, MAX_STRING_BYTES);
            *text = format!("{kept}[cut: {} bytes more]", text.len() - kept.len());
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// As many whole characters as fit.
fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
