//! One request to a node: what is sent, what is sent again, and how long anything may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_http::header::{AUTHORIZATION, CONTENT_TYPE};
use ostler_http::{
    AddressRules, HeaderName, HeaderValue, HttpAnswer, HttpClient, HttpError, HttpLimits, HttpRequest,
    Method, Proxies,
};
use ostler_runtime::Ids;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::RemoteClient;
use super::address::NodeAddress;
use super::error::RemoteError;

/// How often one request is sent at most, and the pauses between: a restart of a node fits into them.
pub(super) const MAX_SENDS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a node may be silent; waits for tasks come on top.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// A node sends something at least every 15 seconds, so a stream that is silent for longer is a broken one.
const STREAM_SILENCE: Duration = Duration::from_secs(45);
/// Bytes of one answer.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiMethod {
    /// A look.
    Get,
    /// A change.
    Post,
    /// A change that replaces.
    Put,
    /// A removal.
    Delete,
}

/// A request of the API: for operations that have no call here.
///
/// ```no_run
/// # use ostler::{ApiMethod, ApiRequest};
/// # async fn example(client: ostler::RemoteClient) -> Result<(), ostler::RemoteError> {
/// let schedules: serde_json::Value = client.request(ApiRequest::new(ApiMethod::Get, &["schedules"])).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ApiRequest {
    method: ApiMethod,
    path: String,
    query: String,
    body: Option<String>,
    key: Option<String>,
    repeats: Repeats,
    wait: Duration,
}

/// Whether a request whose answer was lost is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    /// It makes nothing twice.
    Safe,
    Never,
}

impl ApiRequest {
    /// A request for the path of these parts under `/api/v1`.
    #[must_use]
    pub fn new(method: ApiMethod, parts: &[&str]) -> Self {
        let path: String = parts.iter().map(|part| format!("/{}", escaped(part))).collect();
        Self::at(method, &format!("/api/v1{path}"))
    }

    /// A request for a whole path, such as `/api/v1/session`.
    #[must_use]
    pub fn at(method: ApiMethod, path: &str) -> Self {
        let repeats = match method {
            ApiMethod::Get => Repeats::Safe,
            ApiMethod::Post | ApiMethod::Put | ApiMethod::Delete => Repeats::Never,
        };
        let (path, query) = (path.to_owned(), String::new());
        Self { method, path, query, body: None, key: None, repeats, wait: Duration::ZERO }
    }

    /// The same with a value of the query, if there is one.
    #[must_use]
    pub fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let mark = if self.query.is_empty() { '?' } else { '&' };
            self.query.push_str(&format!("{mark}{name}={}", escaped(&value.to_string())));
        }
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: &impl Serialize) -> Self {
        self.body = Some(serde_json::to_string(body).expect("a body is JSON"));
        self
    }

    /// The same with an idempotency key: it may be sent again, and is done once.
    #[must_use]
    pub fn keyed(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self.repeatable()
    }

    /// The same, which makes nothing twice for another reason.
    pub(super) fn repeatable(mut self) -> Self {
        self.repeats = Repeats::Safe;
        self
    }

    /// The node may take this long before it answers.
    pub(super) fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// Escapes a part of a path or query.
fn escaped(text: &str) -> String {
    let mut whole = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            whole.push(char::from(byte));
        } else {
            whole.push_str(&format!("%{byte:02X}"));
        }
    }
    whole
}

/// What all clones of a client share.
pub(crate) struct Exchange {
    to: NodeAddress,
    token: Option<HeaderValue>,
    http: HttpClient,
    ids: Ids,
    /// Whether anything has ever answered there.
    answered: AtomicBool,
}

impl Exchange {
    pub(super) fn new(to: NodeAddress, token: Option<&str>, ids: Ids) -> Result<Self, RemoteError> {
        let token = token.map(bearer).transpose()?;
        let http = HttpClient::new(AddressRules::Any, Proxies::None);
        Ok(Self { to, token, http, ids, answered: AtomicBool::new(false) })
    }

    pub(super) fn with_token(&self, token: &str) -> Result<Self, RemoteError> {
        let (to, http, ids) = (self.to.clone(), self.http.clone(), Arc::clone(&self.ids));
        Ok(Self { to, token: Some(bearer(token)?), http, ids, answered: AtomicBool::new(false) })
    }

    pub(super) fn shown(&self) -> String {
        self.to.shown()
    }

    /// A key for a request that may be sent again.
    pub(super) fn new_key(&self) -> String {
        (self.ids)().to_string()
    }

