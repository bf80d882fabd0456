//! One request from its head to its answer: host, route, guard, body, audit, operation.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use hyper::{HeaderMap, Request, StatusCode};
use ostler_wire::audit::{Change, ChangeResult};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, RequestError};
use crate::call::{ApiCall, App};
use crate::guard::{AllowedCaller, ApiRefusal, Credential, RequestFacts};
use crate::headers::protect;
use crate::operations::{Answers, Audited, Operation, OperationEffect};
use crate::page;
use crate::router::{MatchedRoute, Router};

/// The maximum size of a body, unless it has the payload of a task.
const MAX_BODY_BYTES: usize = 64 << 20;
/// How long an operation may take, other than a stream.
const MAX_OPERATION_TIME: Duration = Duration::from_secs(120);
/// Bytes of a path with its query.
const MAX_TARGET_BYTES: usize = 16 * 1024;
/// The pause after a wrong token; it doubles with each one that follows within the time of memory.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_DOUBLINGS: u32 = 4;
const MEMORY: Duration = Duration::from_secs(60);

/// Answers requests.
pub(crate) struct Dispatcher {
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    pub(crate) wrong_tokens: Mutex<WrongTokens>,
}

/// Wrong tokens.
#[derive(Debug, Default)]
pub(crate) struct WrongTokens {
    /// Ever.
    count: u64,
    /// In a row, without a pause between them.
    in_a_row: u32,
    last: Option<Instant>,
}

impl WrongTokens {
    /// Counts one. Returns the count, and how long its sender waits.
    fn add(&mut self, now: Instant) -> (u64, Duration) {
        let fresh = self.last.is_some_and(|last| now.duration_since(last) < MEMORY);
        self.in_a_row = if fresh { self.in_a_row.saturating_add(1) } else { 0 };
        (self.count, self.last) = (self.count + 1, Some(now));
        (self.count, FIRST_PAUSE * (1 << self.in_a_row.min(MAX_DOUBLINGS)))
    }
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(crate) struct ClientConnection {
    /// `None`: a Unix socket.
    pub(crate) peer: Option<IpAddr>,
    /// Ends the connection.
    pub(crate) close: CancellationToken,
}

impl Dispatcher {
    pub(crate) async fn answer(&self, request: Request<Incoming>, connection: ClientConnection) -> Answer {
        let mut answer = match self.done(request, connection).await {
            Ok(answer) => answer,
            Err(error) => {
                if error.status.is_server_error() && error.status != StatusCode::SERVICE_UNAVAILABLE {
                    tracing::error!(target: "ostler::server", code = error.code, "{}", error.message);
                }
                error.answer()
            }
        };
        protect(answer.headers_mut());
        answer
    }

    async fn done(
        &self,
        request: Request<Incoming>,
        connection: ClientConnection,
    ) -> Result<Answer, RequestError> {
        let (head, body) = request.into_parts();
        let guard = &self.app.guard;
        let facts = facts(&head.headers);
        guard.check_host(&facts).map_err(ApiRefusal::error)?;
        if head.uri.path().len() + head.uri.query().map_or(0, str::len) > MAX_TARGET_BYTES {
            return Err(RequestError::new(
                StatusCode::URI_TOO_LONG,
                "too_long",
                "the path and query are too long",
            ));
        }
        let path = head.uri.path();
        let base = guard.policy.base_path.as_str();
        if !base.is_empty() && path == base {
            // Relative links of the first page need the slash.
            return page::to_folder(base);
        }
        let path = path.strip_prefix(base).filter(|rest| rest.starts_with('/')).unwrap_or(path);
        let MatchedRoute { operation, params } = self.router.find(&head.method, path)?;
        let credential = self.credential(&head.headers);
        let caller = match guard.admit(operation, &facts, &credential) {
            Ok(AllowedCaller::Anyone) => None,
            Ok(AllowedCaller::By(caller)) => Some(caller),
            Err(refusal) => {
                // A session that is over is no guess: pages ask for it until there is a new one.
                let is_token = head.headers.contains_key(AUTHORIZATION);
                if refusal == ApiRefusal::Unauthorized && credential == Credential::Wrong && is_token {
                    self.slow_down("token", connection.peer).await;
                }
                let wants_page = matches!(operation.answers, Answers::Page) && accepts_html(&head.headers);
                if refusal == ApiRefusal::Unauthorized && wants_page {
                    return Ok(page::login::in_place(path, head.uri.query()));
                }
                return Err(refusal.error());
            }
        };
        let body = tokio::time::timeout(self.app.limits.body_time, read(operation, &head.headers, body));
        let body = body.await.unwrap_or_else(|_| {
            let message = "the body did not arrive in time";
            Err(RequestError::new(StatusCode::REQUEST_TIMEOUT, "slow", message))
        })?;
        let call = ApiCall {
            app: Arc::clone(&self.app),
            params,
            query: head.uri.query().unwrap_or_default().to_owned(),
            peer: self.origin_of(&head.headers, connection.peer),
            headers: head.headers,
            body,
            caller,
            connection: connection.close,
        };
        let target = format!("{} {path}", head.method);
        let done = run_operation(operation, call, target).await;
        // The guard has let the caller in: what an operation itself finds wrong is the text of a login link.
        if done.as_ref().map_or_else(|error| error.status, Answer::status) == StatusCode::UNAUTHORIZED {
            self.slow_down("login link", connection.peer).await;
        }
        match operation.answers {
            Answers::Page => Ok(done.unwrap_or_else(|error| page::failed(path, &error))),
            Answers::Json(_)
            | Answers::Events(_)
            | Answers::Lines(_)
            | Answers::File
            | Answers::OpenMetrics
            | Answers::Nothing
            | Answers::PageFile => done,
        }
    }

