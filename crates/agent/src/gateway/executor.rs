//! The executor of `executor = "http"`: each task is one query to an external gateway.

use async_trait::async_trait;
use ostler_core::{ErrorClass, EventBody, Failure};
use ostler_exec::{
    AttemptResult, Control, Executor, Gateway, GatewayQuery, NewSession, QueryEnd, Sent, Served,
    SessionOrigin, SessionQuery, Work,
};
use serde_json::{Map, Value};

use super::external::ExternalGateway;
use super::wire::check_session;
use crate::prompt::{ItemPlace, PromptItem, PromptTemplate};

/// The fields of a payload that say which item of a job it is: no options of a query.
const OF_JOBS: [&str; 2] = ["number", "item"];

/// Gives each task to an external gateway, whatever its kind.
///
/// An attempt that follows another goes on in the session that the last one had: the gateway knows by `resumed` that the query may
/// have been begun there.
#[derive(Debug)]
pub struct HttpExecutor {
    gateway: ExternalGateway,
    template: Option<PromptTemplate>,
    max_output_bytes: usize,
}

/// What one task asks for.
#[derive(Debug, PartialEq)]
struct QueryTask {
    query: GatewayQuery,
    session: Option<String>,
    user_id: Option<String>,
    workspace: Option<String>,
}

impl HttpExecutor {
    #[must_use]
    pub const fn new(
        gateway: ExternalGateway,
        template: Option<PromptTemplate>,
        max_output_bytes: usize,
    ) -> Self {
        Self { gateway, template, max_output_bytes }
    }

    async fn asked(&self, work: &Work, control: &Control) -> Result<String, QueryEnd> {
        let task = QueryTask::read(&work.payload, self.template.as_ref())
            .map_err(|message| Failure::new(ErrorClass::Permanent, message))?;
        let previous = control.steps.previous_session().await;
        let previous = previous.map_err(|error| {
            Failure::new(ErrorClass::Transient, format!("its earlier session cannot be read: {error}"))
        })?;
        let workspace = task.workspace.as_deref().or(work.folder.as_deref());
        let (session, origin) = match previous.or_else(|| task.session.clone()) {
            Some(session) => (session, SessionOrigin::Earlier),
            None => (self.created(&task, workspace, work, control).await?, SessionOrigin::New),
        };
        match self.query(&session, origin, &task, workspace, work, control).await {
            Err(QueryEnd::UnknownSession) if origin == SessionOrigin::Earlier && task.session.is_none() => {
                let text = format!("the gateway does not know the session {session}: a new one begins");
                let _ = control.events.send(EventBody::Status { text }).await;
                let session = self.created(&task, workspace, work, control).await?;
                self.query(&session, SessionOrigin::New, &task, workspace, work, control).await
            }
            other => other,
        }
    }

    async fn created(
        &self,
        task: &QueryTask,
        workspace: Option<&str>,
        work: &Work,
        control: &Control,
    ) -> Result<String, QueryEnd> {
        let usual = format!("worker_{}", work.task);
        let user_id = task.user_id.as_deref().unwrap_or(&usual);
        self.gateway.create_session(NewSession { user_id, workspace, number: 1, work, control }).await
    }

    /// Stores the session, then asks.
    async fn query(
        &self,
        session: &str,
        origin: SessionOrigin,
        task: &QueryTask,
        workspace: Option<&str>,
        work: &Work,
        control: &Control,
    ) -> Result<String, QueryEnd> {
        match control.events.store(EventBody::Session { id: session.to_owned() }).await {
            Sent::Yes => {}
            Sent::Closed => return Err(QueryEnd::Cancelled),
        }
        if origin == SessionOrigin::Earlier {
            let text = format!("resumes the session {session}");
            let _ = control.events.send(EventBody::Status { text }).await;
        }
        let query = &task.query;
        let asked = SessionQuery { session, origin, workspace, number: (1, 1), query, work, control };
        self.gateway.run_query(asked).await
    }
}

#[async_trait]
impl Executor for HttpExecutor {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        let ended = tokio::select! {
            biased;
            () = control.cancel.cancelled() => Err(QueryEnd::Cancelled),
            ended = self.asked(&work, &control) => ended,
            () = tokio::time::sleep(work.timeout) => return AttemptResult::too_long(work.timeout),
        };
        match ended {
            Ok(output) if output.len() > self.max_output_bytes => {
                let message = format!("the answer has more than {} bytes", self.max_output_bytes);
                AttemptResult::failed_with(ErrorClass::Permanent, message)
            }
            Ok(output) => AttemptResult::success(Some(output)),
            Err(QueryEnd::Failed(failure)) => AttemptResult::failed(failure),
            Err(QueryEnd::UnknownSession) => {
                AttemptResult::failed_with(ErrorClass::Permanent, "the gateway does not know the session")
            }
            Err(QueryEnd::Cancelled) => AttemptResult::cancelled(),
        }
    }
}

