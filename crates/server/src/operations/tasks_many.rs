//! Actions on all tasks that match a filter: a preview with a cut-off, then the action with progress and a stop.

use ostler_core::Timestamp;
use ostler_ops::bulk::{BulkAct, BulkPlan};
use ostler_ops::input::filter;
use ostler_store::views::{Filter, ListOrder};
use ostler_wire::action::{BulkPreview, BulkProgress};
use ostler_wire::input::{FilterInput, object};
use ostler_wire::value;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tasks::steps;
use crate::answer::{Answer, RequestError, json_answer, ok};
use crate::bulk::id_of;
use crate::call::ApiCall;
use crate::dispatch::TaskCount;

/// What to do with which tasks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkInput {
    /// `cancel`, `retry` (failed and cancelled tasks), `replay` or `drop` (dead letters).
    #[schemars(extend("enum" = ["cancel", "retry", "replay", "drop"]))]
    action: String,
    /// At least one condition.
    #[serde(deserialize_with = "object")]
    filter: FilterInput,
    /// Only count the tasks, and name the cut-off.
    #[serde(default)]
    preview: bool,
    /// The cut-off of the preview: tasks that begin to match later are not touched.
    cutoff: Option<String>,
    /// Discard the saved steps of replayed tasks.
    from_scratch: Option<bool>,
}

/// A preview, or an action that was started.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "describes the two forms of an answer")]
pub(super) enum BulkAnswer {
    Preview(BulkPreview),
    Started(BulkProgress),
}

/// A request that was read.
struct BulkRequest {
    action: &'static str,
    act: BulkAct,
    filter: Filter,
    wanted: BulkWanted,
}

enum BulkWanted {
    Preview,
    Start { cutoff: Timestamp, id: String },
}

/// The id of the action that a request starts; `None`: it is a preview.
pub(super) fn action_id(call: &ApiCall) -> Result<Option<String>, RequestError> {
    match read(call)?.wanted {
        BulkWanted::Preview => Ok(None),
        BulkWanted::Start { id, .. } => Ok(Some(id)),
    }
}

fn read(call: &ApiCall) -> Result<BulkRequest, RequestError> {
    let input: BulkInput = call.body()?;
    let steps = steps(input.from_scratch);
    let (action, act) = match input.action.as_str() {
        "cancel" => ("cancel", BulkAct::Cancel),
        "retry" => ("retry", BulkAct::Retry(steps)),
        "replay" => ("replay", BulkAct::Replay(steps)),
        "drop" => ("drop", BulkAct::Drop),
        _ => {
            return Err(RequestError::field("action", "action: expected one of cancel, retry, replay, drop"));
        }
    };
    if input.filter == FilterInput::default() {
        return Err(RequestError::field("filter", "filter: give at least one condition, such as queue"));
    }
    let text = serde_json::to_string(&input.filter).expect("a filter is JSON") + &format!("{steps:?}");
    let filter = filter(input.filter, ListOrder::NewestFirst)?;
    let wanted = match (input.preview, input.cutoff) {
        (true, None) => BulkWanted::Preview,
        (true, Some(_)) => {
            return Err(RequestError::field("cutoff", "cutoff: a preview names one, and takes none"));
        }
        (false, None) => {
            let message = "cutoff: ask for a preview first, and pass on its cutoff";
            return Err(RequestError::field("cutoff", message));
        }
        (false, Some(cutoff)) => {
            let wrong = |error| RequestError::field("cutoff", format!("cutoff: {error}"));
            let cutoff = value::moment(&cutoff).map_err(wrong)?;
            BulkWanted::Start { cutoff, id: id_of(action, &text, cutoff) }
        }
    };
    Ok(BulkRequest { action, act, filter, wanted })
}

pub(super) async fn act(call: ApiCall) -> Result<Answer, RequestError> {
    let BulkRequest { action, act, filter, wanted } = read(&call)?;
    let (cutoff, id) = match wanted {
        BulkWanted::Preview => {
            let plan = BulkPlan::now(call.store(), act, filter).await?;
            let tasks = plan.count(call.store()).await?;
            return ok(&BulkPreview::new(action, tasks, plan.cutoff));
        }
        BulkWanted::Start { cutoff, id } => (cutoff, id),
    };
    if cutoff > call.store().now().await? {
        return Err(RequestError::field("cutoff", "cutoff: it must not be in the future"));
    }
    let plan = BulkPlan { act, filter, cutoff };
    let tasks = plan.count(call.store()).await? as u64;
    let store = std::sync::Arc::clone(&call.app.store);
    let progress = call.app.bulk.start(store, id, action, plan, &call.app.stopping)?;
    let mut answer = json_answer(hyper::StatusCode::ACCEPTED, &progress)?;
    answer.extensions_mut().insert(TaskCount(tasks));
    Ok(answer)
}

fn unknown() -> RequestError {
    let message = "this node does not know the action; start it again with its cutoff to do what is left";
    RequestError::not_found(message)
}

pub(super) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&call.app.bulk.list())
}

pub(super) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&call.app.bulk.progress(call.param("action")).ok_or_else(unknown)?)
}

pub(super) async fn stop(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&call.app.bulk.stop(call.param("action")).ok_or_else(unknown)?)
}
