//! The external gateway: sessions and queries of a server, over HTTP. Its answer to a query is a stream of JSON lines.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{ErrorClass, EventBody, Failure, Timestamp, cut};
use ostler_exec::{
    Control, Gateway, NewSession, QueryEnd, Sent, SessionOrigin, SessionQuery, TaskError, Work,
};
use ostler_http::{
    AddressRules, HeaderName, HeaderValue, HttpAnswer, HttpClient, HttpError, HttpFault, HttpLimits,
    HttpRequest, Proxies, StatusCode, Uri, header,
};
use serde::Serialize;

use super::wire::{CreatedSession, QueryBody, SessionBody, WireLine, check_session, read_line, read_refusal};
use crate::executor::IDLE_WATCHDOG;
use crate::lines::{Line, LineSplitter, MAX_LINE_BYTES};

/// Bytes of the answer to one query.
pub const MAX_STREAM_BYTES: usize = 256 << 20;
/// Bytes of any other answer.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Bytes of a refusal in a message.
const SHOWN_BYTES: usize = 500;
/// How long a session may take to be created.
const MAX_CREATION: Duration = Duration::from_secs(60);
/// How long the head of the answer to a query may take. The agent works after it.
const MAX_HEAD: Duration = Duration::from_secs(60);
/// How long the doctor waits for a gateway.
const MAX_EXAMINATION: Duration = Duration::from_secs(5);
/// By this header a gateway recognizes a request that it has already.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The base address of a gateway. It may contain a secret: only the host is ever shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAddress {
    uri: Uri,
    /// Without a slash at its end.
    base: String,
}

impl FromStr for GatewayAddress {
    type Err = String;

    /// The error is a sentence that does not repeat the address.
    fn from_str(text: &str) -> Result<Self, String> {
        let right = "expected an address such as http://127.0.0.1:8900";
        let uri: Uri = text.parse().map_err(|error| format!("cannot be read ({error}), {right}"))?;
        let host = uri.host().is_some_and(|host| !host.is_empty());
        match uri.scheme_str() {
            Some("http" | "https") if host && uri.query().is_none() => {
                Ok(Self { uri, base: text.trim_end_matches('/').to_owned() })
            }
            Some("http" | "https") if host => Err(format!("has a query, {right}")),
            Some("http" | "https") => Err(format!("has no host, {right}")),
            Some(other) => Err(format!("begins with \"{other}:\", {right}")),
            None => Err(format!("does not begin with http:// or https://, {right}")),
        }
    }
}

impl fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        write!(
            f,
            "{}://{}{port}",
            self.uri.scheme_str().unwrap_or("http"),
            self.uri.host().unwrap_or_default()
        )
    }
}

impl GatewayAddress {
    /// Whether a token would be readable on its way: not encrypted, and not to this machine.
    pub(super) fn is_readable(&self) -> bool {
        let host = self.uri.host().unwrap_or_default();
        self.uri.scheme_str() == Some("http") && !matches!(host, "127.0.0.1" | "localhost" | "[::1]")
    }

    fn at(&self, path: &str) -> Result<Uri, Failure> {
        format!("{}{path}", self.base)
            .parse()
            .map_err(|error| Failure::new(ErrorClass::Permanent, format!("the gateway's address: {error}")))
    }
}

/// How an external gateway is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPolicy {
    pub address: GatewayAddress,
    /// The secret of the pool that is sent as a bearer token, by its name.
    pub token: Option<String>,
    /// How long the stream of an answer may be silent.
    pub idle_watchdog: Duration,
}

impl GatewayPolicy {
    /// The defaults, for a gateway at this address.
    #[must_use]
    pub const fn new(address: GatewayAddress) -> Self {
        Self { address, token: None, idle_watchdog: IDLE_WATCHDOG }
    }
}

/// Whether something answers at the address, whatever it says.
pub(super) async fn reach(address: &GatewayAddress) -> Result<(), String> {
    let client = HttpClient::new(AddressRules::Any, Proxies::Environment);
    let request = HttpRequest::get(address.uri.clone()).with_limits(HttpLimits::within(MAX_EXAMINATION));
    client.send(request).await.map(drop).map_err(|error| error.to_string())
}

/// A gateway elsewhere.
pub struct ExternalGateway {
    client: HttpClient,
    policy: GatewayPolicy,
    bearer: Option<HeaderValue>,
    now: fn() -> Timestamp,
}

impl fmt::Debug for ExternalGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalGateway")
            .field("address", &self.policy.address.to_string())
            .finish_non_exhaustive()
    }
}

impl ExternalGateway {
    /// A gateway that is asked by this policy. `token` is sent as a bearer token; `now` is the wall clock, for dates in
    /// `Retry-After`.
    ///
    /// # Errors
    /// When the token cannot stand in a header.
    pub fn new(policy: GatewayPolicy, token: Option<&str>, now: fn() -> Timestamp) -> Result<Self, String> {
        let bearer = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let mut bearer = bearer.map_err(|_| "the token has characters that no header may have".to_owned())?;
        bearer.iter_mut().for_each(|value| value.set_sensitive(true));
        // The address is the operator's own, and often of this machine.
        let client = HttpClient::new(AddressRules::Any, Proxies::Environment);
        Ok(Self { client, policy, bearer, now })
    }

