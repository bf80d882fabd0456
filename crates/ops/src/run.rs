//! Runs: a prompt for a pool of agents, as one task. The command line, the library and the SDKs submit the same.

use ostler_core::{RUN_KIND, TaskId};
use ostler_store::calls::NewTask;
use ostler_store::unique::Unique;
use serde_json::{Map, Value};

use crate::submit::SubmitRequest;

/// A prompt, and the settings that win over those of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRequest {
    pub prompt: String,
    /// The folder in which the agent works.
    pub folder: Option<String>,
    /// The caller's own id of the run, any text: one more run of the same id is the same task.
    pub id: Option<String>,
    /// Model requests, over all attempts.
    pub max_iterations: Option<u32>,
    /// The model, in the words of the agent.
    pub model: Option<String>,
}

impl RunRequest {
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }

    /// The payload of its task.
    #[must_use]
    pub fn payload(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("prompt".to_owned(), self.prompt.clone().into());
        if let Some(most) = self.max_iterations {
            fields.insert("max_iterations".to_owned(), most.into());
        }
        if let Some(model) = &self.model {
            fields.insert("model".to_owned(), model.clone().into());
        }
        Value::Object(fields)
    }

    /// The submission to the queue of a pool.
    #[must_use]
    pub fn request(self, queue: &str, id: TaskId) -> SubmitRequest {
        let payload = self.payload().to_string();
        let task = NewTask {
            unique: self.id.map(Unique::new),
            folder: self.folder,
            ..NewTask::new(id, queue, RUN_KIND, payload)
        };
        SubmitRequest { task, delay: None, deadline: None, after: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::Id;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_has_only_the_settings_that_were_given_and_its_id_is_a_unique_key() {
        let plain = RunRequest::new("Go").request("runs", TaskId(Id::from_bits(1))).task;
        assert_eq!((plain.kind.as_str(), plain.payload.as_str()), ("run", r#"{"prompt":"Go"}"#));
        assert_eq!(plain.unique, None);
        let whole = RunRequest {
            folder: Some("/srv".into()),
            id: Some("job_abc123".into()),
            max_iterations: Some(50),
            model: Some("m".into()),
            ..RunRequest::new("Go")
        };
        assert_eq!(whole.payload(), json!({"prompt": "Go", "max_iterations": 50, "model": "m"}));
        let task = whole.request("runs", TaskId(Id::from_bits(1))).task;
        assert_eq!(task.unique.map(|unique| unique.key), Some("job_abc123".to_owned()));
        assert_eq!(task.folder.as_deref(), Some("/srv"));
    }
}
