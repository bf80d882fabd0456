//! The gateway for worker processes: the calls of an attempt, as the extension of the worker protocol carries them.
//!
//! ```text
//! node → worker   {"type":"hello", …, "gateway":true}
//! worker → node   {"type":"call", …, "call":{"gateway":"create_session","user_id":"…","workspace":"…"}}
//!                 {"type":"call", …, "call":{"gateway":"run_query","session":1,"input":"…","options":{…}}}
//!                 {"type":"call", …, "call":{"gateway":"stream_query","session":1,"input":"…","options":{…}}}
//!                 {"type":"call", …, "call":{"gateway":"next_events","query":1}}
//!                 {"type":"call", …, "call":{"gateway":"drop_query","query":1}}
//! node → worker   {"type":"answer", …, "answer":{"session":1,"id":"…"}}     {"type":"answer", …, "answer":{"output":…,"id":"…"}}
//!                 {"type":"answer", …, "answer":{"query":1}}     {"type":"answer", …, "answer":{"events":[…]}}
//!                 {"type":"answer", …, "answer":{"error":{"class":"transient","message":"…","retry_after_ms":2000}}}
//! ```
//!
//! A worker asks for the events of a stream: neither side keeps what is not asked for, and an agent that is ahead of its handler waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure};
use ostler_exec::{
    AttemptGateway, Control, Gateway, GatewayAnswer, GatewayQuery, GatewaySession, QueryStream,
    SessionRequest, TaskError, Work,
};
use ostler_process::{AttemptExtension, CallFuture, FrameField, TaskFolder, WorkerExtension};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::handler_events::handler_event;

/// Bytes of the texts of events with which no more are put into the same answer. Each of them has at most a mebibyte, so that the answer
/// fits into a frame however they are escaped.
const MAX_BATCH_BYTES: usize = 1 << 20;

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
        Ok(Arc::new(GatewayCalls { gateway, open: Mutex::default() }))
    }
}

/// The calls of one attempt.
struct GatewayCalls {
    gateway: AttemptGateway,
    open: Mutex<OpenCalls>,
}

/// Sessions and streams by their numbers; as many as an attempt may have.
#[derive(Default)]
struct OpenCalls {
    sessions: HashMap<u32, Arc<GatewaySession>>,
    streams: HashMap<u32, Arc<tokio::sync::Mutex<QueryStream>>>,
    /// The number of the last stream.
    last: u32,
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
    /// Begins a query whose events are asked for.
    StreamQuery {
        session: u32,
        input: String,
        #[serde(default)]
        options: Map<String, Value>,
    },
    /// Waits for events of a stream, or for its answer.
    NextEvents {
        query: u32,
    },
    /// Gives a query up.
    DropQuery {
        query: u32,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum CallAnswer {
    Session { session: u32, id: String },
    Answer { output: Box<RawValue>, id: String },
    Stream { query: u32 },
    Events { events: Vec<Value> },
    Dropped {},
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
                let session = self.session(session)?;
                answered(session.run_query(GatewayQuery { input, options }).await?)
            }
            GatewayCall::StreamQuery { session, input, options } => {
                let session = self.session(session)?;
                let stream = session.stream(GatewayQuery { input, options }).await?;
                let mut open = self.lock();
                open.last += 1;
                let query = open.last;
                open.streams.insert(query, Arc::new(tokio::sync::Mutex::new(stream)));
                Ok(CallAnswer::Stream { query })
            }
            GatewayCall::NextEvents { query } => self.next_events(query).await,
            GatewayCall::DropQuery { query } => {
                let dropped = self.lock().streams.remove(&query);
                drop(dropped);
                Ok(CallAnswer::Dropped {})
            }
        }
    }

    fn session(&self, number: u32) -> Result<Arc<GatewaySession>, TaskError> {
        let found = self.lock().sessions.get(&number).cloned();
        found.ok_or_else(|| TaskError::permanent(format!("there is no session {number}")))
    }

    /// What a stream has by now, at least one event; or its answer. With that, or with an error, the stream is over.
    async fn next_events(&self, query: u32) -> Result<CallAnswer, TaskError> {
        let stream = self.lock().streams.get(&query).cloned();
        let stream = stream
            .ok_or_else(|| TaskError::permanent(format!("there is no query {query}, or it has ended")))?;
        let mut stream = stream.lock().await;
        let mut events = Vec::new();
        let mut bytes = 0;
        loop {
            let event = if events.is_empty() {
                match stream.next().await {
                    Ok(Some(event)) => event,
                    Ok(None) => {
                        self.lock().streams.remove(&query);
                        return answered(stream.answer().await?);
                    }
                    Err(error) => {
                        self.lock().streams.remove(&query);
                        return Err(error);
                    }
                }
            } else {
                match stream.try_next() {
                    Some(event) => event,
                    None => break,
                }
            };
            bytes += event.text().map_or(0, str::len);
            events.extend(handler_event(&event));
            if bytes >= MAX_BATCH_BYTES {
                break;
            }
        }
        Ok(CallAnswer::Events { events })
    }

    async fn opened(&self, session: GatewaySession) -> Result<CallAnswer, TaskError> {
        let (number, id) = (session.number(), session.id().await);
        self.lock().sessions.insert(number, Arc::new(session));
        Ok(CallAnswer::Session { session: number, id })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenCalls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answered(answer: GatewayAnswer) -> Result<CallAnswer, TaskError> {
    let output = RawValue::from_string(answer.output)
        .map_err(|error| TaskError::transient(format!("the answer is not JSON: {error}")))?;
    Ok(CallAnswer::Answer { output, id: answer.session })
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
