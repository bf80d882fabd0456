//! Operations on the node, the system as a whole, nodes, workers and pools; and logging in.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, SET_COOKIE};
use ostler_ops::cost::{CostDimension, CostRequest, report};
use ostler_ops::nodes::{self, ResizeRequest};
use ostler_ops::overview::{self, Overview};
use ostler_ops::recycle::{WorkersToRecycle, recycle as recycle_workers};
use ostler_ops::{pool_stats as stats_of, prune as pruning};
use ostler_store::MAX_WORKERS;
use ostler_wire::value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tasks::page_size;
use crate::answer::{Answer, RequestError, json_answer, ok, plain};
use crate::call::ApiCall;
use crate::dispatch::{TaskCount, cookie};
use crate::guard::{Caller, CookieTransport};
use crate::openapi::document;
use crate::sessions::SESSION_TTL;
use crate::tokens::Access;

/// How long a store may take to answer.
const MAX_STORE_TIME: Duration = Duration::from_secs(2);

/// The process answers.
#[derive(Serialize, JsonSchema)]
pub(super) struct HealthAnswer {
    /// Always `ok`.
    status: &'static str,
    /// Always `ostler`.
    service: &'static str,
    /// The session of the node.
    node: String,
}

pub(super) async fn health(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&HealthAnswer { status: "ok", service: "ostler", node: call.app.node.clone() })
}

/// Whether the node takes work.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReadyAnswer {
    ready: bool,
}

pub(super) async fn ready(call: ApiCall) -> Result<Answer, RequestError> {
    let not_ready = |why: String| RequestError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why);
    if let Some(why) = call.app.readiness.trouble() {
        return Err(not_ready(why));
    }
    match tokio::time::timeout(MAX_STORE_TIME, call.store().now()).await {
        Ok(Ok(_)) => ok(&ReadyAnswer { ready: true }),
        // The sentence of a store may name its address, which is not for everyone.
        Ok(Err(_)) => Err(not_ready("the store cannot be reached".to_owned())),
        Err(_) => Err(not_ready("the store does not answer in time".to_owned())),
    }
}

pub(super) async fn metrics(call: ApiCall) -> Result<Answer, RequestError> {
    let (media, text) = call.app.metrics.scrape(call.header("accept")).await.map_err(|_| {
        RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the metrics cannot be written")
    })?;
    Ok(plain(StatusCode::OK, media, text))
}

/// The text of a login link.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginInput {
    token: String,
}

/// Who asks.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionAnswer {
    /// The name of the token.
    name: String,
    /// `read` or `full`.
    access: &'static str,
}