    /// Sends a request, and repeats it if that is safe and may help.
    pub(super) async fn send(
        &self,
        request: &ApiRequest,
        limits: HttpLimits,
    ) -> Result<HttpAnswer, RemoteError> {
        let mut sends = 1;
        loop {
            let last = sends == MAX_SENDS || request.repeats == Repeats::Never;
            match self.send_once(request, limits).await? {
                Ok(answer) => {
                    self.answered.store(true, Ordering::Relaxed);
                    let status = answer.status.as_u16();
                    if status < 300 {
                        return Ok(answer);
                    }
                    let error = RemoteError::of_answer(status, &answer.bytes().await.unwrap_or_default());
                    // A full queue is for the caller to know: to wait here would hide that it submits too fast.
                    let may_help = matches!(status, 429 | 502..=504) && error.code != "queue_full";
                    if last || !may_help {
                        return Err(error);
                    }
                }
                Err(lost) => {
                    // If nothing has ever answered there, no node is up, and waiting does not change that.
                    let no_node = is_refused(&lost) && !self.answered.load(Ordering::Relaxed);
                    if last || no_node {
                        return Err(RemoteError::unreachable(&self.shown(), &lost.to_string()));
                    }
                }
            }
            tokio::time::sleep(pause(sends)).await;
            sends += 1;
        }
    }

    /// Sends a request once. The outer error is that of a request which cannot be sent.
    async fn send_once(
        &self,
        asked: &ApiRequest,
        limits: HttpLimits,
    ) -> Result<Result<HttpAnswer, HttpError>, RemoteError> {
        let uri = self.to.uri(&format!("{}{}", asked.path, asked.query))?;
        let mut request = HttpRequest::get(uri).with_limits(limits);
        request.method = match asked.method {
            ApiMethod::Get => Method::GET,
            ApiMethod::Post => Method::POST,
            ApiMethod::Put => Method::PUT,
            ApiMethod::Delete => Method::DELETE,
        };
        let takes_body = matches!(asked.method, ApiMethod::Post | ApiMethod::Put);
        if let Some(body) = asked.body.clone().or_else(|| takes_body.then(|| "{}".to_owned())) {
            request.body = body.into();
            request = request.with_header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(token) = &self.token {
            request = request.with_header(AUTHORIZATION, token.clone());
        }
        if let Some(key) = &asked.key {
            let value = HeaderValue::from_str(key).map_err(|_| {
                RemoteError::invalid("Idempotency-Key", "expected letters, digits and dashes")
            })?;
            request = request.with_header(HeaderName::from_static("idempotency-key"), value);
        }
        Ok(match &self.to {
            NodeAddress::Web(_) => self.http.send(request).await,
            NodeAddress::Socket(path) => match tokio::net::UnixStream::connect(path).await {
                Ok(socket) => self.http.send_over(request, socket).await,
                Err(why) => Err(HttpError::Unreachable { host: self.shown(), why }),
            },
        })
    }
}

fn bearer(token: &str) -> Result<HeaderValue, RemoteError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| RemoteError::invalid("token", "it has characters that no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_refused(error: &HttpError) -> bool {
    matches!(error, HttpError::Unreachable { .. } | HttpError::Unresolved { .. })
}

/// Doubles, up to a bound.
pub(super) fn pause(sends: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(sends - 1)).min(MAX_PAUSE)
}

impl RemoteClient {
    /// Does any operation of the API, and reads its answer.
    ///
    /// # Errors
    /// When the node refuses it, or does not answer.
    pub async fn request<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T, RemoteError> {
        let silence = MAX_SILENCE + request.wait;
        let limits = HttpLimits {
            answer: silence,
            idle: silence,
            total: None,
            answer_bytes: MAX_ANSWER_BYTES,
            ..HttpLimits::default()
        };
        let mut sends = 1;
        loop {
            let answer = self.shared.send(&request, limits).await?;
            let body = match answer.bytes().await {
                Ok(body) => body,
                // The head came, and the connection broke after it.
                Err(_) if sends < MAX_SENDS && request.repeats == Repeats::Safe => {
                    tokio::time::sleep(pause(sends)).await;
                    sends += 1;
                    continue;
                }
                Err(lost) => return Err(RemoteError::unreachable(&self.shared.shown(), &lost.to_string())),
            };
            let text = if body.is_empty() { b"null".as_slice() } else { &body };
            return serde_json::from_slice(text).map_err(|error| RemoteError::unreadable(&error));
        }
    }

    /// Opens a stream of the API.
    pub(super) async fn open(&self, request: &ApiRequest) -> Result<HttpAnswer, RemoteError> {
        let limits = HttpLimits { answer_bytes: usize::MAX, ..HttpLimits::streaming(STREAM_SILENCE) };
        self.shared.send(request, limits).await
    }
}
