//! Operations on accounts.

use ostler_ops::accounts::{self, HoldEnd};
use ostler_wire::input::NumberOrWord;
use ostler_wire::limit_syntax::{NONE, count};
use ostler_wire::value;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::{Answer, RequestError, ok};
use crate::call::ApiCall;

pub(super) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&accounts::list(call.store()).await?)
}

pub(super) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&accounts::show(call.store(), call.param("account")).await?)
}

/// For how long, and why.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HoldInput {
    /// Such as `2h`; until it is released if neither is given.
    r#for: Option<String>,
    /// Such as `2030-01-01T00:00:00Z`.
    until: Option<String>,
    reason: Option<String>,
}

pub(super) async fn hold(call: ApiCall) -> Result<Answer, RequestError> {
    let input: HoldInput = call.body()?;
    let end = match (input.r#for, input.until) {
        (Some(_), Some(_)) => {
            return Err(RequestError::field("for", "for: for and until exclude each other"));
        }
        (Some(span), None) => HoldEnd::After(
            value::duration(&span).map_err(|error| RequestError::field("for", format!("for: {error}")))?,
        ),
        (None, Some(until)) => HoldEnd::At(
            value::moment(&until).map_err(|error| RequestError::field("until", format!("until: {error}")))?,
        ),
        (None, None) => HoldEnd::ByHand,
    };
    let (name, reason) = (call.param("account"), input.reason.unwrap_or_else(|| "held by hand".to_owned()));
    accounts::check_hold(name, &reason)?;
    ok(&accounts::hold(call.store(), name, end, reason).await?)
}

pub(super) async fn release(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&accounts::release(call.store(), call.param("account")).await?.0)
}

/// How many.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CapInput {
    /// A number, or `none` for no limit.
    most: NumberOrWord,
}

pub(super) async fn cap(call: ApiCall) -> Result<Answer, RequestError> {
    let text = call.body::<CapInput>()?.most.text();
    let most = if text == NONE {
        None
    } else {
        Some(count(&text).map_err(|error| RequestError::field("most", format!("most: {error}")))?)
    };
    ok(&accounts::cap(call.store(), call.param("account"), most).await?)
}
