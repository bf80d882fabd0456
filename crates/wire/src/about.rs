//! What a task is about, in a few words: its item, its unique key, or the command or other text in its payload. Lists show it.

use ostler_core::{Task, beginning};
use ostler_store::jobs::job_of;
use serde_json::Value;

/// Characters of the text.
const MAX_CHARS: usize = 100;
/// Larger payloads are not parsed: only their beginning is shown.
const MAX_PARSED_BYTES: usize = 16 << 10;
/// The field with the item of a job.
const ITEM: &str = "item";
/// Fields of payloads that say what a task is about, the best first.
const TELLING: [&str; 8] = [ITEM, "script", "command", "argv", "prompt", "url", "path", "name"];

/// `None`: the payload is `null`, and there is no key.
pub(crate) fn about(task: &Task) -> Option<String> {
    let payload = || match task.payload.len() > MAX_PARSED_BYTES {
        true => Value::String(beginning(&task.payload, MAX_PARSED_BYTES).to_owned()),
        false => serde_json::from_str(&task.payload).unwrap_or_default(),
    };
    let item = job_of(&task.queue).and_then(|_| text(payload().get(ITEM)?));
    item.or_else(|| task.unique_key.clone()).or_else(|| of_payload(&payload()))
}

fn of_payload(payload: &Value) -> Option<String> {
    let told = TELLING.iter().find_map(|name| text(payload.get(name)?));
    told.or_else(|| text(payload))
}

/// A value in a line: words of a list are joined, and other values are JSON.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => short(text),
        Value::Array(words) if !words.is_empty() && words.iter().all(Value::is_string) => {
            short(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => short(&value.to_string()),
    };
    (!text.is_empty()).then_some(text)
}

/// The first line, if it is short.
fn short(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    let more = line.len() < text.trim().len() || line.chars().nth(MAX_CHARS).is_some();
    let kept: String = line.chars().take(MAX_CHARS).collect();
    if more { format!("{}…", kept.trim_end()) } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_told_by_its_best_field_or_as_it_is() {
        for (payload, told) in [
            ("null", None),
            (r#"{"script":"make -j4\nmake install"}"#, Some("make -j4…")),
            (r#"{"to":"anna","name":"welcome"}"#, Some("welcome")),
            (r#"{"argv":["sh","-c","true"]}"#, Some("sh -c true")),
            (r#"{"to":"anna"}"#, Some(r#"{"to":"anna"}"#)),
            (r#""""#, None),
            ("17", Some("17")),
        ] {
            let payload: Value = serde_json::from_str(payload).expect("JSON");
            assert_eq!(of_payload(&payload).as_deref(), told, "{payload}");
        }
        assert_eq!(short(&"x".repeat(101)), format!("{}…", "x".repeat(100)));
    }
}
