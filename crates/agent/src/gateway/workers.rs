//! The gateway for worker processes: the calls of an attempt, as the extension of the worker protocol carries them.
//!
//! ```text
//! node → worker   {"type":"hello", …, "gateway":true}
//! worker → node   {"type":"call", …, "call":{"gateway":"create_session","user_id":"…","workspace":"…"}}
//!                 {"type":"call", …, "call":{"gateway":"run_query","session":1,"input":"…","options":{…}}}
//! node → worker   {"type":"answer", …, "answer":{"session":1,"id":"…"}}     {"type":"answer", …, "answer":{"output":…,"id":"…"}}
//!                 {"type":"answer", …, "answer":{"error":{"class":"transient","message":"…","retry_after_ms":2000}}}
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure};
use ostler_exec::{
    AttemptGateway, Control, Gateway, GatewayQuery, GatewaySession, SessionRequest, TaskError, Work,
};
use ostler_process::{AttemptExtension, CallFuture, FrameField, TaskFolder, WorkerExtension};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Adds a gateway to the workers of a pool.
pub(super) struct GatewayExtension(Arc<dyn Gateway>);

impl GatewayExtension {
    pub(super) const fn new(gateway: Arc<dyn Gateway>) -> Self {
        Self(gateway)
    }
}

#[async_trait]
impl WorkerExtension for GatewayExtension {
    fn hello(&self) -> Vec<FrameField> {
        vec![("gateway", "true".to_owned())]
    }

    async fn prepare(
        &self,
        work: &Work,
        _folder: Option<&TaskFolder>,
        control: &Control,
    ) -> Result<Arc<dyn AttemptExtension>, Failure> {
        let gateway = AttemptGateway::new(Arc::clone(&self.0), work, control);
        Ok(Arc::new(GatewayCalls { gateway, sessions: Mutex::default() }))
    }
}

/// The calls of one attempt.
struct GatewayCalls {
    gateway: AttemptGateway,
    /// By their numbers; as many as an attempt may have.
    sessions: Mutex<HashMap<u32, Arc<GatewaySession>>>,
}

/// What a worker asks.
#[derive(Deserialize)]
#[serde(tag = "gateway", rename_all = "snake_case")]
enum GatewayCall {
    CreateSession {
        user_id: Option<String>,
        workspace: Option<String>,
    },
    ResumeSession {
        id: String,
        workspace: Option<String>,
    },
    RunQuery {
        session: u32,
        input: String,
        #[serde(default)]
        options: Map<String, Value>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum CallAnswer {
    Session { session: u32, id: String },
    Answer { output: Box<RawValue>, id: String },
    Failed { error: CallError },
}

#[derive(Serialize)]
struct CallError {
    class: &'static str,
    message: String,
    retry_after_ms: Option<u64>,
    hint: Option<String>,
    details: Option<String>,
}

impl AttemptExtension for GatewayCalls {
    fn fields(&self) -> Vec<FrameField> {
        Vec::new()
    }

    fn content_key(&self) -> &str {
        ""
    }

    fn content(&self) -> Vec<FrameField> {
        Vec::new()
    }

    fn call(self: Arc<Self>, call: String) -> CallFuture {
        Box::pin(async move {
            let answer = match serde_json::from_str(&call) {
                Ok(call) => self.answer(call).await.unwrap_or_else(CallAnswer::failed),
                Err(error) => CallAnswer::failed(TaskError::permanent(format!(
                    "the node does not know the call: {error}"
                ))),
            };
            // Texts and JSON are always JSON.
            serde_json::to_string(&answer).unwrap_or_else(|_| "null".to_owned())
        })
    }
}

impl GatewayCalls {
    async fn answer(&self, call: GatewayCall) -> Result<CallAnswer, TaskError> {
        match call {
            GatewayCall::CreateSession { user_id, workspace } => {
                let request = SessionRequest { user_id, workspace };
                self.opened(self.gateway.create_session(request).await?).await
            }
            GatewayCall::ResumeSession { id, workspace } => {
                let request = SessionRequest { user_id: None, workspace };
                self.opened(self.gateway.resume_session(id, request).await?).await
            }
            GatewayCall::RunQuery { session, input, options } => {
                let found = self.lock().get(&session).cloned();
                let found =
                    found.ok_or_else(|| TaskError::permanent(format!("there is no session {session}")))?;
                let answer = found.run_query(GatewayQuery { input, options }).await?;
                let output = RawValue::from_string(answer.output)
                    .map_err(|error| TaskError::transient(format!("the answer is not JSON: {error}")))?;
                Ok(CallAnswer::Answer { output, id: answer.session })
            }
        }
    }

    async fn opened(&self, session: GatewaySession) -> Result<CallAnswer, TaskError> {
        let (number, id) = (session.number(), session.id().await);
        self.lock().insert(number, Arc::new(session));
        Ok(CallAnswer::Session { session: number, id })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<GatewaySession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallAnswer {
    fn failed(error: TaskError) -> Self {
        let Failure { class, message, details, hint, retry_after, .. } = error.into_failure();
        let retry_after_ms = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Self::Failed {
            error: CallError { class: ErrorClass::name(class), message, retry_after_ms, hint, details },
        }
    }
}
