//! The JSON schema of an answer: which part of the answer is the value, and whether the schema allows it.

use std::fmt;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use crate::ending::AgentAnswer;

/// Violations that are named in a message. More of them follow from the first ones.
const MAX_VIOLATIONS: usize = 5;
/// Bytes of a message about an answer.
const MAX_MESSAGE_BYTES: usize = 2_000;
/// Places in a text at which a value may begin. A text with more of them is no answer.
const MAX_BEGINNINGS: usize = 1_000;

/// A schema that was read without an error.
#[derive(Clone)]
pub(crate) struct AnswerSchema {
    text: Arc<str>,
    validator: Arc<Validator>,
}

impl fmt::Debug for AnswerSchema {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("AnswerSchema").field(&self.text).finish()
    }
}

impl AnswerSchema {
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
        Ok(Self { text: schema.to_string().into(), validator: Arc::new(validator) })
    }

    /// The schema as JSON.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The value of an answer, as JSON. The error says what the schema does not allow.
    pub(crate) fn check(&self, answer: &AgentAnswer) -> Result<String, String> {
        let structured = answer.structured.as_deref().and_then(|json| serde_json::from_str(json).ok());
        match structured {
            Some(value) => self.violations(&value).map_or_else(|| Ok(value.to_string()), Err),
            None => self.check_text(&answer.text),
        }
    }

    /// The value in a text: all of it, or the first one inside prose that the schema allows.
    pub(super) fn check_text(&self, text: &str) -> Result<String, String> {
        let mut first = None;
        for value in values(text) {
            match self.violations(&value) {
                None => return Ok(value.to_string()),
                Some(violations) => first = first.or(Some(violations)),
            }
        }
        Err(first.unwrap_or_else(|| "the answer has no JSON value".to_owned()))
    }

    fn violations(&self, value: &Value) -> Option<String> {
        let mut named = self.validator.iter_errors(value).take(MAX_VIOLATIONS).map(|error| {
            let path = error.instance_path().to_string();
            if path.is_empty() { error.to_string() } else { format!("{path}: {error}") }
        });
        let first = named.next()?;
        let all = named.fold(first, |all, one| format!("{all}; {one}"));
        Some(ostler_core::cut(&all, MAX_MESSAGE_BYTES))
    }
}

/// The text as JSON, then the objects and lists inside it.
fn values(text: &str) -> impl Iterator<Item = Value> {
    let whole = serde_json::from_str::<Value>(text).ok();
    let inside = text.match_indices(['{', '[']).take(MAX_BEGINNINGS).filter_map(|(at, _)| {
        serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok()
    });
    whole.into_iter().chain(inside)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> AnswerSchema {
        let schema = json!({"type": "object", "required": ["score"], "properties": {"score": {"type": "integer", "maximum": 10}}});
        AnswerSchema::new(&schema).expect("it is a schema")
    }

    #[test]
    fn the_value_is_found_whole_in_a_block_or_inside_prose() {
        for text in [
            "{\"score\":7}",
            "Here it is [as asked]:\n```json\n{\"score\": 7}\n```\nDone.",
            "not {\"rating\": 1} but {\"score\":7}",
        ] {
            assert_eq!(schema().check_text(text), Ok("{\"score\":7}".into()), "{text}");
        }
    }

    #[test]
    fn what_the_schema_does_not_allow_is_said_with_its_place() {
        let message = schema().check_text("{\"score\": 70}").unwrap_err();
        assert!(message.starts_with("/score: 70"), "{message}");
        assert_eq!(schema().check_text("seven"), Err("the answer has no JSON value".into()));
        let structured = AgentAnswer { structured: Some("{}".into()), ..AgentAnswer::default() };
        assert!(schema().check(&structured).unwrap_err().contains("score"));
        assert!(AnswerSchema::new(&json!({"type": "nonsense"})).is_err());
    }
}
