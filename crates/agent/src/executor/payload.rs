//! The payload of a task for an agent: a prompt, or an object with a prompt and settings that win over those of the pool.

use ostler_core::visible;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::policy::AgentPolicy;
use super::schema::AnswerSchema;
use crate::launch::is_session_id;
use crate::prompt::{ItemPlace, PromptItem, PromptTemplate};
use crate::settings::{Denials, Permission, ToolRules};

/// The range of model requests.
pub(crate) const TURNS: std::ops::RangeInclusive<u32> = 1..=10_000;
/// The words for permissions.
pub(crate) const PERMISSIONS: [(&str, Permission); 3] =
    [("read-only", Permission::ReadOnly), ("edit", Permission::Edit), ("everything", Permission::Everything)];
/// The words for what a denied tool means.
pub(crate) const DENIALS: [(&str, Denials); 2] = [("warn", Denials::Warn), ("fail", Denials::Fail)];
/// What a session must be.
const SESSION: &str = "the id of a conversation";
/// There is nothing to ask.
pub(crate) const NO_PROMPT: &str = "the payload has no \"prompt\", and the pool has no template";
/// Bytes of a wrong value in a message.
const SHOWN_BYTES: usize = 80;

/// What one task asks for.
#[derive(Debug)]
pub(super) struct AgentTask {
    pub(super) prompt: String,
    pub(super) model: Option<String>,
    pub(super) max_turns: u32,
    pub(super) permission: Permission,
    pub(super) tools: ToolRules,
    pub(super) denials: Denials,
    pub(super) schema: Option<AnswerSchema>,
    /// More arguments, after those of the pool.
    pub(super) extra: Vec<String>,
    /// A conversation to go on with.
    pub(super) session: Option<String>,
}

impl AgentTask {
    /// Reads a payload. The error is a sentence for the submitter.
    pub(super) fn read(
        payload: &str,
        policy: &AgentPolicy,
        template: Option<&PromptTemplate>,
        schema: Option<&AnswerSchema>,
    ) -> Result<Self, String> {
        let payload = PromptPayload::read(payload)?;
        let prompt = payload.prompt(template)?.ok_or(NO_PROMPT)?;
        Self::of(&payload.into_fields(), prompt, policy, schema)
    }

    fn of(
        fields: &Map<String, Value>,
        prompt: String,
        policy: &AgentPolicy,
        schema: Option<&AnswerSchema>,
    ) -> Result<Self, String> {
        if prompt.trim().is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        let texts = |key| take::<Vec<String>>(fields, key, "a list of strings");
        let own_schema = own_schema(fields)?;
        let most = take::<u32>(fields, "max_iterations", "a whole number")?;
        if let Some(most) = most.filter(|most| !TURNS.contains(most)) {
            let (low, high) = (TURNS.start(), TURNS.end());
            return Err(format!("payload.max_iterations is {most}, but must be from {low} to {high}"));
        }
        let session = take::<String>(fields, "session", SESSION)?;
        if session.as_deref().is_some_and(|id| !is_session_id(id)) {
            return Err(wrong("session", &fields["session"], SESSION));
        }
        Ok(Self {
            prompt,
            model: take(fields, "model", "a string")?.or_else(|| policy.model.clone()),
            max_turns: most.unwrap_or(policy.max_turns),
            permission: word(fields, "permission", &PERMISSIONS)?.unwrap_or(policy.permission),
            tools: ToolRules {
                allowed: texts("tools")?.unwrap_or_else(|| policy.tools.allowed.clone()),
                denied: texts("denied_tools")?.unwrap_or_else(|| policy.tools.denied.clone()),
            },
            denials: word(fields, "on_denied", &DENIALS)?.unwrap_or(policy.denials),
            schema: own_schema.or_else(|| schema.cloned()),
            extra: policy.extra.iter().cloned().chain(texts("extra")?.unwrap_or_default()).collect(),
            session,
        })
    }
}

/// A payload that has a prompt, in one way or another.
pub(crate) enum PromptPayload {
    /// The prompt, or the item of a template.
    Text(String),
    /// `prompt` and settings, or the variables of a template.
    Fields(Map<String, Value>),
}

impl PromptPayload {
    /// Reads a payload. The error is a sentence for the submitter.
    pub(crate) fn read(payload: &str) -> Result<Self, String> {
        match serde_json::from_str(payload) {
            Ok(Value::Object(fields)) => Ok(Self::Fields(fields)),
            Ok(Value::String(text)) => Ok(Self::Text(text)),
            Ok(_) | Err(_) => Err("the payload must be a string, which is the prompt, or an object such as \
                                   {\"prompt\": \"…\", \"model\": \"…\"}"
                .to_owned()),
        }
    }

    /// The prompt; `None` if neither the payload nor the pool has one.
    pub(crate) fn prompt(&self, template: Option<&PromptTemplate>) -> Result<Option<String>, String> {
        let prompt = match (self, template) {
            (Self::Text(text), None) => text.clone(),
            (Self::Text(text), Some(template)) => rendered(template, &PromptItem::Text(text.clone()))?,
            (Self::Fields(fields), _) => match (take::<String>(fields, "prompt", "a string")?, template) {
                // It was rendered by its submitter.
                (Some(prompt), _) => prompt,
                (None, Some(template)) => rendered(template, &PromptItem::Fields(fields.clone()))?,
                (None, None) => return Ok(None),
            },
        };
        Ok(Some(prompt))
    }