pub(super) async fn log_in(call: ApiCall) -> Result<Answer, RequestError> {
    let LoginInput { token } = call.body()?;
    let Some((value, caller)) = call.app.sessions.log_in(&token, &call.app.tokens) else {
        let message = "this login link was used, or is too old; make another one";
        return Err(RequestError::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
    };
    let mut answer = ok(&SessionAnswer { name: caller.name, access: caller.access.name() })?;
    set_cookie(&call, &mut answer, &value, SESSION_TTL);
    Ok(answer)
}

pub(super) async fn log_out(call: ApiCall) -> Result<Answer, RequestError> {
    if let Some(value) = cookie(&call.headers, &call.app.guard.policy.cookie) {
        call.app.sessions.log_out(value);
    }
    let mut answer = plain(StatusCode::NO_CONTENT, "application/json", "");
    set_cookie(&call, &mut answer, "", Duration::ZERO);
    Ok(answer)
}

fn set_cookie(call: &ApiCall, answer: &mut Answer, value: &str, ttl: Duration) {
    let policy = &call.app.guard.policy;
    let path = if policy.base_path.is_empty() { "/" } else { &policy.base_path };
    let secure = match policy.cookie_transport {
        CookieTransport::TlsOnly => "; Secure",
        CookieTransport::Any => "",
    };
    let text = format!(
        "{}={value}; HttpOnly; SameSite=Lax; Path={path}; Max-Age={}{secure}",
        policy.cookie,
        ttl.as_secs()
    );
    if let Ok(text) = HeaderValue::from_str(&text) {
        answer.headers_mut().insert(SET_COOKIE, text);
    }
}

/// Opens a session for a browser with the text of a link, or with a token. Returns the header with its cookie.
pub(crate) fn open_session(call: &ApiCall, text: &str) -> Option<hyper::HeaderMap> {
    let (sessions, tokens) = (&call.app.sessions, &call.app.tokens);
    let by_link = sessions.log_in(text, tokens);
    let (value, _) = by_link.or_else(|| sessions.log_in_by_token(text, tokens))?;
    let mut answer = plain(StatusCode::OK, "text/html", "");
    set_cookie(call, &mut answer, &value, SESSION_TTL);
    Some(cookie_alone(&answer))
}

/// Ends the session of the cookie. Returns the header that removes it.
pub(crate) fn close_session(call: &ApiCall) -> hyper::HeaderMap {
    if let Some(value) = cookie(&call.headers, &call.app.guard.policy.cookie) {
        call.app.sessions.log_out(value);
    }
    let mut answer = plain(StatusCode::OK, "text/html", "");
    set_cookie(call, &mut answer, "", Duration::ZERO);
    cookie_alone(&answer)
}

fn cookie_alone(answer: &Answer) -> hyper::HeaderMap {
    let set = answer.headers().get(SET_COOKIE).cloned();
    set.map(|value| (SET_COOKIE, value)).into_iter().collect()
}

/// What the session of a login link may do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LinkInput {
    /// `read`: only look. Without it, what the token may do.
    access: Option<LinkAccess>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LinkAccess {
    Read,
}

/// A login link.
#[derive(Serialize, JsonSchema)]
pub(super) struct LoginLink {
    /// The text after the `#` of the address of the login page.
    token: String,
    /// The path with the text.
    path: String,
}

pub(super) async fn login_link(call: ApiCall) -> Result<Answer, RequestError> {
    // The guard lets only tokens come here: a session could prolong itself otherwise.
    let header = call.headers.get(hyper::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim).unwrap_or_default();
    let LinkInput { access } = call.body()?;
    let Some((caller, digest)) = call.app.tokens.find(token) else {
        return Err(RequestError::new(StatusCode::FORBIDDEN, "token_needed", "a login link needs a token"));
    };
    let caller = match access {
        Some(LinkAccess::Read) => Caller { access: Access::Read, ..caller },
        None => caller,
    };
    let token = call.app.sessions.link((caller, digest));
    let path = format!("{}/login#{token}", call.app.guard.policy.base_path);
    ok(&LoginLink { token, path })
}

pub(super) async fn session(call: ApiCall) -> Result<Answer, RequestError> {
    let caller = call.caller.ok_or_else(|| RequestError::not_found("there is no session"))?;
    ok(&SessionAnswer { name: caller.name, access: caller.access.name() })
}

pub(super) async fn openapi(_: ApiCall) -> Result<Answer, RequestError> {
    ok(&document())
}

/// How many.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitQuery {
    /// From 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) limit: Option<u64>,
}

pub(super) async fn audit(call: ApiCall) -> Result<Answer, RequestError> {
    let limit = page_size(call.query::<LimitQuery>()?.limit)?;
    let newest = call.app.audit.newest(limit).await;
    ok(&newest.map_err(|error| RequestError::busy(format!("the audit cannot be read: {error}")))?)
}

/// Which queues.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AllQuery {
    /// Also the queues of jobs.
    pub(super) all: Option<bool>,
}

/// One queue, or all.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QueueQuery {
    queue: Option<String>,
}

pub(super) async fn stats(call: ApiCall) -> Result<Answer, RequestError> {
    let QueueQuery { queue } = call.query()?;
    let overview = Overview::take(call.store()).await?;
    if let Some(queue) = &queue {
        let has_tasks = overview.survey.lanes.iter().any(|lane| lane.queue == *queue);
        if !has_tasks {
            overview.record(queue)?;
        }
    }
    ok(&overview.stats(queue.as_deref()))
}

pub(super) async fn nodes(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&Overview::take(call.store()).await?.nodes())
}

pub(super) async fn workers(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&Overview::take(call.store()).await?.workers(call.app.now()))
}