    /// Posts JSON, and returns an answer that is a success.
    async fn post(
        &self,
        path: &str,
        body: &impl Serialize,
        limits: HttpLimits,
        key: &str,
    ) -> Result<HttpAnswer, Refused> {
        let body = serde_json::to_vec(body).map_err(|error| {
            Failure::new(ErrorClass::Permanent, format!("the query is not JSON: {error}"))
        })?;
        let json = HeaderValue::from_static("application/json");
        let mut request = HttpRequest::post(self.policy.address.at(path)?, body)
            .with_header(header::CONTENT_TYPE, json)
            .with_header(header::ACCEPT, HeaderValue::from_static("application/x-ndjson, application/json"))
            .with_limits(limits);
        if let Some(bearer) = &self.bearer {
            request = request.with_header(header::AUTHORIZATION, bearer.clone());
        }
        if let Ok(key) = HeaderValue::from_str(key) {
            request = request.with_header(IDEMPOTENCY_KEY, key);
        }
        let answer = self.client.send(request).await.map_err(|error| self.unreachable(&error))?;
        if answer.status.is_success() { Ok(answer) } else { Err(self.refused(answer).await) }
    }

    async fn refused(&self, mut answer: HttpAnswer) -> Refused {
        let status = answer.status;
        let retry_after = answer.retry_after().map(str::to_owned);
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() >= MAX_BODY_BYTES {
                break;
            }
        }
        let (said, words) = read_refusal(&body);
        if status.is_redirection() {
            let message = format!("the gateway answered {status}; redirects are not followed");
            return Refused::Failed(Failure::new(ErrorClass::Permanent, message));
        }
        let words = words.map(|words| format!(": {}", cut(&words, SHOWN_BYTES))).unwrap_or_default();
        let message = format!("the gateway answered {status}{words}");
        let by_status =
            TaskError::from_status(status.as_u16(), message, retry_after.as_deref(), (self.now)())
                .into_failure();
        let failure = match said {
            Some(said) => Failure {
                retry_after: said.retry_after.or(by_status.retry_after),
                message: by_status.message,
                ..said
            },
            None => by_status,
        };
        if status == StatusCode::NOT_FOUND || status == StatusCode::GONE {
            return Refused::NotFound(failure);
        }
        Refused::Failed(failure)
    }

    /// Without an answer, a later attempt may get one: the host, its network or its certificate may be mended.
    fn unreachable(&self, error: &HttpError) -> Failure {
        let class = match error.fault() {
            HttpFault::Address | HttpFault::RequestTooLarge => ErrorClass::Permanent,
            HttpFault::TimedOut => ErrorClass::Timeout,
            HttpFault::AnswerTooLarge | HttpFault::Connection => ErrorClass::Transient,
        };
        let message = format!("the gateway {} cannot be used: {error}", self.policy.address);
        Failure { hint: Some("look whether it runs".to_owned()), ..Failure::new(class, message) }
    }

    /// Reads the stream to its last line. What is in it is stored as it arrives.
    async fn follow(&self, mut answer: HttpAnswer, control: &Control) -> Result<String, QueryEnd> {
        let mut splitter = LineSplitter::default();
        loop {
            let chunk = answer.chunk().await.map_err(|error| self.broken(&error))?;
            let lines = match &chunk {
                Some(chunk) => splitter.push(chunk),
                None => splitter.end().into_iter().collect(),
            };
            for line in lines {
                let line = match line {
                    Line::Whole(line) => line,
                    Line::Cut { size, .. } => {
                        let message =
                            format!("the gateway sent a line of {size} bytes; the limit is {MAX_LINE_BYTES}");
                        return Err(Failure::new(ErrorClass::Permanent, message).into());
                    }
                };
                let wrong = |why| Failure::new(ErrorClass::Transient, format!("the gateway: {why}"));
                match read_line(&line).map_err(wrong)? {
                    WireLine::Nothing => {}
                    WireLine::Event(event) => record(control, event).await?,
                    WireLine::Result(output) => return Ok(output),
                    WireLine::Error(failure) => return Err(failure.into()),
                }
            }
            if chunk.is_none() {
                let message = "the gateway's answer broke off: it has neither a result nor an error";
                return Err(Failure::new(ErrorClass::Transient, message).into());
            }
        }
    }

    fn broken(&self, error: &HttpError) -> Failure {
        let class = match error.fault() {
            HttpFault::TimedOut => ErrorClass::Stuck,
            HttpFault::AnswerTooLarge => ErrorClass::Permanent,
            HttpFault::Address | HttpFault::RequestTooLarge | HttpFault::Connection => ErrorClass::Transient,
        };
        Failure::new(class, format!("the gateway's answer broke off: {error}"))
    }
}

