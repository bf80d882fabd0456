//! The payload of a task for a model: a prompt, or an object with a prompt or messages and settings that win over those of the pool.

use serde_json::{Map, Value, json};

use super::policy::LlmPolicy;
use crate::executor::payload::{NO_PROMPT, PromptPayload, own_schema, take};
use crate::executor::schema::AnswerSchema;
use crate::prompt::PromptTemplate;

/// The range of `max_tokens`.
pub(super) const TOKENS: std::ops::RangeInclusive<u32> = 1..=10_000_000;

/// What one task asks for.
#[derive(Debug)]
pub(super) struct LlmTask {
    /// In the words of the API, without the instructions of the system.
    pub(super) messages: Vec<Value>,
    /// What the transcript shows of them.
    pub(super) prompt: String,
    pub(super) system: Option<String>,
    pub(super) model: String,
    pub(super) max_tokens: Option<u32>,
    pub(super) extra: Map<String, Value>,
    pub(super) schema: Option<AnswerSchema>,
}

impl LlmTask {
    /// Reads a payload. The error is a sentence for the submitter.
    pub(super) fn read(
        payload: &str,
        policy: &LlmPolicy,
        template: Option<&PromptTemplate>,
        schema: Option<&AnswerSchema>,
    ) -> Result<Self, String> {
        let payload = PromptPayload::read(payload)?;
        let given = match &payload {
            PromptPayload::Fields(fields) => take::<Vec<Map<String, Value>>>(fields, "messages", MESSAGES)?,
            PromptPayload::Text(_) => None,
        };
        // Messages of a payload are whole: the template is for payloads without them.
        let prompt = payload.prompt(template.filter(|_| given.is_none()))?;
        let fields = payload.into_fields();
        let mut messages: Vec<Value> = given.into_iter().flatten().map(Value::Object).collect();
        let shown = match (&prompt, messages.is_empty()) {
            (Some(prompt), _) if prompt.trim().is_empty() => return Err("the prompt is empty".to_owned()),
            (Some(prompt), true) => prompt.clone(),
            (None, true) => return Err(NO_PROMPT.to_owned()),
            (_, false) => Value::from(messages.clone()).to_string(),
        };
        let shown = match &prompt {
            Some(prompt) if !messages.is_empty() => format!("{shown}\n{prompt}"),
            Some(_) | None => shown,
        };
        messages.extend(prompt.map(|prompt| said("user", &prompt)));
        let max_tokens = take::<u32>(&fields, "max_tokens", "a whole number")?;
        if max_tokens.is_some_and(|most| !TOKENS.contains(&most)) {
            return Err(format!("payload.max_tokens must be from {} to {}", TOKENS.start(), TOKENS.end()));
        }
        let model = take::<String>(&fields, "model", "a string")?.or_else(|| policy.model.clone());
        let model = model.filter(|model| !model.is_empty());
        let schema = own_schema(&fields)?.or_else(|| schema.cloned());
        let system = take::<String>(&fields, "system", "a string")?.or_else(|| policy.system.clone());
        let mut extra = policy.extra.clone();
        extra.extend(take::<Map<String, Value>>(&fields, "extra", "an object")?.unwrap_or_default());
        Ok(Self {
            messages,
            prompt: shown,
            system: with_schema(system, schema.as_ref()),
            model: model.ok_or("neither the payload nor the pool names a model")?,
            max_tokens: max_tokens.or(policy.max_tokens),
            extra,
            schema,
        })
    }
}

/// What messages must be.
const MESSAGES: &str = "a list of objects such as {\"role\": \"user\", \"content\": \"…\"}";

/// A message in a conversation: all three APIs have the same form.
pub(super) fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// Asks for the form of the answer. Whether it has it is checked here, so that every server can be asked.
fn with_schema(system: Option<String>, schema: Option<&AnswerSchema>) -> Option<String> {
    let Some(schema) = schema else { return system };
    let before = system.map(|system| format!("{system}\n\n")).unwrap_or_default();
    let asked = "Answer with only one JSON value that matches this JSON schema, and nothing else:";
    Some(format!("{before}{asked}\n{}", schema.text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::LlmApi;

    fn read(payload: &Value, template: Option<&str>) -> Result<LlmTask, String> {
        let policy = LlmPolicy {
            model: Some("pool".into()),
            system: Some("Be short.".into()),
            ..LlmPolicy::new(LlmApi::OpenAi)
        };
        let template = template.map(|text| PromptTemplate::new(text).expect("a template"));
        LlmTask::read(&payload.to_string(), &policy, template.as_ref(), None)
    }

    #[test]
    fn a_prompt_is_one_message_and_messages_are_passed_on() {
        let task = read(&json!("hi"), None).expect("it is valid");
        assert_eq!(task.messages, [said("user", "hi")]);
        assert_eq!((task.prompt.as_str(), task.model.as_str()), ("hi", "pool"));
        let task = read(&json!({"name": "Dune"}), Some("About {{ name }}")).expect("it is valid");
        assert_eq!(task.messages, [said("user", "About Dune")]);
        let messages = json!([said("user", "a"), said("assistant", "b")]);
        let task = read(&json!({"messages": messages, "prompt": "c", "model": "m"}), Some("{{ x }}"));
        let task = task.expect("it is valid");
        assert_eq!(task.messages, [said("user", "a"), said("assistant", "b"), said("user", "c")]);
        assert_eq!(task.model, "m");
    }

    #[test]
    fn a_schema_is_asked_for_after_the_instructions() {
        let task = read(&json!({"prompt": "x", "schema": {"type": "object"}}), None).expect("it is valid");
        let system = task.system.expect("there are instructions");
        assert!(system.starts_with("Be short.\n\nAnswer with only one JSON value"), "{system}");
        assert!(system.ends_with("{\"type\":\"object\"}"), "{system}");
    }

    #[test]
    fn a_wrong_payload_is_one_sentence() {
        for (payload, sentence) in [
            (json!([1]), "the payload must be a string"),
            (json!({}), "the payload has no \"prompt\""),
            (json!(" "), "the prompt is empty"),
            (json!({"messages": "x"}), "payload.messages is \"x\", but must be a list of objects"),
            (json!({"prompt": "x", "max_tokens": 0}), "payload.max_tokens must be from 1"),
            (json!({"prompt": "x", "model": 5}), "payload.model is 5, but must be a string"),
            (json!({"prompt": "x", "extra": 5}), "payload.extra is 5, but must be an object"),
        ] {
            let error = read(&payload, None).expect_err("it is wrong");
            assert!(error.starts_with(sentence), "{error}");
        }
        let bare = LlmPolicy::new(LlmApi::OpenAi);
        let error = LlmTask::read("\"x\"", &bare, None, None).expect_err("there is no model");
        assert_eq!(error, "neither the payload nor the pool names a model");
    }
}