impl QueryTask {
    /// Reads a payload. The error is a sentence for the submitter.
    fn read(payload: &str, template: Option<&PromptTemplate>) -> Result<Self, String> {
        let mut fields = match serde_json::from_str(payload) {
            Ok(Value::String(text)) => {
                let input = match template {
                    None => text,
                    Some(template) => rendered(template, &PromptItem::Text(text))?,
                };
                return Self::of(input, None, None, None, Map::new());
            }
            Ok(Value::Object(fields)) => fields,
            Ok(_) | Err(_) => {
                return Err("the payload must be a string, which is the prompt, or an object such as \
                            {\"prompt\": \"…\", \"session\": \"…\"}"
                    .to_owned());
            }
        };
        let input = match (text(&mut fields, "prompt")?, text(&mut fields, "input")?, template) {
            (Some(_), Some(_), _) => {
                return Err("the payload has both \"prompt\" and \"input\", which mean the same".to_owned());
            }
            (Some(input), None, _) | (None, Some(input), _) => input,
            (None, None, Some(template)) => rendered(template, &PromptItem::Fields(fields.clone()))?,
            (None, None, None) => {
                return Err("the payload has no \"prompt\", and the pool has no template".to_owned());
            }
        };
        let session = text(&mut fields, "session")?;
        if let Some(session) = &session {
            check_session(session).map_err(|_| "payload.session is not the id of a session".to_owned())?;
        }
        let (user_id, workspace) = (text(&mut fields, "user_id")?, text(&mut fields, "folder")?);
        OF_JOBS.iter().for_each(|name| drop(fields.remove(*name)));
        Self::of(input, session, user_id, workspace, fields)
    }

    fn of(
        input: String,
        session: Option<String>,
        user_id: Option<String>,
        workspace: Option<String>,
        options: Map<String, Value>,
    ) -> Result<Self, String> {
        if input.trim().is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        Ok(Self { query: GatewayQuery { input, options }, session, user_id, workspace })
    }
}

fn rendered(template: &PromptTemplate, item: &PromptItem) -> Result<String, String> {
    template.render(item, ItemPlace { index: 1, total: 1 }).map_err(|error| error.to_string())
}

/// Takes a field that is a text out of the payload.
fn text(fields: &mut Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match fields.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("payload.{key} must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(payload: &Value) -> Result<QueryTask, String> {
        QueryTask::read(&payload.to_string(), None)
    }

    #[test]
    fn a_payload_is_a_prompt_or_an_object_whose_other_fields_are_options() {
        let task = read(&json!("Go")).expect("it is right");
        assert_eq!(task.query, GatewayQuery::new("Go"));
        let whole = json!({"prompt": "Go", "session": "s-1", "user_id": "anna", "folder": "/srv", "max_iterations": 5});
        let task = read(&whole).expect("it is right");
        assert_eq!(task.query, GatewayQuery::new("Go").with("max_iterations", 5));
        assert_eq!(
            (task.session.as_deref(), task.user_id.as_deref(), task.workspace.as_deref()),
            (Some("s-1"), Some("anna"), Some("/srv"))
        );
        let item = read(&json!({"number": 3, "item": "a.md", "prompt": "Go", "model": "m"}));
        assert_eq!(item.map(|task| task.query), Ok(GatewayQuery::new("Go").with("model", "m")));
        assert_eq!(read(&json!({"input": "Go"})).map(|task| task.query.input), Ok("Go".to_owned()));
    }

    #[test]
    fn a_wrong_payload_is_one_sentence() {
        for (payload, words) in [
            (json!([1]), "must be a string"),
            (json!({}), "has no \"prompt\""),
            (json!(" "), "the prompt is empty"),
            (json!({"prompt": "x", "input": "y"}), "both"),
            (json!({"prompt": "x", "session": "../x"}), "payload.session"),
            (json!({"prompt": 1}), "payload.prompt must be a string"),
        ] {
            let error = read(&payload).expect_err("it is wrong");
            assert!(error.contains(words), "{error}");
        }
    }
}