    fn credential(&self, headers: &HeaderMap) -> Credential {
        let cookie = cookie(headers, &self.app.guard.policy.cookie);
        let session = cookie.map(|cookie| self.app.sessions.find(cookie, &self.app.tokens));
        let Some(value) = headers.get(AUTHORIZATION) else {
            return match session {
                None => Credential::None,
                Some(None) => Credential::Wrong,
                Some(Some(caller)) => Credential::Cookie(caller),
            };
        };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        match (token.and_then(|token| self.app.tokens.find(token)), session) {
            (None, _) => Credential::Wrong,
            (Some((caller, _)), Some(Some(_))) => Credential::Both(caller),
            (Some((caller, _)), _) => Credential::Bearer(caller),
        }
    }

    /// Counts and logs a wrong token or login link, without its text, and makes its sender wait.
    async fn slow_down(&self, what: &str, peer: Option<IpAddr>) {
        let (count, pause) =
            self.wrong_tokens.lock().expect("no panic while wrong tokens are held").add(Instant::now());
        let from = peer.map_or_else(|| "a Unix socket".to_owned(), |peer| peer.to_string());
        tracing::warn!(target: "ostler::server", count, "a wrong {what} from {from}");
        tokio::time::sleep(pause).await;
    }

    /// Where a request comes from: what a proxy says counts only if the proxy is trusted.
    fn origin_of(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<IpAddr> {
        let trusted = peer.is_some_and(|peer| {
            self.app.guard.policy.trusted_proxies.iter().any(|network| network.contains(&peer))
        });
        let forwarded =
            headers.get("x-forwarded-for").filter(|_| trusted).and_then(|value| value.to_str().ok());
        let last = forwarded.and_then(|all| all.rsplit(',').next()).and_then(|last| last.trim().parse().ok());
        last.or(peer)
    }
}

/// Runs an operation for a caller who was admitted, with its record in the audit.
pub(crate) async fn run_operation(
    operation: &Operation,
    call: ApiCall,
    target: String,
) -> Result<Answer, RequestError> {
    let app = Arc::clone(&call.app);
    let change = |action| Change {
        at: app.now(),
        who: call.caller.as_ref().map_or_else(|| "anyone".to_owned(), |caller| caller.name.clone()),
        from: call.peer.map(|peer| peer.to_string()),
        operation: operation.id,
        target,
        action,
    };
    let change = match operation.audited {
        Audited::No => None,
        Audited::Yes => Some(change(None)),
        Audited::Action(id) => id(&call)?.map(|id| change(Some(id))),
    };
    let unrecorded = |error| {
        let message = format!("the audit cannot be written, so nothing is changed: {error}");
        RequestError::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", message)
    };
    let number = match &change {
        Some(change) => Some(app.audit.begin(change.clone()).await.map_err(unrecorded)?),
        None => None,
    };
    let done = tokio::time::timeout(MAX_OPERATION_TIME, (operation.run)(call)).await.unwrap_or_else(|_| {
        let message = "it took too long; it may still be done";
        Err(RequestError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message))
    });
    if let (Some(number), Some(change)) = (number, change) {
        let result = match &done {
            Ok(answer) => {
                let tasks = answer.extensions().get::<TaskCount>().map(|count| count.0);
                ChangeResult { status: answer.status().as_u16(), tasks }
            }
            Err(error) => ChangeResult { status: error.status.as_u16(), tasks: None },
        };
        let change = Change { at: app.now(), ..change };
        if let Err(error) = app.audit.end(number, change, result).await {
            // The change is made, and that it was begun is recorded.
            tracing::error!(target: "ostler::server", "the result of change {number} was not recorded: {error}");
        }
    }
    done
}

/// How many tasks an operation was about, for the audit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskCount(pub(crate) u64);

fn facts(headers: &HeaderMap) -> RequestFacts<'_> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    RequestFacts {
        host: text(HOST.as_str()),
        origin: text(ORIGIN.as_str()),
        fetch_site: text("sec-fetch-site"),
        fetch_mode: text("sec-fetch-mode"),
        fetch_dest: text("sec-fetch-dest"),
    }
}

/// Whether a browser asks for a page.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// The value of a cookie.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|all| all.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

async fn read(operation: &Operation, headers: &HeaderMap, body: Incoming) -> Result<Bytes, RequestError> {
    let too_large = || {
        let message = format!("a body has at most {MAX_BODY_BYTES} bytes");
        RequestError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let takes_form =
        matches!(operation.answers, Answers::Page) && operation.effect == OperationEffect::Change;
    if operation.body.is_none() && !takes_form {
        // What is not read ends the connection; small bodies are no fault.
        let limited = Limited::new(body, 64 * 1024).collect().await;
        return limited.map(|_| Bytes::new()).map_err(|_| too_large());
    }
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    // Only what pages post is a form: a form of another site could be sent without asking it.
    if takes_form && !media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let message = "the body must be a form";
        return Err(RequestError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_a_form", message));
    }
    if !takes_form && !media.eq_ignore_ascii_case("application/json") {
        let message = "the body must be JSON: Content-Type: application/json";
        return Err(RequestError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    if body.size_hint().exact().is_some_and(|bytes| bytes > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(RequestError::invalid(format!("the body cannot be read: {error}"))),
    }
}