    pub(crate) fn into_fields(self) -> Map<String, Value> {
        match self {
            Self::Text(_) => Map::new(),
            Self::Fields(fields) => fields,
        }
    }
}

/// The schema of a payload, if it has one.
pub(crate) fn own_schema(fields: &Map<String, Value>) -> Result<Option<AnswerSchema>, String> {
    let Some(schema) = fields.get("schema").filter(|schema| !schema.is_null()) else { return Ok(None) };
    let read = AnswerSchema::new(schema);
    read.map(Some).map_err(|error| format!("payload.schema is not a JSON schema: {error}"))
}

fn rendered(template: &PromptTemplate, item: &PromptItem) -> Result<String, String> {
    template.render(item, ItemPlace { index: 1, total: 1 }).map_err(|error| error.to_string())
}

pub(crate) fn take<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    key: &str,
    right: &str,
) -> Result<Option<T>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => T::deserialize(value).map(Some).map_err(|_| wrong(key, value, right)),
    }
}

fn word<T: Copy>(fields: &Map<String, Value>, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, String> {
    let Some(value) = fields.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let chosen = choices.iter().find(|(word, _)| value.as_str() == Some(*word)).map(|(_, choice)| *choice);
    let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    chosen.map(Some).ok_or_else(|| wrong(key, value, &words.join(" or ")))
}

fn wrong(key: &str, value: &Value, right: &str) -> String {
    let shown = visible(&ostler_core::cut(&value.to_string(), SHOWN_BYTES));
    format!("payload.{key} is {shown}, but must be {right}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::Dialect;

    fn read(payload: &Value, template: Option<&str>) -> Result<AgentTask, String> {
        let (model, extra) = (Some("pool".into()), vec!["--pool".into()]);
        let policy = AgentPolicy { model, extra, ..AgentPolicy::new("p", Dialect::Claude) };
        let template = template.map(|text| PromptTemplate::new(text).expect("a template"));
        AgentTask::read(&payload.to_string(), &policy, template.as_ref(), None)
    }

    #[test]
    fn a_prompt_is_the_payload_its_field_or_rendered_and_never_rendered_twice() {
        let prompt = |payload: &Value, template| read(payload, template).map(|task| task.prompt);
        assert_eq!(prompt(&json!("Say {{ x }}"), None), Ok("Say {{ x }}".into()));
        assert_eq!(prompt(&json!("a.rs"), Some("Review {{ item }}")), Ok("Review a.rs".into()));
        assert_eq!(prompt(&json!({"file": "a.rs"}), Some("Review {{ file }}")), Ok("Review a.rs".into()));
        let given = json!({"prompt": "Fix {{ file }}", "file": "a.rs"});
        assert_eq!(prompt(&given, Some("Review {{ file }}")), Ok("Fix {{ file }}".into()));
        assert!(
            prompt(&json!({"path": "a.rs"}), Some("\nReview {{ file }}")).unwrap_err().contains("line 2")
        );
    }

    #[test]
    fn settings_of_a_task_win_over_those_of_the_pool() {
        let task =
            read(&json!({"prompt": "x", "model": "task", "max_iterations": 3, "permission": "edit"}), None);
        let task = task.expect("it is valid");
        assert_eq!(
            (task.model.as_deref(), task.max_turns, task.permission),
            (Some("task"), 3, Permission::Edit)
        );
        let flags = json!({"prompt": "x", "extra": ["--add-dir=docs"]});
        assert_eq!(
            read(&flags, None).map(|task| task.extra),
            Ok(vec!["--pool".into(), "--add-dir=docs".into()])
        );
        let plain = read(&json!("x"), None).expect("it is valid");
        assert_eq!((plain.model.as_deref(), plain.permission), (Some("pool"), Permission::ReadOnly));
    }

    #[test]
    fn a_wrong_setting_is_one_sentence() {
        for (payload, sentence) in [
            (json!([1]), "the payload must be a string, which is the prompt, or an object"),
            (json!({}), "the payload has no \"prompt\", and the pool has no template"),
            (json!(" "), "the prompt is empty"),
            (json!({"prompt": 5}), "payload.prompt is 5, but must be a string"),
            (json!({"prompt": "x", "max_iterations": 0}), "payload.max_iterations is 0, but must be from 1"),
            (
                json!({"prompt": "x", "permission": "root"}),
                "payload.permission is \"root\", but must be \"read-only\" or \"edit\" or \"everything\"",
            ),
            (
                json!({"prompt": "x", "session": "../../etc"}),
                "payload.session is \"../../etc\", but must be the id of a conversation",
            ),
            (json!({"prompt": "x", "tools": "Bash"}), "payload.tools is \"Bash\", but must be a list"),
            (json!({"prompt": "x", "extra": "-v"}), "payload.extra is \"-v\", but must be a list"),
            (json!({"prompt": "x", "schema": {"type": "x"}}), "payload.schema is not a JSON schema"),
        ] {
            let error = read(&payload, None).expect_err("it is wrong");
            assert!(error.starts_with(sentence), "{error}");
        }
    }
}