/// Why an answer is no success.
enum Refused {
    Failed(Failure),
    /// What was asked for is not there.
    NotFound(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Refused {
    fn failure(self) -> Failure {
        match self {
            Self::Failed(failure) | Self::NotFound(failure) => failure,
        }
    }
}

#[async_trait]
impl Gateway for ExternalGateway {
    fn name(&self) -> String {
        self.policy.address.to_string()
    }

    async fn create_session(&self, asked: NewSession<'_>) -> Result<String, QueryEnd> {
        let body = SessionBody { user_id: asked.user_id, workspace: asked.workspace };
        let limits = HttpLimits {
            answer_bytes: MAX_BODY_BYTES,
            ..HttpLimits::within(MAX_CREATION.min(asked.work.timeout))
        };
        let key = format!("{}-session-{}", attempt_of(asked.work), asked.number);
        let answer = self.post("/sessions", &body, limits, &key).await.map_err(Refused::failure)?;
        let body = answer.bytes().await.map_err(|error| self.broken(&error))?;
        let odd = |why: String| Failure::new(ErrorClass::Transient, format!("the gateway: {why}"));
        let created: CreatedSession = serde_json::from_slice(&body)
            .map_err(|error| odd(format!("its answer has no session_id: {error}")))?;
        check_session(&created.session_id).map_err(odd)?;
        Ok(created.session_id)
    }

    async fn run_query(&self, asked: SessionQuery<'_>) -> Result<String, QueryEnd> {
        check_session(asked.session)
            .map_err(|why| Failure::new(ErrorClass::Permanent, format!("the gateway: {why}")))?;
        let (session, query) = asked.number;
        let prompt = EventBody::Prompt { text: asked.query.input.clone() };
        record(asked.control, prompt).await?;
        let query_id = format!("{}-{session}.{query}", attempt_of(asked.work));
        let body = QueryBody {
            query_id: query_id.clone(),
            query_key: format!("{}-{session}.{query}", asked.work.task),
            attempt: asked.work.attempt,
            resumed: asked.origin == SessionOrigin::Earlier,
            input: &asked.query.input,
            workspace: asked.workspace,
            timeout_ms: u64::try_from(asked.work.timeout.as_millis()).unwrap_or(u64::MAX),
            options: &asked.query.options,
        };
        let limits = HttpLimits {
            answer: MAX_HEAD,
            answer_bytes: MAX_STREAM_BYTES,
            ..HttpLimits::streaming(self.policy.idle_watchdog)
        };
        let asking = async {
            let path = format!("/sessions/{}/queries", asked.session);
            match self.post(&path, &body, limits, &query_id).await {
                Ok(answer) => self.follow(answer, asked.control).await,
                Err(Refused::NotFound(_)) => Err(QueryEnd::UnknownSession),
                Err(Refused::Failed(failure)) => Err(failure.into()),
            }
        };
        // Dropping the answer closes the connection: by that a gateway knows that the query was given up.
        tokio::select! {
            biased;
            () = asked.control.cancel.cancelled() => Err(QueryEnd::Cancelled),
            answered = asking => answered,
            () = tokio::time::sleep(asked.work.timeout) => {
                let message = "the gateway did not answer before the attempt's time was up";
                Err(Failure::new(ErrorClass::Timeout, message).into())
            }
        }
    }
}

/// Names an attempt: a claim has a token of its own.
fn attempt_of(work: &Work) -> String {
    format!("{}-{}", work.task, work.token)
}

/// Stores an event. A session is durable before anything else is read.
async fn record(control: &Control, event: EventBody) -> Result<(), QueryEnd> {
    let sent = if matches!(event, EventBody::Session { .. }) {
        control.events.store(event).await
    } else {
        control.events.send(event).await
    };
    match sent {
        Sent::Yes => Ok(()),
        Sent::Closed => Err(QueryEnd::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_path_and_login() {
        let address: GatewayAddress =
            "https://anna:hunter2@gateway.example:8443/v1/".parse().expect("it is right");
        assert_eq!(address.to_string(), "https://gateway.example:8443");
        assert_eq!(address.at("/sessions").expect("a path").path(), "/v1/sessions");
        for (text, words) in [
            ("gateway", "does not begin with http://"),
            ("ftp://gateway", "begins with \"ftp:\""),
            ("http://", "cannot be read"),
            ("http://gateway/?key=1", "has a query"),
        ] {
            let error = text.parse::<GatewayAddress>().expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_token_is_readable_only_on_a_plain_way_to_another_machine() {
        let readable = |text: &str| text.parse::<GatewayAddress>().expect(text).is_readable();
        assert!(readable("http://gateway.example"));
        assert!(
            !readable("https://gateway.example")
                && !readable("http://127.0.0.1:1")
                && !readable("http://[::1]:1")
        );
    }
}
