//! A task to submit, from JSON.

use ostler_core::{KeyHold, Overrides, TaskId};

use ostler_store::calls::NewTask;
use ostler_store::unique::Unique;
use ostler_wire::input::TaskInput;
use ostler_wire::{limit_syntax, value};

use super::{BadField, field, folder, read};
use crate::submit::SubmitRequest;
use crate::task_name::TaskName;

/// The submission that a JSON object describes. `id` makes the id of a task that has none.
///
/// # Errors
/// A sentence with the field.
pub fn submit_request(input: TaskInput, id: impl FnOnce() -> TaskId) -> Result<SubmitRequest, BadField> {
    if input.key.is_none() {
        let of_a_key = [
            ("key_for", input.key_for.is_some()),
            ("key_until", input.key_until.is_some()),
            ("if_taken", input.if_taken.is_some()),
        ];
        if let Some((name, _)) = of_a_key.into_iter().find(|(_, given)| *given) {
            return Err(BadField::of(name, &format!("{name} needs a key")));
        }
    }
    if input.if_failed.is_some() && input.after.is_empty() {
        return Err(BadField::of("if_failed", "if_failed needs tasks in after"));
    }
    for (one, other, both) in [
        ("in", "at", input.delay.is_some() && input.at.is_some()),
        ("key_for", "key_until", input.key_for.is_some() && input.key_until.is_some()),
    ] {
        if both {
            return Err(BadField::of(one, &format!("{one} and {other} exclude each other")));
        }
    }
    let named = |name: &'static str, given: Option<String>, parse| match given {
        Some(text) => field(name, &text, parse),
        None => Err(BadField::of(name, &format!("{name} is missing"))),
    };
    let queue = named("queue", input.queue, value::queue)?;
    let kind = named("kind", input.kind, value::kind)?;
    let mut after = Vec::with_capacity(input.after.len());
    for text in &input.after {
        after.push(field("after", text, |text| text.parse::<TaskName>())?.in_queue(&queue));
    }
    let key_for = read("key_for", input.key_for, value::duration)?;
    let key_until = read("key_until", input.key_until, value::key_hold)?;
    let if_taken = read("if_taken", input.if_taken, value::on_conflict)?;
    let payload = input.payload.map_or_else(|| "null".to_owned(), |payload| payload.get().to_owned());
    let attempts = read("attempts", input.attempts, value::attempts)?;
    let timeout = read("timeout", input.timeout, value::duration)?;
    let task = NewTask {
        priority: read("priority", input.priority, value::priority)?.unwrap_or_default(),
        run_at: read("at", input.at, value::moment)?,
        unique: input.key.map(|key| Unique {
            hold: key_until.or(key_for.map(KeyHold::For)),
            on_conflict: if_taken.unwrap_or_default(),
            ..Unique::new(key)
        }),
        on_failed: read("if_failed", input.if_failed, value::on_failed)?.unwrap_or_default(),
        limit_key: input.limit_key,
        cost: read("cost", input.cost, limit_syntax::cost)?,
        overrides: Overrides { attempts, timeout, ..Overrides::NONE },
        not_after: read("not_after", input.not_after, value::moment)?,
        folder: folder(input.folder)?,
        traceparent: read("traceparent", input.traceparent, value::traceparent)?,
        ..NewTask::new(read("id", input.id, value::id)?.unwrap_or_else(id), queue, kind, payload)
    };
    Ok(SubmitRequest {
        task,
        delay: read("in", input.delay, value::duration)?,
        deadline: read("deadline", input.deadline, value::duration)?,
        after,
    })
}

#[cfg(test)]
mod tests {
    use ostler_core::Id;

    use super::*;

    fn request(text: &str) -> Result<SubmitRequest, String> {
        let input: TaskInput = serde_json::from_str(text).map_err(|error| error.to_string())?;
        submit_request(input, || TaskId(Id::from_bits(7))).map_err(|error| error.to_string())
    }

    #[test]
    fn a_task_is_refused_with_the_field_that_is_wrong() {
        for (text, part) in [
            ("[1]", "invalid"),
            (r#"{"queue":"q"}"#, "kind is missing"),
            (r#"{"queue":"q","kind":"k","prio":1}"#, "unknown field `prio`"),
            (r#"{"queue":"q","kind":"k","priority":101}"#, "priority: expected a whole number from -100"),
            (r#"{"queue":"q","kind":"k","id":"7"}"#, "id: \"7\" is not an id"),
            (r#"{"queue":"q","kind":"k","in":"soon"}"#, "in: "),
            (r#"{"queue":"q","kind":"k","in":"1s","at":"2999-01-01T00:00:00Z"}"#, "exclude"),
            (r#"{"queue":"q","kind":"k","if_taken":"keep"}"#, "if_taken needs a key"),
            (r#"{"queue":"q","kind":"k","key":"a","key_until":"x"}"#, "removed, end"),
            (r#"{"queue":"q","kind":"k","if_failed":"run"}"#, "if_failed needs"),
            (r#"{"queue":"","kind":"k"}"#, "queue"),
            (r#"{"queue":"q","kind":"k","folder":"here"}"#, "folder: expected an absolute path"),
            (r#"{"queue":"q","kind":"k","traceparent":"00-x"}"#, "traceparent: expected a W3C trace context"),
            (r#"{"queue":"q","kind":"k","cost":0}"#, "a whole number from 1"),
        ] {
            let wrong = request(text).expect_err(text);
            assert!(wrong.contains(part), "{text}: {wrong}");
        }
    }

    #[test]
    fn a_payload_keeps_every_byte() {
        let text = r#"{"queue":"q","kind":"k","payload":{"n":9007199254740993,"x":1.10,"u":"\u0000"}}"#;
        let read = request(text).expect("a task");
        assert_eq!(read.task.payload, r#"{"n":9007199254740993,"x":1.10,"u":"\u0000"}"#);
    }
}
