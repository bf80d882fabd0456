//! One request as an operation sees it: parameters of the path, query, body, and who asks; with the parts of the node that answer it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use ostler_core::{Id, TaskId, Timestamp};
use ostler_ops::idempotency::IdempotencyKey;
use ostler_ops::task_name::{NamedTask, TaskName};
use ostler_store::calls::Retention;
use ostler_store::{Bounds, Clock, Store};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::answer::RequestError;
use crate::audit::Audit;
use crate::bulk::BulkActions;
use crate::guard::{Caller, Guard};
use crate::metrics::Metrics;
use crate::overview_feed::OverviewFeed;
use crate::page::PageState;
use crate::server::{Examiner, ProcessLister, ReadinessProbe, ServerLimits};
use crate::sessions::BrowserSessions;
use crate::task_events::TaskStreams;
use crate::tokens::Tokens;

/// The queue in which a unique key is looked up if none is given.
pub(crate) const DEFAULT_QUEUE: &str = "default";

/// What all requests share.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Fn() -> Id + Send + Sync>,
    pub(crate) bounds: Bounds,
    pub(crate) limits: ServerLimits,
    pub(crate) keep: Retention,
    pub(crate) strays: Duration,
    pub(crate) guard: Guard,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: BrowserSessions,
    pub(crate) audit: Audit,
    pub(crate) streams: Arc<TaskStreams>,
    pub(crate) overview: Arc<OverviewFeed>,
    pub(crate) bulk: Arc<BulkActions>,
    pub(crate) metrics: Metrics,
    pub(crate) page: PageState,
    pub(crate) examiner: Arc<dyn Examiner>,
    pub(crate) readiness: Arc<dyn ReadinessProbe>,
    pub(crate) processes: Arc<dyn ProcessLister>,
    /// The node's session, for other nodes that ask who has this address.
    pub(crate) node: String,
    /// Places for open streams.
    pub(crate) stream_places: Arc<Semaphore>,
    /// One submission under an idempotency key at a time: two bodies under one key are not compared in between.
    pub(crate) keyed: tokio::sync::Mutex<()>,
    pub(crate) stopping: CancellationToken,
}

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }
}

/// One request.
pub(crate) struct ApiCall {
    pub(crate) app: Arc<App>,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// `None`: anyone may ask.
    pub(crate) caller: Option<Caller>,
    /// Where the request comes from; `None`: a Unix socket.
    pub(crate) peer: Option<IpAddr>,
    /// Ends the connection of the request.
    pub(crate) connection: CancellationToken,
}

impl ApiCall {
    pub(crate) fn store(&self) -> &dyn Store {
        self.app.store()
    }

    /// A parameter of the path.
    pub(crate) fn param(&self, name: &str) -> &str {
        let found = self.params.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The query, as the type describes it.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, RequestError> {
        let pairs = form_urlencoded::parse(self.query.as_bytes());
        serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs)).map_err(|error| {
            let path = error.path().to_string();
            let wrong = format!("query: {}", error.inner());
            if path == "." {
                RequestError::invalid(wrong)
            } else {
                RequestError::field(&path, format!("{path}: {wrong}"))
            }
        })
    }

    /// The body, as the type describes it.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, RequestError> {
        let text = self.text()?;
        let text = if text.trim().is_empty() { "{}" } else { text };
        read_json(text)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, RequestError> {
        std::str::from_utf8(&self.body).map_err(|_| RequestError::invalid("the body must be UTF-8 text"))
    }

    /// The task that the path names; a key is looked up in the queue of the query.
    pub(crate) fn task(&self) -> Result<NamedTask, RequestError> {
        let queue = self.one_of_query("queue").unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
        named_task(self.param("id"), &queue)
    }

    /// A parameter of the query.
    pub(crate) fn one_of_query(&self, name: &str) -> Option<String> {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(&self.query).unwrap_or_default();
        pairs.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The idempotency key, if there is one.
    pub(crate) fn idempotency_key(&self) -> Result<Option<IdempotencyKey>, RequestError> {
        let Some(value) = self.headers.get("idempotency-key") else { return Ok(None) };
        let text = value.to_str().unwrap_or_default();
        IdempotencyKey::parse(text)
            .map(Some)
            .map_err(|sentence| RequestError::field("Idempotency-Key", sentence))
    }

    pub(crate) fn new_task_id(&self) -> TaskId {
        TaskId((self.app.ids)())
    }
}

pub(crate) fn named_task(text: &str, queue: &str) -> Result<NamedTask, RequestError> {
    let name: TaskName = text.parse().map_err(|sentence: String| RequestError::field("id", sentence))?;
    Ok(name.in_queue(queue))
}

/// Reads JSON, with the path to what is wrong.
pub(crate) fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, RequestError> {
    // Derived readers of an object also take a list of its fields.
    if !text.trim_start().starts_with('{') {
        return Err(RequestError::invalid("the body must be a JSON object"));
    }
    // The plain reader keeps the text of raw values; the second one, which is asked only about errors, knows the path.
    serde_json::from_str(text).map_err(|error| {
        let mut reader = serde_json::Deserializer::from_str(text);
        let path = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(found) => found.path().to_string(),
            Ok(_) => ".".to_owned(),
        };
        if path == "." || path.contains('?') {
            RequestError::invalid(format!("body: {error}"))
        } else {
            RequestError::field(&path, format!("{path}: {error}"))
        }
    })
}
