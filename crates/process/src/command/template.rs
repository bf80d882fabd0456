//! Argument templates: the arguments of a command, with fields of the task in them.
//!
//! `{{ payload }}`, `{{ payload.a.b }}`, `{{ id }}`, `{{ attempt }}`, `{{ kind }}` and `{{ queue }}` are replaced, once:
//! the replacement is data and is not expanded again. A template stays one argument whatever is inserted.

use ostler_exec::Work;
use serde_json::Value;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// An invalid template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("\"{{{{\" without \"}}}}\" in \"{0}\"")]
    Open(String),
    #[error(
        "there is no field \"{0}\": use payload, payload.<name>, id, attempt, kind or queue in the template"
    )]
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Id,
    Attempt,
    Kind,
    Queue,
    /// The payload, or the value in it at this path.
    Payload(Vec<String>),
}

/// The template of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (field, after) =
                after.split_once(CLOSE).ok_or_else(|| TemplateError::Open(text.to_owned()))?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(field_part(field.trim())?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Returns the argument, if it is the same for every task.
    pub(super) fn fixed(&self) -> Option<String> {
        let text = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Id | Part::Attempt | Part::Kind | Part::Queue | Part::Payload(_) => None,
        };
        self.0.iter().map(text).collect()
    }

    /// Renders the argument for this attempt; the error is a message.
    pub(super) fn render(&self, work: &Work) -> Result<String, String> {
        let mut argument = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => argument.push_str(text),
                Part::Id => argument.push_str(&work.task.to_string()),
                Part::Attempt => argument.push_str(&work.attempt.to_string()),
                Part::Kind => argument.push_str(&work.kind),
                Part::Queue => argument.push_str(&work.queue),
                Part::Payload(path) => argument.push_str(&from_payload(&work.payload, path)?),
            }
        }
        if argument.contains('\0') {
            return Err(
                "an argument would contain a NUL character, which cannot be passed to a program".to_owned()
            );
        }
        Ok(argument)
    }
}

fn field_part(field: &str) -> Result<Part, TemplateError> {
    let unknown = || TemplateError::Unknown(field.to_owned());
    let (root, path) = match field.split_once('.') {
        Some((root, path)) => (root, path.split('.').map(ToOwned::to_owned).collect()),
        None => (field, Vec::new()),
    };
    let part = match root {
        "payload" if path.iter().all(|name: &String| !name.is_empty()) => return Ok(Part::Payload(path)),
        "id" => Part::Id,
        "attempt" => Part::Attempt,
        "kind" => Part::Kind,
        "queue" => Part::Queue,
        _ => return Err(unknown()),
    };
    if path.is_empty() { Ok(part) } else { Err(unknown()) }
}

fn from_payload(payload: &str, path: &[String]) -> Result<String, String> {
    let parsed: Value =
        serde_json::from_str(payload).map_err(|error| format!("the payload is not JSON: {error}"))?;
    let mut value = &parsed;
    for name in path {
        let found = match value {
            Value::Object(fields) => fields.get(name),
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        value = found.ok_or_else(|| {
            format!("the payload has no \"{}\", which the command's arguments need", path.join("."))
        })?;
    }
    Ok(match value {
        Value::String(text) => text.clone(),
        // As it was submitted: parsing would sort its fields and round its numbers.
        _ if path.is_empty() => payload.to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_core::{Id, TaskId, WorkerId};

    use super::*;

    fn rendered(template: &str, payload: &str) -> Result<String, String> {
        let work = Work {
            task: TaskId(Id::from_bits(7)),
            token: 1,
            worker: WorkerId(Id::from_bits(2)),
            attempt: 3,
            queue: "mail".into(),
            kind: "send".into(),
            payload: payload.into(),
            timeout: Duration::from_secs(1),
            grace: Duration::from_secs(1),
            folder: None,
            traceparent: None,
        };
        Template::parse(template).expect("the template is right").render(&work)
    }

    #[test]
    fn fields_of_the_task_are_replaced() {
        assert_eq!(rendered("{{ kind }}/{{queue}}#{{ attempt }}", "null"), Ok("send/mail#3".into()));
        assert_eq!(rendered("{{ id }}", "null"), Ok(TaskId(Id::from_bits(7)).to_string()));
    }

    #[test]
    fn strings_come_raw_and_everything_else_as_json() {
        let payload = r#"{"a": {"b": "it's \"so\""}, "n": 12, "list": [true, null]}"#;
        assert_eq!(rendered("--to={{ payload.a.b }}", payload), Ok("--to=it's \"so\"".into()));
        assert_eq!(rendered("{{ payload.n }}{{ payload.list }}", payload), Ok("12[true,null]".into()));
        assert_eq!(rendered("{{ payload.list.0 }}", payload), Ok("true".into()));
        assert_eq!(rendered("{{ payload }}", payload), Ok(payload.into()), "the text as it was submitted");
        assert_eq!(rendered("{{ payload }}", "\"plain\""), Ok("plain".into()));
    }

    #[test]
    fn what_comes_in_is_not_looked_at_again() {
        assert_eq!(rendered("{{ payload.a }}", r#"{"a":"{{ id }} }} {{"}"#), Ok("{{ id }} }} {{".into()));
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let message = rendered("{{ payload.a.b }}", r#"{"a":1}"#).expect_err("there is no a.b");
        assert!(message.contains("\"a.b\""), "{message}");
        assert!(rendered("{{ payload.a }}", "not json").is_err_and(|message| message.contains("not JSON")));
    }

    #[test]
    fn a_nul_is_refused() {
        assert!(rendered("{{ payload }}", r#""a\u0000b""#).is_err_and(|message| message.contains("NUL")));
    }

    #[test]
    fn a_wrong_template_is_refused_before_there_is_a_task() {
        for (text, part) in [
            ("{{ payload", "without"),
            ("{{ payloads }}", "payloads"),
            ("{{ id.x }}", "id.x"),
            ("{{ payload. }}", "payload."),
            ("{{}}", "\"\""),
        ] {
            let error = Template::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Template::parse("no } field { here }}").is_ok());
    }
}