pub(super) async fn gone_workers(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&overview::gone_workers(call.store()).await?)
}

pub(super) async fn heartbeat(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&stats_of::heartbeat(call.store(), call.param("node"), call.app.now()).await?)
}

pub(super) async fn pool_stats(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&stats_of::pool_stats(call.store(), call.param("pool")).await?)
}

pub(super) async fn worker_pool_stats(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&stats_of::worker_pool_stats(call.store(), call.param("pool")).await?)
}

pub(super) async fn drain(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&nodes::drain(call.store(), call.param("node")).await?)
}

pub(super) async fn resume_node(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&nodes::resume(call.store(), call.param("node")).await?)
}

pub(super) async fn recycle(call: ApiCall) -> Result<Answer, RequestError> {
    let which = WorkersToRecycle::Worker(call.param("worker").to_owned());
    ok(&recycle_workers(call.store(), &which).await?)
}

/// Which workers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RecycleInput {
    /// All idle workers, instead of one.
    all: Option<bool>,
}

pub(super) async fn recycle_pool(call: ApiCall) -> Result<Answer, RequestError> {
    let pool = call.param("pool").to_owned();
    let which = match call.body::<RecycleInput>()?.all {
        Some(true) => WorkersToRecycle::All(pool),
        Some(false) | None => WorkersToRecycle::Any(pool),
    };
    ok(&recycle_workers(call.store(), &which).await?)
}

/// How many workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResizeInput {
    #[schemars(range(max = 10_000))]
    min: u32,
    #[schemars(range(min = 1, max = 10_000))]
    max: u32,
}

pub(super) async fn resize(call: ApiCall) -> Result<Answer, RequestError> {
    let ResizeInput { min, max } = call.body()?;
    if max == 0 || usize::try_from(max).is_ok_and(|max| max > MAX_WORKERS) {
        return Err(RequestError::field(
            "max",
            format!("max: expected a whole number from 1 to {MAX_WORKERS}"),
        ));
    }
    let request = ResizeRequest { pool: call.param("pool").to_owned(), min, max };
    request.check()?;
    ok(&nodes::resize(call.store(), &request).await?)
}

/// Which costs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CostParams {
    /// `task`, `attempt`, `job`, `queue`, `pool`, `account`, `model` or `day`.
    #[schemars(extend("enum" = ["task", "attempt", "job", "queue", "pool", "account", "model", "day", null]))]
    by: Option<String>,
    /// From this day of UTC on: a date such as 2026-11-01, or how long ago, such as 7d.
    since: Option<String>,
    /// Up to this day.
    until: Option<String>,
    queue: Option<String>,
}

pub(super) async fn cost(call: ApiCall) -> Result<Answer, RequestError> {
    let query: CostParams = call.query()?;
    let now = call.store().now().await?;
    let day = |name: &str, text: Option<String>| {
        let read = |text: String| match value::moment(&format!("{text}T00:00:00Z")) {
            Ok(at) => Ok(at),
            Err(_) => value::duration(&text).map(|ago| now.before(ago)).map_err(|_| {
                let sentence = "expected a date such as 2026-11-01, or how long ago, such as 7d";
                RequestError::field(name, format!("{name}: {sentence}"))
            }),
        };
        text.map(read).transpose()
    };
    let by = query.by.as_deref().unwrap_or("day");
    let by = value::one_of(by, &CostDimension::ALL, CostDimension::name)
        .map_err(|error| RequestError::field("by", format!("by: {error}")))?;
    let request = CostRequest {
        by,
        since: day("since", query.since)?,
        until: day("until", query.until)?,
        queue: query.queue,
    };
    ok(&report(call.store(), &request).await?)
}

pub(super) async fn doctor(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&call.app.examiner.examine().await)
}

pub(super) async fn prune(call: ApiCall) -> Result<Answer, RequestError> {
    let pruned = pruning::prune(call.store(), call.app.keep, call.app.strays).await?;
    let mut answer = json_answer(StatusCode::OK, &pruned)?;
    answer.extensions_mut().insert(TaskCount(pruned.tasks as u64));
    Ok(answer)
}
