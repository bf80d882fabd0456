//! Operations on queues and breakers.

use ostler_ops::input;
use ostler_ops::overview::{self, JobQueues, Overview};
use ostler_ops::queues::{self, BreakerPosition, BreakerRequest};
use ostler_store::calls::QueueChange;
use ostler_wire::input::QueueSetInput;
use ostler_wire::value;
use schemars::JsonSchema;
use serde::Deserialize;

use super::system::AllQuery;
use crate::answer::{Answer, RequestError, ok};
use crate::call::ApiCall;

/// The name of a queue, from the path.
fn queue(call: &ApiCall) -> Result<String, RequestError> {
    value::queue(call.param("queue")).map_err(|error| RequestError::field("queue", error))
}

pub(super) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    let jobs = match call.query::<AllQuery>()?.all {
        Some(true) => JobQueues::Listed,
        Some(false) | None => JobQueues::Hidden,
    };
    ok(&Overview::take(call.store()).await?.queues(jobs))
}

pub(super) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&Overview::take(call.store()).await?.queue(&queue(&call)?)?)
}

pub(super) async fn set(call: ApiCall) -> Result<Answer, RequestError> {
    let queue = queue(&call)?;
    let set = input::queue_set(call.body::<QueueSetInput>()?)?;
    let before = call.store().queue_settings(&queue).await?.budget;
    let changes = set.changes(before).map_err(|wrong| RequestError::invalid(wrong.to_string()))?;
    call.app.bounds.check_changes(&queue, &queues::by_hand(changes.clone()))?;
    ok(&queues::set_limits(call.store(), &queue, changes).await?)
}

/// Why.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReasonInput {
    /// For others who find it.
    reason: Option<String>,
}

pub(super) async fn pause(call: ApiCall) -> Result<Answer, RequestError> {
    let queue = queue(&call)?;
    let reason = call.body::<ReasonInput>()?.reason.unwrap_or_else(|| "paused by hand".to_owned());
    call.app.bounds.check_changes(&queue, &[QueueChange::Pause(reason.clone())])?;
    ok(&queues::pause(call.store(), &queue, reason).await?)
}

pub(super) async fn resume(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&queues::resume(call.store(), &queue(&call)?).await?.0)
}

/// One limit key, or the queue as a whole.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeyInput {
    /// Only this limit key.
    key: Option<String>,
}

pub(super) async fn release(call: ApiCall) -> Result<Answer, RequestError> {
    let (queue, KeyInput { key }) = (queue(&call)?, call.body()?);
    call.app.bounds.check_changes(&queue, &[queues::release_change(key.as_deref())])?;
    ok(&queues::release(call.store(), &queue, key.as_deref()).await?.0)
}

pub(super) async fn unsubscribe(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&queues::unsubscribe(call.store(), &queue(&call)?, call.param("subscriber")).await?)
}

pub(super) async fn breakers(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&overview::breakers(call.store()).await?)
}

/// Which breaker, and for how long.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BreakerInput {
    /// Only the breaker of this limit key.
    key: Option<String>,
    /// Such as `10m`; until it is reset if it is left out.
    r#for: Option<String>,
}

pub(super) async fn open_breaker(call: ApiCall) -> Result<Answer, RequestError> {
    let BreakerInput { key, r#for: span } = call.body()?;
    let span = span.as_deref().map(value::duration).transpose();
    let span = span.map_err(|error| RequestError::field("for", format!("for: {error}")))?;
    move_breaker(&call, key, BreakerPosition::Open(span)).await
}

pub(super) async fn reset_breaker(call: ApiCall) -> Result<Answer, RequestError> {
    let KeyInput { key } = call.body()?;
    move_breaker(&call, key, BreakerPosition::Reset).await
}

async fn move_breaker(
    call: &ApiCall,
    key: Option<String>,
    position: BreakerPosition,
) -> Result<Answer, RequestError> {
    let request = BreakerRequest { queue: queue(call)?, key, position };
    request.check(call.app.bounds, call.app.now())?;
    ok(&queues::set_breaker(call.store(), &request).await?)
}
